"""Conversations are kept, found, renamed, deleted and brought back; leaving one does not end its answer."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.library.conversations import StoredMessage
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, text_of, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT
from ui.kit.steering_text import report_words
from ui.talk.chat import ChatPage


def keep(engine: Engine, title: str, *contents: str, system: str = "") -> int:
    """A saved conversation whose messages alternate between the person and the model."""
    messages = [
        StoredMessage("user" if n % 2 == 0 else "assistant", text, {"finish_reason": "stop"} if n % 2 else {})
        for n, text in enumerate(contents)
    ]
    return engine.library.conversations.create(title, system, messages).id


def open_row(chat: ChatPage, qtbot: QtBot, title: str) -> None:
    """Click the conversation of that title and wait until it is shown."""
    view = chat.conversations.list
    until(qtbot, lambda: title in chat.conversations.titles())
    item = view.item(chat.conversations.titles().index(title))
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=view.visualItemRect(item).center())
    until(qtbot, lambda: chat.title.full_text() == title)


def saved(stage: Stage) -> list[str]:
    return [summary.title for summary in stage.engine.library.conversations.list(None)]


def test_a_conversation_is_kept_and_shown_by_the_next_window(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    engine = make_engine()
    first = make_stage(engine)
    chat = chat_of(first, qtbot)
    chat.settings.system.setPlainText("be brief")
    send(chat, qtbot, "the sea was calm")
    until(qtbot, lambda: not chat.busy)
    until(qtbot, lambda: chat.title.full_text() == "the sea was calm")
    written = chat.session.messages[1].content

    def kept() -> bool:
        number = chat.session.conversation_id
        record = engine.library.conversations.get(number) if number is not None else None
        return record is not None and len(record.messages) == 2 and "seconds_total" in record.messages[1].details

    until(qtbot, kept)
    first.window.close()
    second = make_stage(engine)
    again = second.window.chat
    open_row(again, qtbot, "the sea was calm")
    assert [m.content for m in again.session.messages] == ["the sea was calm", written]
    assert again.settings.system.toPlainText() == "be brief"
    assert again.session.messages[1].details["sampling"] == {"temperature": 0.0, "max_tokens": 12, "seed": None}
    assert "token" in answer(again, 1)._figures.text()
    assert text_of(answer(again, 1)).strip()


def test_sampling_settings_are_offered_again(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    chat = make_stage(engine).window.chat
    chat.settings.temperature.setValue(0.35)
    chat.settings.length.setValue(99)
    until(
        qtbot,
        lambda: engine.library.state.get("chat_options") == {"temperature": 0.35, "max_tokens": 99, "seed": None},
    )
    again = make_stage(engine).window.chat
    until(qtbot, lambda: again.settings.temperature.value() == 0.35 and again.settings.length.value() == 99)


def test_the_search_looks_into_titles_and_messages(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    engine = make_engine(folder=None)
    keep(engine, "Boats", "how do ships float", "they push water away")
    keep(engine, "Cats", "names for a cat", "Minka")
    chat = make_stage(engine).window.chat
    until(qtbot, lambda: chat.conversations.titles() == ["Cats", "Boats"])
    chat.conversations.search.setText("WATER")
    until(qtbot, lambda: chat.conversations.titles() == ["Boats"])
    beside = {"content": "An umbrella.", "details": {}}
    answer_of_two = StoredMessage("assistant", "A hat.", {"plain": beside})
    engine.library.conversations.create("Rain", "", [StoredMessage("user", "what do I take", {}), answer_of_two])
    chat.conversations.search.setText("umbrella")
    until(qtbot, lambda: chat.conversations.titles() == ["Rain"])
    chat.conversations.search.setText("zebra")
    until(qtbot, lambda: chat.conversations.titles() == [])
    assert chat.conversations.empty.text() == "Nothing found."
    chat.conversations.search.clear()
    until(qtbot, lambda: chat.conversations.titles() == ["Rain", "Cats", "Boats"])


def test_a_title_is_changed_in_its_row(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    keep(engine, "Boats", "how do ships float", "they push water away")
    stage = make_stage(engine)
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    open_row(chat, qtbot, "Boats")
    chat.rename_button.click()
    editor = chat.conversations.list.findChild(QLineEdit)
    assert editor is not None
    editor.setText("  Ships   and boats ")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    until(qtbot, lambda: saved(stage) == ["Ships and boats"])
    until(qtbot, lambda: chat.title.full_text() == "Ships and boats")
    until(qtbot, lambda: chat.conversations.titles() == ["Ships and boats"])


def test_a_blank_title_is_not_taken(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    number = keep(engine, "Boats", "how do ships float")
    stage = make_stage(engine)
    chat = stage.window.chat
    until(qtbot, lambda: chat.conversations.titles() == ["Boats"])
    chat.conversations.list.item(0).setText("   ")
    assert chat.conversations.titles() == ["Boats"]
    record = engine.library.conversations.get(number)
    assert record is not None and record.title == "Boats"


def test_deleting_can_be_undone(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    keep(engine, "Boats", "how do ships float", "they push water away", system="be brief")
    stage = make_stage(engine)
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    open_row(chat, qtbot, "Boats")
    qtbot.keyClick(chat.conversations.list, Qt.Key.Key_Delete)
    until(qtbot, lambda: saved(stage) == [])
    until(qtbot, lambda: chat.conversations.undo.words() == "Deleted “Boats”.")
    assert chat.session.messages == []
    assert chat.conversations.titles() == []
    assert chat.title.full_text() == "New chat"
    chat.conversations._undo_button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: saved(stage) == ["Boats"])
    open_row(chat, qtbot, "Boats")
    assert [m.content for m in chat.session.messages] == ["how do ships float", "they push water away"]
    assert chat.settings.system.toPlainText() == "be brief"


def test_an_answer_goes_on_while_another_conversation_is_open(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    engine = make_engine()
    keep(engine, "Boats", "how do ships float", "they push water away")
    stage = make_stage(engine)
    chat = chat_of(stage, qtbot, tokens=1500)
    send(chat, qtbot, "a long story")
    until(qtbot, lambda: chat.session.messages[-1].content)
    writing = chat.session
    open_row(chat, qtbot, "Boats")
    assert not chat.busy
    assert writing.busy
    assert text_of(answer(chat, 1)) == "they push water away"
    open_row(chat, qtbot, "a long story")
    assert chat.session is writing
    until(qtbot, lambda: not chat.busy)
    assert writing.messages[1].details["completion_tokens"] == 1500
    assert text_of(answer(chat, 1)).strip()


def test_deleting_a_conversation_ends_its_answer_for_good(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    until(qtbot, lambda: chat.session.messages[-1].content and chat.session.conversation_id is not None)
    chat.delete_button.click()
    until(qtbot, lambda: stage.engine.generation.stats().in_flight == 0 and not chat.busy)
    until(qtbot, lambda: chat.session.messages == [])
    assert saved(stage) == []


def test_closing_the_window_keeps_what_was_written_and_what_steered_it(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made")
    engine.attachments.attach("made")
    engine.hand_steering.set_value(3, 4.0)
    stage = make_stage(engine)
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    until(qtbot, lambda: chat.session.messages[-1].content)
    stage.window.close()
    until(qtbot, lambda: stage.engine.generation.stats().in_flight == 0)
    (summary,) = stage.engine.library.conversations.list(None)
    record = stage.engine.library.conversations.get(summary.id)
    assert record is not None
    assert [m.role for m in record.messages] == ["user", "assistant"]
    assert record.messages[1].content
    assert record.messages[1].details["finish_reason"] == "stopped"
    assert report_words(record.messages[1].details) == "steered by hand: 1 feature"


def test_nothing_is_kept_of_a_turn_that_was_refused(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    chat = chat_of(stage, qtbot, tokens=5000)
    send(chat, qtbot, "too much")
    until(qtbot, lambda: chat.composer.notice.words())
    until(qtbot, lambda: not stage.bridge._busy)
    assert saved(stage) == []
