"""What was written of an answer outlives the program, however that ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.conversations import CUT_OFF
from engine.library.database import Library
from tests.app.processes import started
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from tests.ui.stage import open_stage
from ui.context.page_context import CHAT
from ui.kit.steering_text import report_words
from ui.talk.compare_message import CompareMessage
from ui.talk.figures import figures
from ui.talk.message_view import AnswerMessage


@pytest.mark.parametrize("how", ["single", "compare", "again"])
def test_killed_in_mid_answer_it_is_there_at_the_next_start(
    how: str, qtbot: QtBot, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with started("-m", "tests.ui.kill_driver", str(tmp_path), str(tiny_checkpoint), how) as process:
        former = process.line() if how == "again" else ""
        assert process.process.wait(180) == -signal.SIGKILL, process.errors()
    with Library.open(tmp_path / "millm.db") as library:
        engine = Engine(EngineSettings(DTYPE="float32", CPU_THREADS=1), library)
        engine.start()
        stage = open_stage(engine, tmp_path)
        qtbot.addWidget(stage.window)
        try:
            (summary,) = library.conversations.list()
            stage.window.go(CHAT, conversation=summary.id)
            chat = stage.window.chat
            until(qtbot, lambda: len(chat.session.messages) == 2)
            question, message = chat.session.messages
            assert question.content == "never stop"
            assert len(message.content) > len(former)
            for side in message.sides:
                assert side.content and side.details["finish_reason"] == CUT_OFF and side.ended_early
                assert figures(side.details).startswith("cut off by the program's end · ")
            assert report_words(message.details) == "steered by hand: 1 feature"
            if message.plain is not None:
                assert report_words(message.plain.details) == "not steered"
            view = chat.messages.view(1)
            assert isinstance(view, CompareMessage if how == "compare" else AnswerMessage)
            # It can be gone on with.
            assert view.go_on_button.isVisible()
        finally:
            stage.window.close()
            stage.server.stop(30)
            assert stage.bridge.shutdown(30)
            assert engine.stop(30)


def test_only_the_growing_answer_is_written_and_nothing_follows_the_end(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    session, library = chat.session, stage.engine.library.conversations
    until(qtbot, lambda: session.messages[-1].content and session.settled is False and session.conversation_id)
    session._keeping.stop()

    def kept() -> str:
        record = library.get(session.conversation_id or 0)
        assert record is not None
        return record.messages[1].content if len(record.messages) > 1 else ""

    until(qtbot, lambda: not session._saving)
    session.keep()
    until(qtbot, kept)
    first = kept()
    until(qtbot, lambda: not session._saving and len(session.messages[-1].content) > len(first))
    session.keep()
    until(qtbot, lambda: len(kept()) > len(first))
    chat.stop()
    until(qtbot, lambda: session.settled)
    assert kept() == session.messages[1].content
    record = library.get(session.conversation_id or 0)
    assert record is not None
    assert record.messages[1].details["finish_reason"] == "stopped"


def test_a_reader_further_up_is_led_back_to_the_newest(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    messages = chat.messages
    bar = messages.verticalScrollBar()
    until(qtbot, lambda: bar.maximum() > 200)
    until(qtbot, lambda: bar.value() == bar.maximum() and not messages._settle.isActive())
    assert not messages.newest.isVisible()
    bar.setValue(0)
    assert messages.newest.isVisible()
    before = bar.maximum()
    until(qtbot, lambda: bar.maximum() > before)
    # Text comes, and what is read stays where it is.
    assert bar.value() == 0 and messages.newest.isVisible()
    messages.newest.click()
    until(qtbot, lambda: bar.value() > before - 8)
    assert not messages.newest.isVisible()
    chat.stop()
    until(qtbot, lambda: not chat.busy)
