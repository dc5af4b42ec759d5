"""A model's reasoning in the chat: apart from the answer on screen, in the library, in what is copied and sent back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from engine.actions.experiments.export import as_markdown as record_markdown
from engine.generation.prompts import NOTE_NO_TEMPLATE
from tests.conftest import CheckpointMaker, EngineMaker
from tests.made_saes import make_sae
from tests.tiny import CHAT_TEMPLATE, THINKING_TEMPLATE, teach
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, text_of, until
from ui.kit.chat_state import ChatOptions, ConversationMessage
from ui.kit.reasoning_fold import ReasoningFold
from ui.talk.chat import ChatPage
from ui.talk.compare_message import CompareMessage
from ui.talk.conversation_export import as_json, as_markdown
from ui.talk.message_view import NO_ANSWER
from ui.talk.record_view import RecordView

TEXT = "qu</think>fox"
READING_TEMPLATE = THINKING_TEMPLATE.replace(
    "m['content'] +", "('{' + m.reasoning_content + '}' if m.reasoning_content else '') + m['content'] +"
)
"""One that asks for the reasoning of earlier turns."""

Talking = Callable[..., ChatPage]


@pytest.fixture
def talking(
    make_engine: EngineMaker, make_stage: StageMaker, checkpoint: CheckpointMaker, tmp_path: Path, qtbot: QtBot
) -> Talking:
    """A function that opens a chat with a model which writes ``text`` and then ends."""

    def opened(text: str = TEXT, template: str | None = THINKING_TEMPLATE, *, tokens: int = 40) -> ChatPage:
        folder = teach(checkpoint("llama", chat_template=template), tmp_path / "taught" / "tiny-llama", text)
        return chat_of(make_stage(make_engine(folder)), qtbot, tokens=tokens)

    return opened


def said(chat: ChatPage, qtbot: QtBot, text: str = "say") -> ConversationMessage:
    """The answer to ``text``, when it has ended and is kept."""
    before = len(chat.session.messages)
    send(chat, qtbot, text)
    until(qtbot, lambda: len(chat.session.messages) == before + 2 and chat.session.settled)
    return chat.session.messages[-1]


@pytest.mark.parametrize(
    ("text", "template", "reasoning", "content"),
    [
        (TEXT, THINKING_TEMPLATE, "qu", "fox"),
        ("fox<think>qu", CHAT_TEMPLATE, "qu", "fox"),
        (" qu</think>fo", CHAT_TEMPLATE, "", " qu</think>fo"),
        ("fox <thi", CHAT_TEMPLATE, "", "fox <thi"),
        ("qu </thin", THINKING_TEMPLATE, "qu </thin", ""),
    ],
)
def test_the_answer_is_the_answer_alone(
    qtbot: QtBot, talking: Talking, text: str, template: str, reasoning: str, content: str
) -> None:
    chat = talking(text, template)
    message = said(chat, qtbot)
    assert (message.reasoning, message.content) == (reasoning, content)
    assert message.details["completion_tokens"] == len(text) + 1, "every token counts, and the one that ends it"
    # Pieces are those of the answer, letter by letter, and no token is lost.
    pieces = message.details["pieces"]
    assert isinstance(pieces, list)
    assert "".join(each[0] for each in pieces if len(each) == 2) == content
    assert "".join(each[0] for each in pieces if each[2:] == ["reasoning"]) == reasoning
    assert sum(len(each[1]) for each in pieces) == len(text)
    view = answer(chat, 1)
    view.copy.click()
    assert QGuiApplication.clipboard().text() == content
    assert view.reasoning.isVisible() is bool(reasoning)
    kept = chat._engine.library.conversations.get(chat.session.conversation_id or 0)
    assert kept is not None and (kept.messages[1].reasoning, kept.messages[1].content) == (reasoning, content)
    assert ConversationMessage.from_stored(kept.messages[1]).stored() == kept.messages[1]


def test_it_is_folded_above_the_answer_and_opens_with_a_key(qtbot: QtBot, talking: Talking) -> None:
    chat = talking()
    said(chat, qtbot)
    view = answer(chat, 1)
    fold = view.reasoning
    assert not fold.is_open and not fold.text.isVisible() and text_of(view._text) == "fox"
    assert fold.y() < view._text.y()
    fold.button.setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(fold.button, Qt.Key.Key_Space)
    assert fold.is_open and fold.text.toPlainText() == "qu"
    assert fold.button.accessibleName() == "Reasoning, open"


def test_it_is_open_while_it_is_written_and_folds_with_the_first_letter_of_the_answer(qtbot: QtBot) -> None:
    fold = ReasoningFold()
    qtbot.addWidget(fold)
    fold.show()
    fold.show_text("", under_way=True)
    assert fold.isHidden()
    fold.show_text("so\n", under_way=True)
    fold.show_text("so\nit is", under_way=True)
    assert fold.is_open and fold.text.toPlainText() == "so\nit is"
    fold.show_text("so\nit is", under_way=False)
    assert not fold.is_open and fold.isVisible()
    # As a person leaves it, it stays.
    fold.button.click()
    fold.show_text("so\nit is", under_way=False)
    assert fold.is_open
    fold.button.click()
    fold.show_text("so\nit is so", under_way=True)
    assert not fold.is_open and fold.text.toPlainText() == "so\nit is so"


def test_an_answer_cut_in_its_reasoning_goes_on_there(qtbot: QtBot, talking: Talking) -> None:
    chat = talking(tokens=1)
    message = said(chat, qtbot)
    assert (message.reasoning, message.content, message.details["finish_reason"]) == ("q", "", "length")
    view = answer(chat, 1)
    assert view._state.text() == NO_ANSWER and view.go_on_button.isVisible()
    chat.settings.length.setValue(40)
    view.go_on_button.click()
    until(qtbot, lambda: chat.session.settled and message.details.get("finish_reason") == "stop")
    assert (message.reasoning, message.content) == ("qu", "fox")
    pieces = message.details["pieces"]
    assert isinstance(pieces, list) and sum(len(each[1]) for each in pieces) == len(TEXT)
    kept = chat._engine.library.conversations.get(chat.session.conversation_id or 0)
    assert kept is not None and (kept.messages[1].reasoning, kept.messages[1].content) == ("qu", "fox")


def test_an_answer_cut_behind_its_reasoning_goes_on_there(qtbot: QtBot, talking: Talking) -> None:
    chat = talking(tokens=len("qu</think>f"))
    message = said(chat, qtbot)
    assert (message.reasoning, message.content) == ("qu", "f")
    chat.settings.length.setValue(40)
    answer(chat, 1).go_on_button.click()
    until(qtbot, lambda: chat.session.settled and message.details.get("finish_reason") == "stop")
    assert (message.reasoning, message.content) == ("qu", "fox")


@pytest.mark.parametrize(("template", "back"), [(THINKING_TEMPLATE, "fox"), (READING_TEMPLATE, "{qu}fox")])
def test_it_is_sent_back_where_the_template_asks_for_it(
    qtbot: QtBot, talking: Talking, template: str, back: str
) -> None:
    chat = talking(template=template)
    said(chat, qtbot)
    request = chat.session.draft_request("more", ChatOptions(), "tiny-llama")
    assert request is not None
    (prompt,) = chat._engine.generation.prepare(request).prompts
    assert prompt.text == (
        f"<|im_start|>user\nsay<|im_end|>\n<|im_start|>assistant\n{back}<|im_end|>\n"
        "<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_both_sides_of_a_comparison_and_their_record(qtbot: QtBot, talking: Talking) -> None:
    chat = talking()
    chat.set_comparing(True)
    message = said(chat, qtbot)
    assert [(side.reasoning, side.content) for side in message.sides] == [("qu", "fox")] * 2
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage)
    for side in (view.plain, view.steered):
        assert side.reasoning.isVisible() and text_of(side._text) == "fox"
    view.keep_button.click()
    library = chat._engine.library
    until(qtbot, lambda: library.experiments.list())
    record = library.experiments.get(library.experiments.list()[0].id)
    assert record is not None and (record.plain, record.steered) == ("fox", "fox")
    assert (record.plain_details["reasoning"], record.steered_details["reasoning"]) == ("qu", "qu")
    shown = RecordView()
    qtbot.addWidget(shown)
    shown.show_record(record)
    shown.show()
    for name, fold in shown.comparison.reasoning.items():
        assert fold.isVisible() and not fold.is_open and fold.text.toPlainText() == "qu", name
    assert record_markdown(record).count("### Reasoning\n\n> qu\n\n### Answer\n\n> fox") == 2


def test_exports_carry_it_apart() -> None:
    plain = ConversationMessage("assistant", "P", {"finish_reason": "stop"}, reasoning="p")
    messages = [
        ConversationMessage("user", "say"),
        ConversationMessage("assistant", "S", {"finish_reason": "stop"}, plain, "s\nt"),
    ]
    page = as_markdown("t", "", messages, {})
    assert "### Reasoning\n\n> p\n\n### Answer\n\n> P\n" in page
    assert "### Reasoning\n\n> s\n> t\n\n### Answer\n\n> S\n" in page
    told = json.loads(as_json("t", "", messages, {}))["messages"][1]
    assert (told["content"], told["reasoning"]) == ("S", "s\nt")
    assert (told["plain"]["content"], told["plain"]["reasoning"]) == ("P", "p")


def test_what_was_changed_to_make_the_prompt_work_is_noted(qtbot: QtBot, talking: Talking) -> None:
    chat = talking(template=None)
    message = said(chat, qtbot)
    assert message.details["notes"] == [NOTE_NO_TEMPLATE]
    assert NOTE_NO_TEMPLATE in answer(chat, 1)._figures.toolTip()


def test_words_are_coloured_in_the_answer_alone_and_read_behind_the_reasoning(
    qtbot: QtBot, talking: Talking, tmp_path: Path
) -> None:
    chat = talking()
    engine = chat._engine
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    engine.attachments.attach("made-sae", 1)
    message = said(chat, qtbot)
    chat.lens.take("made-sae", 1, 3)
    # With nothing in colour, the feature that is chosen colours the last answer.
    until(qtbot, lambda: answer(chat, 1).tokens is not None)
    shown = answer(chat, 1).tokens
    assert shown is not None and shown.coloured is not None
    assert "".join(piece.text for piece in shown.coloured.pieces) == "fox"
    # The same as of a reading of the whole: the prompt, the reasoning with its tag, and then these three letters.
    resident = engine.shelf.resident
    assert resident is not None
    prompt = "<|im_start|>user\nsay<|im_end|>\n<|im_start|>assistant\n<think>\n"
    tokenizer = resident.backend.tokenizer
    ids = [*tokenizer.encode(prompt, False), *(tokenizer.encode(letter, False)[0] for letter in TEXT)]
    read = engine.reading.read(ids, sae_id="made-sae", layer=1, top_k=0, features=[3]).result(60)
    values = [piece.value for piece in shown.coloured.pieces if piece.text]
    assert values == pytest.approx(read.values(3)[-3:], abs=1e-4)
    assert message.content == "fox"
    # Colours that come once they were switched off are not shown.
    answer(chat, 1).colour_button.click()
    assert answer(chat, 1).tokens is None
    chat.lens.coloured.emit(chat.session.messages[1], shown.coloured)
    assert answer(chat, 1).tokens is None


def test_a_comparison_goes_on_where_each_side_was_cut(qtbot: QtBot, talking: Talking) -> None:
    chat = talking(tokens=1)
    chat.set_comparing(True)
    message = said(chat, qtbot)
    assert message.plain is not None
    assert [(side.reasoning, side.content) for side in message.sides] == [("q", "")] * 2
    # One side stands behind its reasoning already.
    message.plain.reasoning, message.plain.content = "qu", "f"
    chat.settings.length.setValue(40)
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage) and not view.go_on_button.isHidden()
    view.go_on_button.click()
    until(qtbot, lambda: all(side.details.get("finish_reason") == "stop" for side in message.sides))
    until(qtbot, lambda: chat.session.settled)
    assert [(side.reasoning, side.content) for side in message.sides] == [("qu", "fox")] * 2
