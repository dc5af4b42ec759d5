"""Writes an answer in a real window and kills its own process in the middle, for the test of what is left of it.

python -m tests.ui.kill_driver FOLDER CHECKPOINT single|compare|again
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication

from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.conversations import PLAIN_SIDE
from engine.library.database import Library
from engine.sampling import Sampling
from tests.made_saes import make_sae
from tests.ui.stage import open_stage
from ui.context.page_context import CHAT
from ui.kit import theme
from ui.kit.chat_options import ChatOptions


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[3]
    app = QApplication([])
    theme.install(app, Qt.ColorScheme.Light)
    library = Library.open(folder / "millm.db")
    engine = Engine(EngineSettings(DTYPE="float32", CPU_THREADS=1), library)
    engine.start()
    model = import_local_model(library, engine.events, Path(sys.argv[2]))
    engine.loader.load(model.id).result(120)
    engine.saes.import_local(make_sae(folder / "made", layer=1), sae_id="made")
    engine.attachments.attach("made")
    engine.hand_steering.set_value(3, 4.0)
    stage = open_stage(engine, folder)
    stage.window.show_page(CHAT)
    session = stage.window.chat.session
    session._keeping.setInterval(20)
    long = ChatOptions(sampling=Sampling(temperature=0.0))
    if how == "again":
        session.send("never stop", ChatOptions(max_tokens=4, sampling=Sampling(temperature=0.0)), model.name)
        session.state_changed.connect(lambda: begin_again() if not session.busy else None)
    else:
        session.send("never stop", long, model.name, compare=how == "compare")

    first: list[str] = []

    def begin_again() -> None:
        session.state_changed.disconnect()
        first.append(session.messages[1].content)
        print(session.messages[1].content, flush=True)
        QTimer.singleShot(0, lambda: session.regenerate(long, model.name))

    def look() -> None:
        """Once the answer was kept a second time, longer than all before, there is no more to wait for."""
        if how == "again" and not first:
            return  # the answer that is to be written again is still being written
        rows = library.conversations.list()
        record = library.conversations.get(rows[0].id) if rows else None
        if record is None or len(record.messages) < 2 or record.messages[1].details.get("finish_reason") == "length":
            return
        message = record.messages[1]
        beside = message.details.get(PLAIN_SIDE)
        if not message.content or (how == "compare" and not (isinstance(beside, dict) and beside["content"])):
            return
        first.append(message.content)
        if len(message.content) > max(map(len, first[:-1]), default=len(message.content)):
            os.kill(os.getpid(), signal.SIGKILL)

    timer = QTimer()
    timer.timeout.connect(look)
    timer.start(5)
    app.exec()


if __name__ == "__main__":
    main()
