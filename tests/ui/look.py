"""Reading what is on screen and doing what a person would do, for tests."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from tests.ui.stage import Stage
from ui.context.page_context import CHAT
from ui.kit.basics import ElidedLabel
from ui.kit.flow_text import FlowText
from ui.kit.markdown_view import CodeText
from ui.talk.chat import ChatPage
from ui.talk.message_view import AnswerMessage

PATIENCE_MS = 60_000


def until(qtbot: QtBot, condition: Callable[[], object]) -> None:
    """Run the event loop until ``condition()`` is true; fail after a generous while."""
    qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)


def text_of(widget: QWidget) -> str:
    """All flowing text and code inside ``widget``, from the top."""
    parts = [
        part for part in widget.findChildren(QWidget) if isinstance(part, FlowText | CodeText) and not part.isHidden()
    ]
    return "\n".join(part.toPlainText() for part in parts)


def chat_of(stage: Stage, qtbot: QtBot, *, tokens: int = 12) -> ChatPage:
    """The chat page, ready to send, with greedy answers of at most ``tokens`` tokens (0: as long as they get)."""
    stage.window.show_page(CHAT)
    chat = stage.window.chat
    chat.settings.temperature.setValue(0.0)
    chat.settings.length.setValue(tokens)
    until(qtbot, lambda: chat.composer.gate.isHidden())
    return chat


def send(chat: ChatPage, qtbot: QtBot, text: str) -> None:
    chat.composer.field.setPlainText(text)
    qtbot.keyClick(chat.composer.field, Qt.Key.Key_Return)


def answer(chat: ChatPage, index: int) -> AnswerMessage:
    view = chat.messages.view(index)
    assert isinstance(view, AnswerMessage)
    return view


def plain(text: str) -> str:
    """``text`` with blanks where a line may not be broken as other blanks."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def in_sight(part: QWidget) -> bool:
    """Whether all of a widget is on screen: nothing of it is scrolled away or cut off."""
    return part.isVisible() and part.visibleRegion().boundingRect() == part.rect()


def told_in(part: QWidget) -> str:
    """Everything that the labels in a widget say, also what is elided."""
    found = []
    for each in part.findChildren(QLabel):
        found.append(each.full_text() if isinstance(each, ElidedLabel) else each.text())
    return plain(" ".join(found))
