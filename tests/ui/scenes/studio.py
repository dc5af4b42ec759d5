"""Where scenes are played: the window on a real engine with the demo pack in its library, and a camera.

Where the data directory lacks the demo model, a tiny random model and made-up SAEs of the right shape stand in.
"""

from __future__ import annotations

import importlib
import pkgutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PySide6.QtCore import QElapsedTimer, QEventLoop, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QWidget

import tests.ui.scenes
from app.demo.content import install_content
from app.demo.index import read_index
from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from engine.library.records import ModelRecord, ModelSource
from tests.made_saes import make_sae
from tests.tiny import build_checkpoint
from tests.ui.stage import Stage, open_stage
from ui.kit import theme
from ui.window.main_window import MainWindow

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "assets" / "demo"
SIZES = ((1280, 800), (1920, 1200))
SCHEMES = (("light", Qt.ColorScheme.Light), ("dark", Qt.ColorScheme.Dark))
_TALK = ("home", "compare", "records")
_STEER = ("steering", "profiles", "clusters", "circuits", "sweep")
_OTHERS = ("features-reading", "monitor", "models", "saes", "server", "settings")
PAGES = frozenset((*_TALK, *_STEER, *_OTHERS))
"""The pictures that stand for a page: at every size. What else there is to see is taken at the first size only, so that
the folder stays small enough to be kept with the source.
"""
COLOURS = 48
FREQUENT = 16
"""Of :data:`COLOURS`; the others are those that are unlike all of them, however small what they are in."""
UNLIKE = 22
LONGEST_MS = 30_000
"""A layout that has not come to rest by then never will."""
PORT = 8000
"""In the address that is shown; another one where something else listens there."""
AREAS = ("talk", "steer")
"""Areas rendered first, in this order; the others follow by name."""


@dataclass(frozen=True)
class Scene:
    """One thing to picture. The names of its pictures begin with ``name``."""

    name: str
    shoot: Callable[[Studio], None]


def areas() -> dict[str, tuple[Scene, ...]]:
    """The scenes of each module in this package."""
    found = {}
    names = [module.name for module in pkgutil.iter_modules(tests.ui.scenes.__path__)]
    for name in sorted(names, key=lambda each: (AREAS.index(each) if each in AREAS else len(AREAS), each)):
        scenes = getattr(importlib.import_module(f"tests.ui.scenes.{name}"), "SCENES", ())
        if scenes:
            found[name] = scenes
    return found


class Photographer:
    """Runs the event loop and takes pictures of a window in every scheme and size."""

    def __init__(
        self,
        app: QApplication,
        out: Path,
        sizes: Sequence[tuple[int, int]] = (),
        schemes: Sequence[str] = ("light", "dark"),
        mark: str = "",
    ) -> None:
        self._app = app
        self._out = out
        self._sizes = sizes or SIZES
        self._every_size = bool(sizes)
        self._schemes = [each for each in SCHEMES if each[0] in schemes]
        self._mark = mark
        """What is added to the names of the pictures."""
        self.taken: list[Path] = []

    def until(self, condition: Callable[[], object], what: str, seconds: float = 300) -> None:
        """Run the event loop until ``condition()`` is true."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"waited {seconds:g} s in vain for: {what}")
            self._app.processEvents(
                QEventLoop.ProcessEventsFlag.AllEvents | QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 20
            )

    def settle(self, milliseconds: int = 250) -> None:
        """Let timers and counts come to rest for that long, then go on until two looks find every widget in its place.

        A busy machine may be in the middle of a layout however long it was waited.
        """
        clock = QElapsedTimer()
        clock.start()
        places: list[tuple[int, int, int, int]] | None = None
        while True:
            before = places
            while clock.elapsed() < milliseconds:
                self._app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)
            places = [
                (each.x(), each.y(), each.width(), each.height())
                for window in self._app.topLevelWidgets()
                if window.isVisible()
                for each in window.findChildren(QWidget)
                if each.isVisible()
            ]
            if places == before:
                return
            if clock.elapsed() > LONGEST_MS:
                raise SystemExit(f"the layout did not come to rest within {LONGEST_MS / 1000:g} s")
            milliseconds = clock.elapsed() + 80

    def take(self, window: QWidget, name: str, target: QWidget | None = None) -> None:
        """Picture ``target`` (the window itself where None), having given the window each look."""
        sizes = self._sizes if name in PAGES or self._every_size else self._sizes[:1]
        for scheme_name, scheme in self._schemes:
            theme.current().force(scheme)
            for width, height in sizes:
                window.resize(width, height)
                self.settle()
                size = "" if target is not None else f"-{width}x{height}"
                path = self._out / f"{name}-{scheme_name}{size}{self._mark}.png"
                save_small((target or window).grab().toImage(), path)
                self.taken.append(path)
                if target is not None:
                    break
        theme.current().force(Qt.ColorScheme.Light)
        window.resize(*self._sizes[0])
        self.settle()


def save_small(image: QImage, path: Path) -> None:
    """Write a PNG of at most :data:`COLOURS` colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        from PIL import Image
    except ImportError:
        indexed = image.convertToFormat(QImage.Format.Format_Indexed8, Qt.ImageConversionFlag.ThresholdDither)
        if not indexed.save(str(path), b"PNG", 0):
            raise SystemExit(f"{path} could not be written") from None
        return
    plain = image.convertToFormat(QImage.Format.Format_RGB888)
    size = (plain.width(), plain.height())
    raw = Image.frombuffer("RGB", size, bytes(plain.constBits()), "raw", "RGB", plain.bytesPerLine(), 1)
    # The flat colours of a window are few and frequent: kept exactly, while the edges of letters take the nearest one.
    # A light of ten pixels must not lose its green to a neighbour's blue, though: what is unlike the others stays too.
    counted: list[tuple[int, Any]] = sorted(raw.getcolors(size[0] * size[1]) or [], reverse=True)
    kept = [colour for _times, colour in counted[:FREQUENT]]
    for _times, colour in counted[FREQUENT:]:
        if len(kept) == COLOURS:
            break
        if all(max(abs(a - b) for a, b in zip(colour, other, strict=True)) > UNLIKE for other in kept):
            kept.append(colour)
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for colour in kept for channel in colour])
    raw.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


