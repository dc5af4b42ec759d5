"""Answers on screen: Markdown that grows, code that can be copied, nothing fetched, nothing cut off."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QObject, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from pytestqt.qtbot import QtBot

from tests.ui.look import text_of
from ui.kit.chat_state import ConversationMessage
from ui.kit.flow_text import FlowText
from ui.kit.markdown_view import MarkdownView
from ui.talk.message_list import PAGE_SIZE, MessageList
from ui.talk.message_view import AnswerMessage, UserMessage

ANSWER = "First **bold** words.\n\n```python\nx = 1\ny = 2\n```\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted"


def test_code_stands_in_its_own_box_with_a_copy_button(qtbot: QtBot) -> None:
    view = MarkdownView()
    qtbot.addWidget(view)
    view.set_text(ANSWER)
    (block,) = view.code_blocks()
    assert block.code.toPlainText() == "x = 1\ny = 2"
    block.copy.click()
    assert QGuiApplication.clipboard().text() == "x = 1\ny = 2"


@pytest.mark.parametrize("step", [1, 7])
def test_text_written_piece_by_piece_ends_like_text_written_at_once(qtbot: QtBot, step: int) -> None:
    growing, whole = MarkdownView(), MarkdownView()
    qtbot.addWidget(growing)
    qtbot.addWidget(whole)
    for end in range(0, len(ANSWER) + step, step):
        growing.set_text(ANSWER[:end])
    whole.set_text(ANSWER)
    assert text_of(growing) == text_of(whole)
    assert [b.code.toPlainText() for b in growing.code_blocks()] == ["x = 1\ny = 2"]


def test_settled_parts_are_not_drawn_again(qtbot: QtBot) -> None:
    view = MarkdownView()
    qtbot.addWidget(view)
    view.set_text("prose\n\n```\ncode\n```\n\nmore")
    first = view.findChildren(FlowText)[0]
    revision = first.document().revision()
    view.set_text("prose\n\n```\ncode\n```\n\nmore and more")
    assert view.findChildren(FlowText)[0] is first
    assert first.document().revision() == revision


def test_text_takes_the_height_it_needs(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    text.set_markdown("many words " * 200)
    text.resize(600, text.height())
    text.show()
    wide = text.height()
    text.resize(300, text.height())
    assert text.height() > wide
    assert text.document().size().height() <= text.height() + 1


def test_html_is_shown_as_text_and_pictures_are_not_fetched(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    text.set_markdown("<b>not bold</b> ![picture](file:///etc/hostname)")
    assert "<b>not bold</b>" in text.toPlainText()
    assert "![picture](file:///etc/hostname)" in text.toPlainText()


def test_only_web_links_are_followed(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)

    class Opener(QObject):
        def __init__(self) -> None:
            super().__init__()
            self.urls: list[str] = []

        @Slot(QUrl)
        def open(self, url: QUrl) -> None:
            self.urls.append(url.toString())

    opener = Opener()
    for scheme in ("https", "file"):
        QDesktopServices.setUrlHandler(scheme, opener, "open")
    try:
        text.anchorClicked.emit(QUrl("file:///etc/hostname"))
        text.anchorClicked.emit(QUrl("https://example.org/"))
    finally:
        for scheme in ("https", "file"):
            QDesktopServices.unsetUrlHandler(scheme)
    assert opener.urls == ["https://example.org/"]


def test_text_can_be_selected(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    text.set_plain("some words")
    assert text.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
    text.selectAll()
    assert text.textCursor().selectedText() == "some words"


def test_a_bubble_is_as_wide_as_its_words_and_never_wider_than_its_share(qtbot: QtBot) -> None:
    short, long = (
        UserMessage(ConversationMessage("user", "hi")),
        UserMessage(ConversationMessage("user", "many words " * 50)),
    )
    for view in (short, long):
        qtbot.addWidget(view)
        view.resize(700, 100)
        view.show()
    assert short._bubble.width() < 120
    assert 400 < long._bubble.width() <= 560


def test_an_answer_that_says_nothing_says_so(qtbot: QtBot) -> None:
    view = AnswerMessage(ConversationMessage("assistant", "", {"finish_reason": "stop", "completion_tokens": 0}))
    qtbot.addWidget(view)
    assert "without writing anything" in view._state.text()


def test_a_broken_answer_says_why(qtbot: QtBot) -> None:
    view = AnswerMessage(
        ConversationMessage("assistant", "half", {"finish_reason": "error", "error": "The device ran out of memory."})
    )
    qtbot.addWidget(view)
    assert view._error.text() == "The device ran out of memory."
    assert view._figures.text() == "broke off"


def test_a_long_conversation_opens_from_its_end(qtbot: QtBot) -> None:
    messages = [
        ConversationMessage("user" if n % 2 == 0 else "assistant", f"message {n}", {"finish_reason": "stop"})
        for n in range(100)
    ]
    view = MessageList()
    qtbot.addWidget(view)
    view.resize(700, 500)
    view.show()
    view.show_all(messages)
    assert view.view(99) is not None
    assert view.view(100 - PAGE_SIZE) is not None
    assert view.view(0) is None
    qtbot.waitUntil(lambda: view.verticalScrollBar().value() == view.verticalScrollBar().maximum() > 0, timeout=30_000)
    view._earlier.click()
    view._earlier.click()
    assert view.view(0) is not None
    assert view._earlier.isHidden()


def test_the_list_follows_the_end_unless_one_scrolled_away(qtbot: QtBot) -> None:
    messages = [ConversationMessage("assistant", "line\n\n" * 40, {"finish_reason": "stop"})]
    view = MessageList()
    qtbot.addWidget(view)
    view.resize(700, 300)
    view.show()
    view.show_all(messages)
    bar = view.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.value() == bar.maximum() > 0, timeout=30_000)
    before = bar.maximum()
    messages[0].content += "more\n\n" * 20
    view.refresh(0)
    qtbot.waitUntil(lambda: bar.maximum() > before and bar.value() == bar.maximum(), timeout=30_000)
    bar.setValue(10)
    longer = bar.maximum()
    messages[0].content += "more\n\n" * 20
    view.refresh(0)
    qtbot.waitUntil(lambda: bar.maximum() > longer, timeout=30_000)
    assert bar.value() == 10
