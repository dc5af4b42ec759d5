"""Small windows and large letters: nothing scrolls sideways, and every control can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QGraphicsView,
    QHeaderView,
    QPlainTextEdit,
    QScrollArea,
    QScrollBar,
    QTableView,
    QVBoxLayout,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.full import PAGES, full_stage, open_page, settle
from tests.ui.look import until
from ui.context.page_context import CHAT, CLUSTERS
from ui.kit.basics import Button, Notice, label
from ui.kit.flow_text import FlowText
from ui.kit.scroll_page import PageHead
from ui.talk.chat import ChatPage
from ui.talk.conversation_list import ConversationList

SIZES = [(800, 600), (640, 400)]
"""A small screen, and 1280 × 800 at 200 %."""
LEAST = 8
"""Pixels of a control that have to be in view for it to be seen at all."""


def own_scrolling(area: QAbstractScrollArea) -> bool:
    """Tables, drawings and code move sideways in themselves; text that flows wraps anywhere."""
    return isinstance(area, FlowText | QTableView | QGraphicsView | QPlainTextEdit | QHeaderView)


def sideways(window: QWidget) -> list[str]:
    return [
        f"{type(area).__name__} {area.accessibleName()} by {area.horizontalScrollBar().maximum()}"
        for area in window.findChildren(QAbstractScrollArea)
        if area.isVisible() and not own_scrolling(area) and area.horizontalScrollBar().maximum() > 0
    ]


def within(control: QWidget, outer: QWidget) -> QRect:
    """The part of a control that its ancestors up to ``outer`` let show, in the coordinates of ``outer``."""
    shown = QRect(control.mapTo(outer, QPoint(0, 0)), control.size())
    above = control.parentWidget()
    while above is not None:
        shown &= QRect(above.mapTo(outer, QPoint(0, 0)), above.size())
        if above is outer:
            break
        above = above.parentWidget()
    return shown


def reach(control: QWidget) -> None:
    above = control.parentWidget()
    while above is not None:
        # What lies over a scrolling part, as the button that leads to the newest message, needs no scrolling to.
        if isinstance(above, QScrollArea) and above.widget() is not None and above.widget().isAncestorOf(control):
            # Not ensureWidgetVisible: for what has a text cursor or a scene it looks for that.
            spot = control.mapTo(above.widget(), control.rect().center())
            room = above.viewport().size()
            wide, high = min(control.width(), room.width()) // 2, min(control.height(), room.height()) // 2
            above.ensureVisible(spot.x(), spot.y(), wide, high)
        above = above.parentWidget()
    QApplication.processEvents()


def out_of_reach(window: QWidget) -> list[str]:
    found = []
    for control in window.findChildren(QWidget):
        if not control.isVisible() or control.focusPolicy() == Qt.FocusPolicy.NoFocus or not control.isEnabled():
            continue
        if isinstance(control, QScrollBar) or control.window() is not window:
            continue
        reach(control)
        shown = within(control, window)
        least = min(LEAST, control.width()), min(LEAST, control.height())
        whole = not isinstance(control, QAbstractButton) or shown.width() >= control.width() - 2
        if shown.width() < least[0] or shown.height() < least[1] or not whole:
            words = control.accessibleName() or getattr(control, "text", lambda: "")()
            found.append(f"{type(control).__name__} “{words}” {shown.getRect()} of {control.size().toTuple()}")
    return found


@pytest.mark.parametrize("size", SIZES, ids=lambda each: f"{each[0]}x{each[1]}")
@pytest.mark.parametrize("key", PAGES)
def test_every_page_fits(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path, key: str, size: tuple[int, int]
) -> None:
    stage = full_stage(make_stage, make_engine(), tmp_path / "saes", "A cluster of the harbour at night", size=size)
    open_page(stage, qtbot, key)
    settle(stage)
    window = stage.window
    assert (window.width(), window.height()) == size
    assert sideways(window) == []
    assert out_of_reach(window) == []
    if key == CHAT:
        chat = window.page(CHAT)
        assert isinstance(chat, ChatPage)
        button = chat.composer.button
        assert within(button, window).size() == button.size()


@pytest.mark.parametrize("width", [190, 230, 280, 420])
def test_a_notice_gives_its_words_and_buttons_their_room(qtbot: QtBot, width: int) -> None:
    conversations = ConversationList()
    qtbot.addWidget(conversations)
    conversations.resize(width, 500)
    conversations.show()
    button = conversations.offer_undo("A conversation about the harbour, the sea and all that is in it")
    until(qtbot, lambda: button.height() >= button.sizeHint().height() and button.width() >= button.sizeHint().width())
    words = conversations.undo._words
    until(qtbot, lambda: words.height() >= words.heightForWidth(words.width()))
    assert within(button, conversations).size() == button.size()
    wide = Notice()
    qtbot.addWidget(wide)
    wide.resize(700, 60)
    wide.show_words("Short.", "info", Button("Undo"))
    assert wide._middle.direction() == wide._middle.Direction.LeftToRight


def test_the_bar_says_less_and_cuts_no_word(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    stage = full_stage(make_stage, make_engine(), tmp_path / "saes", "Harbour", size=(800, 600))
    bar = stage.window.bar
    assert bar.saes.value.full_text() == "2 on layers 1, 2"
    for width in (1280, 1100, 900, 800, 640):
        stage.window.resize(width, 600)
        stage.window.show_page(CLUSTERS)
        settle(stage)
        assert bar.saes.value.text() in ("2 on layers 1, 2", "2 SAEs")
    for sae_id in ("sae-one", "sae-two"):
        stage.engine.attachments.detach(sae_id)
    until(qtbot, lambda: bar.saes.value.full_text() == "none attached")
    settle(stage)
    assert bar.saes.value.text() in ("none attached", "none")


@pytest.mark.parametrize("width", [500, 740, 1100])
def test_a_head_squeezes_neither_its_words_nor_its_buttons(qtbot: QtBot, width: int) -> None:
    words = label(
        "Features and strengths of your own under a name. One profile or cluster is active at a time.", wrap=True
    )
    texts = QVBoxLayout()
    texts.addWidget(words)
    buttons = [Button(each) for each in ("New…", "From current features…", "From a document…", "Import…", "Paste…")]
    buttons[0].setMinimumWidth(buttons[0].sizeHint().width() + 40)
    head = PageHead(texts, *buttons)
    page = QWidget()
    qtbot.addWidget(page)
    around = QVBoxLayout(page)
    around.addLayout(head)
    around.addStretch(1)
    page.resize(width, 400)
    head.fit(width)
    page.show()
    qtbot.waitExposed(page)
    assert page.width() == width and words.width() >= 160
    for button in buttons:
        assert button.width() >= max(button.sizeHint().width(), button.minimumWidth())
        assert button.mapTo(page, QPoint(button.width(), 0)).x() <= width
    beside = buttons[0].mapTo(page, QPoint(0, 0)).x() > words.width()
    assert beside == (width == 1100)
