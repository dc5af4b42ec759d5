"""Opens the real window on a virtual screen and measures it: ``python -m bench.window_probe --data-dir D ...``.

The window is used as a person uses it, through its pages: wait for the first model, bring in SAEs and attach them,
take in documents, have an answer written while the dial turns and the Monitor page is looked at, load a second model.
Prints one JSON line: ``paint_s``, and for each of these the longest stall (see :class:`bench.stalls.Stall`).
"""

from __future__ import annotations

import os
import time

STARTED = time.time()
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from app.environment import prepare  # noqa: E402

prepare()

import argparse  # noqa: E402
import json  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from PySide6.QtCore import QTimer  # noqa: E402

from app import gui  # noqa: E402
from app.options import Options  # noqa: E402
from app.startup import opened  # noqa: E402
from bench.stalls import Heart  # noqa: E402
from bench.window_stage import Stage  # noqa: E402
from engine.actions.models.importing import import_local_model  # noqa: E402
from engine.events import EventBus  # noqa: E402
from engine.library.database import Library  # noqa: E402

TOKENS = 96
LOOK_MS = 50
"""How often the probe looks whether it may go on."""
MONITOR_LOOKS = (15, 45)
"""Between these looks at a running answer the Monitor page is in front."""
SETTLE_LOOKS = 20
"""Looks after each step that still belong to it: pages follow what has happened."""
PATIENCE_S = 240

Step = Iterator[Callable[[], bool]]
"""What a part of the way waits for, one after the other."""


class Way:
    """The way through the window. Each ``yield`` gives what has to hold before it goes on."""

    def __init__(self, face: Any, heart: Heart, stage: Stage) -> None:
        self.figures: dict[str, Any] = {}
        self._window, self._engine = face._window, face._engine
        self._heart = heart
        self._stage = stage

    def parts(self) -> Step:
        """Everything, in order, with a figure for each."""
        yield lambda: self._engine.shelf.resident is not None
        self._window.tour.end()
        self._note("import")
        for name, part in (
            ("attach", self._attach),
            ("document", self._take_documents),
            ("generate", self._generate),
            ("load", self._load_second),
        ):
            yield from self._calm()
            self._heart.take()
            yield from part()
            yield from self._calm()
            self._note(name)

    def _note(self, name: str) -> None:
        self.figures[name] = self._heart.take().as_dict()

    @staticmethod
    def _calm() -> Step:
        for _ in range(SETTLE_LOOKS):
            yield lambda: True

    def _attach(self) -> Step:
        page = self._window.page("saes")
        self._window.show_page("saes")
        for folder in self._stage.saes:
            page.import_folder(str(folder))
        yield lambda: len(page.rows) == len(self._stage.saes) and not page._working
        for sae_id in list(page.rows):
            page.attach(sae_id, None)
        yield lambda: len(self._engine.desk.state.attachments) == len(self._stage.saes)

    def _take_documents(self) -> Step:
        self._window.open_documents(self._stage.documents)
        yield lambda: self._window.open_page == "circuits"
        clusters, circuits = self._window.page("clusters"), self._window.page("circuits")
        yield lambda: bool(circuits.views)
        # A page that is not in front catches up when it is.
        self._window.show_page("clusters")
        yield lambda: bool(clusters.views)

    def _generate(self) -> Step:
        window = self._window
        window.show_page("monitor")
        monitor = window.page("monitor")
        yield from self._calm()
        monitor.switch.setChecked(True)
        monitor.apply()
        yield lambda: self._engine.monitor.watching
        window.go("chat", steer=("cluster", next(iter(window.page("clusters").views))))
        yield lambda: not window.chat.dial.busy and self._engine.desk.state.profile is not None
        chat = window.chat
        chat.settings.length.setValue(TOKENS)
        chat.composer.field.setPlainText("Tell me about the sea, and about the people who live by it.")
        chat.composer.button.click()
        for look in range(10_000):
            if not chat.busy:
                break
            if look in MONITOR_LOOKS:
                window.show_page("monitor" if look == MONITOR_LOOKS[0] else "chat")
            chat.strip.turned.emit(0.5 + (look % 10) / 10)
            yield lambda: True
        window.show_page("chat")

    def _load_second(self) -> Step:
        self._window.show_page("models")
        second = self._engine.shelf.resolve("second")
        self._engine.loader.load(second.id)
        yield lambda: (resident := self._engine.shelf.resident) is not None and resident.record.id == second.id


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(prog="python -m bench.window_probe")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--stage", type=Path, required=True, help="folder made by bench.window_stage")
    given = parser.parse_args()
    library = Library.open(Path(given.data_dir) / "millm.db")
    # The same folder is not imported twice: the second model is a copy of links.
    twin = Path(given.data_dir) / "twin"
    shutil.copytree(
        given.checkpoint, twin, copy_function=os.link if _same_disk(given.checkpoint, twin) else shutil.copy
    )
    for name, folder in (("first", given.checkpoint), ("second", twin)):
        import_local_model(library, EventBus(), folder, name=name)
    library.close()
    sys.setswitchinterval(gui.SWITCH_S)
    app = gui._application()
    with opened(Options(data_dir=given.data_dir, port=0, model="first")) as program:
        face = gui._Face(app, program)
        window = face._window
        paint = gui._FirstPaint()
        heart = Heart()
        way = Way(face, heart, Stage.at(given.stage))
        steps = way.parts()
        begun = time.monotonic()
        waits_for: list[Callable[[], bool]] = [lambda: "paint_s" in way.figures]

        def painted() -> None:
            way.figures["paint_s"] = time.time() - STARTED
            heart.take()

        def look() -> None:
            if time.monotonic() - begun > PATIENCE_S:
                print(f"the probe waited in vain in line {waits_for[0].__code__.co_firstlineno}", file=sys.stderr)
                looking.stop()
                window.leave()
            elif waits_for[0]():
                try:
                    waits_for[0] = next(steps)
                except StopIteration:
                    way.figures["done"] = True
                    looking.stop()
                    window.leave()
                except Exception:
                    looking.stop()
                    window.leave()
                    raise

        paint.happened.connect(painted)
        window.installEventFilter(paint)
        looking = QTimer()
        looking.timeout.connect(look)
        looking.start(LOOK_MS)
        status = face.run()
    print(json.dumps(way.figures), flush=True)
    return face.quitter.leave(status if way.figures.get("done") else 1)


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.parent.stat().st_dev


if __name__ == "__main__":
    sys.exit(main())
