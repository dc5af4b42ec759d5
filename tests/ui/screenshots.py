"""Renders every page without a screen into ``docs/screenshots/``: ``python -m tests.ui.screenshots [--out DIR] [--data DIR]``.

Each picture is taken in light and dark, at 1280 × 800 and 1920 × 1200, from the real window on a real engine. The demo model
is used where the data directory has it; without it a tiny random model writes nonsense of the right shape.
"""

from __future__ import annotations

import os

os.environ.update(QT_QPA_PLATFORM="offscreen", OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0", HF_HUB_OFFLINE="1")

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QElapsedTimer, QEventLoop, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QWidget

from engine.actions.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from engine.library.records import ModelRecord, ModelSource, StoredMessage
from engine.models.shelf import LoadedModel
from tests.made_saes import make_sae
from tests.tiny import build_checkpoint
from tests.ui.stage import Stage, open_stage
from ui import theme
from ui.frame import CHAT, HOME, STEERING
from ui.widgets.prompt_inspector import PromptInspector

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "assets" / "demo"
SIZES = ((1280, 800), (1920, 1200))
SCHEMES = (("light", Qt.ColorScheme.Light), ("dark", Qt.ColorScheme.Dark))
COLOURS = 192

SALT = """Rivers carry **dissolved minerals** from rocks into the sea. Three things then keep the salt there:

1. Water evaporates, salt does not.
2. Vents on the sea floor add more.
3. Living things take out some minerals, but hardly any sodium or chloride.

| Water | Salt per litre |
|---|---|
| River | about 0.1 g |
| Sea | about 35 g |

> The Dead Sea holds ten times as much as the ocean.
"""
LOOP = """A comprehension says the same in one line:

```python
def squares_of_even(numbers: list[int]) -> list[int]:
    return [n * n for n in numbers if n % 2 == 0]

print(squares_of_even([1, 2, 3, 4]))  # [4, 16]
```

Use `filter` only where the condition already has a name.
"""
KEPT = (
    ("Names for a small grey cat", "What could I call a small grey cat?", "Ash, Pebble, Misty, Flint or Plume."),
    ("A packing list for three days by the sea", "What do I pack for three days by the sea?", "A hat, first of all."),
    ("Why the sea is salty", "Why is the sea salty?", SALT),
    ("A loop as a comprehension", "Turn my loop over even numbers into a comprehension.", LOOP),
)
QUESTION = "Name three things one can see at the seaside."


class Photographer:
    """Runs the event loop and takes pictures of a window in every scheme and size."""

    def __init__(self, app: QApplication, out: Path) -> None:
        self._app = app
        self._out = out
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
        """Let layouts, timers and counts come to rest."""
        clock = QElapsedTimer()
        clock.start()
        while clock.elapsed() < milliseconds:
            self._app.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)

    def take(self, window: QWidget, name: str, target: QWidget | None = None) -> None:
        """Picture ``target`` (the window itself where None), having given the window each look."""
        for scheme_name, scheme in SCHEMES:
            theme.current().force(scheme)
            for width, height in SIZES:
                window.resize(width, height)
                self.settle()
                size = "" if target is not None else f"-{width}x{height}"
                path = self._out / f"{name}-{scheme_name}{size}.png"
                save_small((target or window).grab().toImage(), path)
                self.taken.append(path)
                if target is not None:
                    break
        theme.current().force(Qt.ColorScheme.Light)
        window.resize(*SIZES[0])
        self.settle()


def save_small(image: QImage, path: Path) -> None:
    """Write a PNG of at most :data:`COLOURS` colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        from PIL import Image
    except ImportError:
        indexed = image.convertToFormat(QImage.Format.Format_Indexed8, Qt.ImageConversionFlag.ThresholdDither)
        if not indexed.save(str(path), "PNG", 0):
            raise SystemExit(f"{path} could not be written") from None
        return
    plain = image.convertToFormat(QImage.Format.Format_RGB888)
    size = (plain.width(), plain.height())
    raw = Image.frombuffer("RGB", size, bytes(plain.constBits()), "raw", "RGB", plain.bytesPerLine(), 1)
    # The flat colours of a window are few and frequent: kept exactly, while the edges of letters take the nearest one.
    frequent = sorted(raw.getcolors(size[0] * size[1]) or [], reverse=True)[:COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _times, colour in frequent for channel in colour])
    raw.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


def add_model(library: Library, engine: Engine, data: Path, scratch: Path) -> ModelRecord:
    """The demo's checkpoint where there is one, else a tiny random one."""
    for folder in sorted((data / "models" / "demo").glob("*/checkpoint")):
        record = import_local_model(library, engine.events, folder, name="SmolLM2-135M-Instruct")
        return library.models.update(record.id, source=ModelSource.DEMO)
    print(f"no demo model in {data} (make setup fetches it): a tiny random model stands in", file=sys.stderr)
    return import_local_model(library, engine.events, build_checkpoint(scratch / "tiny-llama"))


def keep_conversations(library: Library, model: str) -> None:
    for title, question, reply in KEPT:
        details: dict[str, object] = {
            "model": model,
            "finish_reason": "stop",
            "completion_tokens": 96,
            "seconds_to_first_token": 0.4,
            "seconds_total": 6.4,
        }
        library.conversations.create(
            title, "", [StoredMessage("user", question, {}), StoredMessage("assistant", reply, details)]
        )


