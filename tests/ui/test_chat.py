"""Turns on the chat page: the tiny model really writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, text_of, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT
from ui.talk.chat import ChatPage
from ui.talk.message_view import UserMessage
from ui.talk.prompt_inspector import PromptInspector


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker) -> Stage:
    return make_stage(make_engine())


def test_a_message_is_answered_as_it_is_written(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    send(chat, qtbot, "the quick brown fox")
    assert chat.busy
    assert chat.composer.draft() == ""
    assert chat.composer.button.accessibleName() == "Stop (Esc)"
    until(qtbot, lambda: not chat.busy)
    question, reply = chat.session.messages
    assert (question.role, question.content) == ("user", "the quick brown fox")
    assert reply.content
    assert reply.details["model"] == "tiny-llama"
    assert reply.details["sampling"] == {"temperature": 0.0, "max_tokens": 12, "seed": None}
    assert reply.details["finish_reason"] in ("length", "stop")
    view = answer(chat, 1)
    assert text_of(view).strip()
    assert "token" in view._figures.text()
    view.copy.click()
    assert QGuiApplication.clipboard().text() == reply.content
    assert chat.composer.button.accessibleName() == "Send (Enter)"


def test_greedy_answers_repeat_and_a_second_turn_sees_the_first(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    first = chat.session.messages[1].content
    answer(chat, 1).again_button.click()
    until(qtbot, lambda: not chat.busy)
    assert chat.session.messages[1].content == first
    send(chat, qtbot, "two")
    until(qtbot, lambda: not chat.busy)
    assert [m.role for m in chat.session.messages] == ["user", "assistant", "user", "assistant"]
    prompts = [m.details["prompt_tokens"] for m in chat.session.messages if m.role == "assistant"]
    assert prompts[1] > prompts[0]  # type: ignore[operator]
    assert answer(chat, 1).again_button.isHidden()
    assert not answer(chat, 3).again_button.isHidden()


def test_stopping_keeps_what_was_written_and_frees_the_lane(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    until(qtbot, lambda: chat.session.messages[-1].content)
    assert stage.engine.generation.stats().in_flight == 1
    qtbot.keyClick(stage.window, Qt.Key.Key_Escape)
    until(qtbot, lambda: not chat.busy)
    until(qtbot, lambda: stage.engine.generation.stats().in_flight == 0)
    stopped = chat.session.messages[1]
    assert stopped.details["finish_reason"] == "stopped"
    assert stopped.content
    assert answer(chat, 1)._figures.text().startswith("stopped by you")
    chat.settings.length.setValue(5)
    send(chat, qtbot, "and now a short one")
    until(qtbot, lambda: not chat.busy)
    assert len(chat.session.messages) == 4
    assert chat.session.messages[3].details["finish_reason"] in ("length", "stop")


def test_the_stop_button_stops_and_the_answer_says_what_steered_it(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    saes = stage.engine.saes
    saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made")
    stage.engine.attachments.attach("made")
    stage.engine.hand_steering.set_values({3: 4.0, 5: -2.0})
    chat = chat_of(stage, qtbot, tokens=0)
    send(chat, qtbot, "never stop")
    until(qtbot, lambda: chat.session.messages[-1].content)
    chat.composer.button.click()
    until(qtbot, lambda: not chat.busy)
    assert chat.session.messages[1].details["finish_reason"] == "stopped"
    view = answer(chat, 1)
    assert view.steering.isVisible()
    assert view.steering.text() == "steered by hand: 2 features"


def test_a_prompt_that_does_not_fit_is_given_back_with_the_reason(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=5)
    long = "never looks back " * 2000
    send(chat, qtbot, long)
    until(qtbot, lambda: "2048" in chat.composer.notice.words())
    assert not chat.busy
    assert chat.session.messages == []
    assert chat.composer.draft() == long.strip("\n")
    until(qtbot, lambda: chat.composer._count.property("look") == "bad")
    chat.composer.field.setPlainText("shorter")
    qtbot.keyClick(chat.composer.field, Qt.Key.Key_Return)
    until(qtbot, lambda: len(chat.session.messages) == 2 and not chat.busy)
    assert chat.composer.notice.words() == ""


def test_a_refused_rewrite_leaves_the_former_answer(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    former = chat.session.messages[1].content
    chat.settings.length.setValue(4000)
    answer(chat, 1).again_button.click()
    until(qtbot, lambda: "2048" in chat.composer.notice.words())
    assert [m.content for m in chat.session.messages] == ["one", former]
    assert text_of(answer(chat, 1)).strip()


def test_a_bad_seed_is_said_and_nothing_is_lost(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    chat.settings.seed.setText("seven")
    assert "whole number" in chat.settings.seed_error.text()
    send(chat, qtbot, "hello")
    assert "whole number" in chat.composer.notice.words()
    assert chat.composer.draft() == "hello"
    assert chat.session.messages == []


def test_the_same_seed_gives_the_same_answer(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=20)
    chat.settings.temperature.setValue(1.5)
    chat.settings.seed.setText("7")
    texts = []
    for _ in range(2):
        chat.new_chat()
        send(chat, qtbot, "one")
        until(qtbot, lambda: not chat.busy)
        texts.append(chat.session.messages[1].content)
        assert chat.session.messages[1].details["sampling"] == {"temperature": 1.5, "max_tokens": 20, "seed": 7}
    assert texts[0] == texts[1]


def test_without_a_model_the_composer_says_what_to_do(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False))
    stage.window.show_page(CHAT)
    composer = stage.window.chat.composer
    until(qtbot, lambda: composer.gate_button is not None and composer.gate_button.text() == "Load tiny-llama")
    composer.field.setPlainText("hello")
    assert not composer.button.isEnabled()
    qtbot.keyClick(composer.field, Qt.Key.Key_Return)
    assert composer.draft() == "hello"
    composer.gate_button.click()  # type: ignore[union-attr]
    until(qtbot, lambda: composer.gate.isHidden())
    assert composer.button.isEnabled()


def test_without_any_model_the_composer_leads_home(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.window.show_page(CHAT)
    composer = stage.window.chat.composer
    until(qtbot, lambda: composer.gate_button is not None and composer.gate_button.text() == "Go to Home")
    composer.gate_button.click()  # type: ignore[union-attr]
    assert stage.window.stack.currentWidget() is stage.window.home


def test_a_model_that_goes_away_while_one_waits_is_an_error_in_words(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    stage.engine.loader.unload().result(60)
    # The window has not heard of it yet; the engine's refusal must reach the person all the same.
    chat._start(lambda: chat.session.send("hello", chat.settings.options(), "tiny-llama"))
    until(qtbot, lambda: "not loaded" in chat.composer.notice.words())
    assert chat.composer.draft() == "hello"
    assert chat.session.messages == []
    until(qtbot, lambda: not chat.composer.gate.isHidden())


# --- continue and edit ------------------------------------------------------------------------------------------------


def test_an_answer_that_was_cut_goes_on_where_it_ended(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=12)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    whole = chat.session.messages[1].content
    chat.new_chat()
    chat.settings.length.setValue(5)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    short = chat.session.messages[1].content
    assert whole.startswith(short) and short != whole
    button = answer(chat, 1).go_on_button
    assert not button.isHidden()
    button.click()
    until(qtbot, lambda: not chat.busy)
    longer = chat.session.messages[1]
    assert longer.content.startswith(short) and len(longer.content) > len(short)
    assert longer.details["completion_tokens"] == 10
    assert len(chat.session.messages) == 2


def test_a_continuation_that_is_refused_leaves_the_answer_as_it_was(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=5)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    before = chat.session.messages[1].copied()
    chat.settings.length.setValue(4000)
    answer(chat, 1).go_on_button.click()
    until(qtbot, lambda: "2048" in chat.composer.notice.words())
    after = chat.session.messages[1]
    assert (after.content, after.details) == (before.content, before.details)
    assert not answer(chat, 1).go_on_button.isHidden()


def test_a_message_is_edited_in_its_place_and_the_edit_can_be_undone(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=5)
    for text in ("one", "two"):
        send(chat, qtbot, text)
        until(qtbot, lambda: not chat.busy)
    before = [message.content for message in chat.session.messages]
    question = chat.messages.view(0)
    assert isinstance(question, UserMessage)
    question.edit_button.click()
    assert question.editor is not None
    qtbot.keyClick(question.editor.field, Qt.Key.Key_Escape)
    assert question.editor is None and not question.copy.isHidden()
    question.edit_button.click()
    editor = question.editor
    assert editor is not None
    editor.field.setPlainText("the sea")
    qtbot.keyClick(editor.field, Qt.Key.Key_Return)
    until(qtbot, lambda: not chat.busy)
    assert [message.role for message in chat.session.messages] == ["user", "assistant"]
    assert chat.session.messages[0].content == "the sea"
    assert chat.composer.notice.words() == "2 later messages were taken away by the edit."
    chat._undo_edit()
    assert [message.content for message in chat.session.messages] == before
    until(qtbot, lambda: chat.session.settled)
    kept = stage.engine.library.conversations.get(chat.session.conversation_id or 0)
    assert kept is not None and [message.content for message in kept.messages] == before


def test_an_edit_that_is_refused_changes_nothing(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=5)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    before = [message.content for message in chat.session.messages]
    chat._edit(0, "never looks back " * 2000)
    until(qtbot, lambda: "2048" in chat.composer.notice.words())
    assert [message.content for message in chat.session.messages] == before


# --- the exact prompt -------------------------------------------------------------------------------------------------


def inspector_of(chat: ChatPage, qtbot: QtBot) -> PromptInspector:
    until(qtbot, lambda: any(d.isVisible() for d in chat.findChildren(PromptInspector)))
    dialog = next(d for d in chat.findChildren(PromptInspector) if d.isVisible())
    until(qtbot, lambda: dialog.summary.text() != "Rendering…")
    return dialog


def test_the_exact_prompt_of_the_draft_is_shown_token_by_token(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    chat.settings.system.setPlainText("be brief")
    chat.composer.field.setPlainText("the sea")
    chat.settings.inspect_button.click()
    dialog = inspector_of(chat, qtbot)
    assert dialog.text.toPlainText() == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nthe sea<|im_end|>\n<|im_start|>assistant\n"
    )
    table = dialog.tokens.model()
    assert table.index(0, 2).data() == "<|im_start|>"
    shown = "".join(str(table.index(row, 2).data()) for row in range(table.rowCount()))
    assert shown == dialog.text.toPlainText().replace("\n", "↵").replace(" ", "·")
    assert dialog.summary.text().startswith(f"{table.rowCount()} tokens for tiny-llama, whose window holds 2,048")
    dialog.close()


def test_the_exact_prompt_of_an_answer_ends_before_it(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    send(chat, qtbot, "one")
    until(qtbot, lambda: not chat.busy)
    chat.settings.system.setPlainText("something set only afterwards")
    answer(chat, 1).inspect_button.click()
    dialog = inspector_of(chat, qtbot)
    assert dialog.text.toPlainText() == "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n"
    assert dialog.tokens.model().rowCount() == chat.session.messages[1].details["prompt_tokens"]
    dialog.close()


def test_without_a_model_the_inspector_says_so(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(load=False))
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    chat.settings.inspect_button.click()
    dialog = inspector_of(chat, qtbot)
    assert "nothing to send yet" in dialog.summary.text()
    dialog.close()
    chat.composer.field.setPlainText("hello")
    chat.settings.inspect_button.click()
    dialog = inspector_of(chat, qtbot)
    assert "no model is" in dialog.notice.words()
    dialog.close()


def test_the_size_of_the_prompt_is_counted_as_one_types(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    chat.composer.field.setPlainText("the sea")
    until(qtbot, lambda: chat.composer.count_text().endswith("of 2,048 tokens"))
    before = chat.composer.count_text()
    chat.composer.field.setPlainText("the sea was calm and the ship went slowly along the coast")
    until(qtbot, lambda: chat.composer.count_text() != before)
    assert chat.settings.usage.text().startswith("The prompt takes ")
