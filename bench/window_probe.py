"""Opens the real window on a virtual screen and measures it: ``python -m bench.window_probe --data-dir D ...``.

A timer asks for a turn of the event loop every 5 ms; the longest time between two turns is a stall. Prints one JSON
line: ``paint_s``, ``import_stall_ms``, ``stall_ms``.
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
from pathlib import Path  # noqa: E402

from PySide6.QtCore import QObject, QTimer  # noqa: E402

from app import gui  # noqa: E402
from app.options import Options  # noqa: E402
from app.startup import opened  # noqa: E402
from engine.actions.importing import import_local_model  # noqa: E402
from engine.events import EventBus  # noqa: E402
from engine.library.database import Library  # noqa: E402

TURN_MS = 5
PATIENCE_S = 240


class Heart(QObject):
    """The longest gap between two turns of the loop since the last :meth:`reset`, in ms."""

    def __init__(self) -> None:
        super().__init__()
        self._timer = QTimer(self)
        self._timer.setInterval(TURN_MS)
        self._timer.timeout.connect(self._beat)
        self.reset()
        self._timer.start()

    def reset(self) -> None:
        """Begin anew."""
        self._last, self.longest = time.perf_counter(), 0.0

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, 1000 * (now - self._last) - TURN_MS)
        self._last = now


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(prog="python -m bench.window_probe")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
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
    app = gui._application()
    figures: dict[str, float] = {}
    with opened(Options(data_dir=given.data_dir, port=0, model="first")) as program:
        face = gui._Face(app, program)
        window, engine = face._window, face._engine
        paint = gui._FirstPaint()
        heart = Heart()
        begun = time.monotonic()

        def painted() -> None:
            figures["paint_s"] = time.time() - STARTED
            heart.reset()

        def watch() -> None:
            resident = engine.shelf.resident
            if time.monotonic() - begun > PATIENCE_S:
                window.close()
            elif resident is None:
                return
            elif "import_stall_ms" not in figures:
                figures["import_stall_ms"] = heart.longest
                window.show_page("chat")
                window.chat.settings.length.setValue(48)
                window.chat.composer.field.setPlainText("Tell me about the sea.")
                window.chat.composer.button.click()
                heart.reset()
            elif window.chat.busy:
                return
            elif resident.record.name == "first" and engine.shelf.loading is None:
                second = engine.shelf.resolve("second")
                engine.loader.load(second.id)
            elif resident.record.name == "second":
                figures["stall_ms"] = heart.longest
                window.close()

        paint.happened.connect(painted)
        window.installEventFilter(paint)
        watching = QTimer()
        watching.timeout.connect(watch)
        watching.start(50)
        status = face.run()
    print(json.dumps(figures), flush=True)
    return face.quitter.leave(status if len(figures) == 3 else 1)


def _same_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.parent.stat().st_dev


if __name__ == "__main__":
    sys.exit(main())