def open_conversation(camera: Photographer, stage: Stage, title: str) -> None:
    chat = stage.window.chat
    camera.until(lambda: title in chat.conversations.titles(), f"the conversation {title!r}")
    number = next(s.id for s in stage.engine.library.conversations.list(None) if s.title == title)
    chat.desk.open(number)
    camera.until(lambda: chat.session.conversation_id == number, f"{title!r} to open")


def shoot(camera: Photographer, stage: Stage, record: ModelRecord) -> None:
    """Go through the pages as a newcomer would."""
    window = stage.window
    chat = window.chat
    camera.settle()
    camera.take(window, "home-before-loading")
    window.show_page(CHAT)
    camera.take(window, "chat-no-model")
    stage.server.start()
    stage.server.wait_ready(60)
    stage.engine.loader.load(record.id).result(300)
    camera.until(lambda: chat.composer.gate.isHidden(), "the window to hear of the model")
    window.say("")
    window.show_page(HOME)
    camera.take(window, "home")
    window.show_page(CHAT)
    camera.take(window, "chat-new")
    chat.settings.system.setPlainText("You answer briefly.")
    chat.settings.temperature.setValue(0.0)
    chat.settings.length.setValue(64)
    chat.composer.field.setPlainText(QUESTION)
    chat.composer.button.click()
    camera.until(lambda: not chat.busy, "the answer")
    camera.take(window, "chat-answer")
    chat.settings.inspect_button.click()
    dialog = next(d for d in chat.findChildren(PromptInspector))
    camera.until(lambda: dialog.tokens.model() is not None, "the exact prompt")
    camera.take(window, "chat-exact-prompt", dialog)
    dialog.close()
    for title, name in (("Why the sea is salty", "chat-markdown"), ("A loop as a comprehension", "chat-code")):
        open_conversation(camera, stage, title)
        camera.take(window, name)


def sae_folders(loaded: LoadedModel, scratch: Path) -> list[Path]:
    """Two SAEs: the demo's where the demo model is loaded, else made-up ones of the right shape."""
    folders = sorted((DEMO / "saes").glob("layer_*"))
    if loaded.record.source is ModelSource.DEMO and len(folders) > 1:
        return folders[:2]
    info = loaded.info
    return [
        make_sae(scratch / f"layer_{layer}", layer=layer, d_in=info.d_model, d_sae=4 * info.d_model, seed=layer)
        for layer in (info.n_layers // 3, 2 * info.n_layers // 3)
    ]


def shoot_steering(camera: Photographer, stage: Stage, scratch: Path) -> None:
    """The Steering page from nothing to two SAEs that steer, and an answer written under them."""
    window, saes, page = stage.window, stage.engine.saes, stage.window.steering
    chat = window.chat
    resident = stage.engine.shelf.resident
    assert resident is not None
    window.say("")
    window.show_page(STEERING)
    camera.take(window, "steering-no-sae")
    for folder in sae_folders(resident, scratch):
        sae_id = f"demo-{folder.name}"
        saes.import_local(folder, sae_id=sae_id)
        saes.attach(sae_id)
        labels = DEMO / "labels" / f"{folder.name}.json"
        if labels.is_file():
            saes.import_label_file(sae_id, labels)
    first, second = stage.engine.desk.state.attachments
    known = [each.feature_idx for each in stage.engine.library.labels.search(first.sae_id, "", limit=2)]
    strengths = dict(zip([*known, 41, 7, 99], (12.0, -40.0, 2.0), strict=False))
    saes.set_steering_batch(strengths, sae_id=first.sae_id, layer=first.layer)
    camera.until(lambda: len(page.cards) == 2 and len(page.shelf.rows) == 2, "the attached SAEs")
    camera.take(window, "steering")
    saes.set_steering_batch({3: 1.0}, sae_id=second.sae_id, layer=second.layer)
    window.show_page(CHAT)
    chat.new_chat()
    chat.settings.length.setValue(48)
    chat.composer.field.setPlainText(QUESTION)
    chat.composer.button.click()
    camera.until(lambda: not chat.busy, "the steered answer")
    camera.take(window, "chat-steered")


def main() -> None:
    parser = argparse.ArgumentParser(description="Render every page into pictures.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--data", type=Path, default=ROOT / ".data", help="data directory that may hold the demo model")
    arguments = parser.parse_args()
    theme.set_high_dpi_policy()
    app = QApplication([])
    theme.install(app, Qt.ColorScheme.Light)
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        library = Library.open(scratch / "millm.db")
        engine = Engine(EngineSettings(), library)
        engine.start()
        record = add_model(library, engine, arguments.data, scratch)
        keep_conversations(library, record.name)
        stage = open_stage(engine, scratch, port=8000)
        camera = Photographer(app, arguments.out)
        try:
            shoot(camera, stage, record)
            shoot_steering(camera, stage, scratch)
        finally:
            stage.window.close()
            stage.server.stop()
            engine.stop()
            stage.bridge.shutdown(5)
            library.close()
    print(f"{len(camera.taken)} pictures in {arguments.out}")


if __name__ == "__main__":
    main()