@dataclass
class Studio:
    """What a scene works with. ``record`` is the model on the shelf; ``demo`` whether it is the demo's."""

    camera: Photographer
    stage: Stage
    record: ModelRecord
    scratch: Path
    demo: bool
    _made: list[str] = field(default_factory=list)

    @property
    def window(self) -> MainWindow:
        """The window."""
        return self.stage.window

    @property
    def engine(self) -> Engine:
        """The engine behind it."""
        return self.stage.engine

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Run the event loop until ``condition()`` is true."""
        self.camera.until(condition, what)

    def take(self, name: str, target: QWidget | None = None) -> None:
        """Picture the window, or ``target`` in it, in each look; the bar's message is taken away first."""
        self.window.say("")
        self.camera.take(self.window, name, target)

    def load_model(self) -> None:
        """Load the model and start the server, and wait until the window has heard of both."""
        if self.engine.shelf.resident is not None:
            return
        self.stage.server.start()
        self.stage.server.wait_ready(60)
        self.engine.loader.load(self.record.id).result(300)
        self.until(lambda: self.window.chat.composer.gate.isHidden(), "the window to hear of the model")

    def attach_demo_set(self) -> None:
        """Attach the demo pack's SAEs (or the made-up ones) and wait until the bar has heard of it."""
        self.load_model()
        if self.engine.desk.state.attachments:
            return
        if self.demo:
            self.engine.attachments.attach_saved_set(read_index(DEMO)["attach_set"])
        else:
            for sae_id in self._make_saes():
                self.engine.attachments.attach(sae_id)
        self.camera.settle()

    def _make_saes(self) -> list[str]:
        resident = self.engine.shelf.resident
        assert resident is not None
        info = resident.info
        for layer in (info.n_layers // 3, 2 * info.n_layers // 3):
            folder = self.scratch / f"layer_{layer}"
            if not folder.exists():
                make_sae(folder, layer=layer, d_in=info.d_model, d_sae=4 * info.d_model, seed=layer)
                self._made.append(self.engine.saes.import_local(folder, sae_id=f"made-layer_{layer}")[0].id)
        return self._made


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _add_model(library: Library, engine: Engine, data: Path, scratch: Path) -> ModelRecord:
    """The demo's checkpoint where there is one, else a tiny random one."""
    for folder in sorted((data / "models" / "demo").glob("*/checkpoint")):
        record = import_local_model(library, engine.events, folder, name=read_index(DEMO)["model"])
        return library.models.update(record.id, source=ModelSource.DEMO)
    print(f"no demo model in {data} (make setup fetches it): a tiny random model stands in", file=sys.stderr)
    return import_local_model(library, engine.events, build_checkpoint(scratch / "tiny-llama"))


@contextmanager
def studio(camera: Photographer, data: Path, scratch: Path) -> Iterator[Studio]:
    """A fresh studio; ``data`` may hold the demo model, ``scratch`` is an empty folder."""
    library = Library.open(scratch / "millm.db")
    engine = Engine(EngineSettings(), library)
    engine.start()
    record = _add_model(library, engine, data, scratch)
    demo = record.source is ModelSource.DEMO
    if demo:
        install_content(engine)
    stage = open_stage(engine, scratch, port=PORT if _is_free(PORT) else 0)
    camera.settle()
    try:
        yield Studio(camera, stage, record, scratch, demo)
    finally:
        stage.window.close()
        stage.server.stop()
        engine.stop()
        stage.bridge.shutdown(5)
        library.close()
