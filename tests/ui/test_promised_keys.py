"""Every key that a text of the window promises is pressed in the shown window, and does what was promised."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QGuiApplication, QShortcut
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.full import PAGES, full_stage, open_page
from tests.ui.look import chat_of, send, until
from tests.ui.stage import Stage
from tests.ui.steer_stage import ONE, circuit, cluster, raw
from ui.context.page_context import CHAT, CIRCUITS, CLUSTERS, FEATURES, HOME, PROFILES, SETTINGS, STEERING
from ui.kit import shortcuts
from ui.kit.shortcuts import key_groups
from ui.look.features import READ, FeaturesPage
from ui.steer.circuit_card import DRAWING
from ui.steer.circuits import CircuitsPage
from ui.steer.clusters import ClustersPage
from ui.steer.library_frame import LibraryFrame
from ui.steer.steering import SteeringPage
from ui.talk.lens import FeatureDialog
from ui.window.shortcuts_dialog import ShortcutsDialog

NONE, CTRL, SHIFT = (
    Qt.KeyboardModifier.NoModifier,
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
)
PAD = Qt.KeyboardModifier.KeypadModifier
KEY = Qt.Key


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path, qtbot: QtBot) -> Stage:
    made = full_stage(make_stage, make_engine(), tmp_path / "saes", "Harbour")
    made.window.activateWindow()
    qtbot.waitActive(made.window)
    return made


def press(qtbot: QtBot, stage: Stage, key: Qt.Key, modifiers: Qt.KeyboardModifier = NONE) -> None:
    """A key, to whatever of the window has the keyboard."""
    qtbot.keyClick(QApplication.focusWidget() or stage.window, key, modifiers)


def from_the_navigation(stage: Stage) -> None:
    """The keyboard is where a click on a page's name leaves it."""
    stage.window.navigation.findChildren(QAbstractButton)[0].setFocus(Qt.FocusReason.MouseFocusReason)


def pages(qtbot: QtBot, stage: Stage) -> None:
    for number, page in enumerate(PAGES[:9]):
        press(qtbot, stage, Qt.Key(KEY.Key_1 + number), CTRL)
        assert stage.window.open_page == page


def turned(qtbot: QtBot, stage: Stage) -> None:
    stage.window.go(HOME)
    press(qtbot, stage, KEY.Key_PageDown, CTRL)
    assert stage.window.open_page == CHAT
    press(qtbot, stage, KEY.Key_PageUp, CTRL)
    assert stage.window.open_page == HOME


def switched(qtbot: QtBot, stage: Stage) -> None:
    until(qtbot, lambda: stage.window.bar.switch.isEnabled() and stage.window.bar.switch.isChecked())
    press(qtbot, stage, KEY.Key_T, CTRL)
    until(qtbot, lambda: stage.engine.desk.live_plan.is_empty)


def a_new_chat(qtbot: QtBot, stage: Stage) -> None:
    open_page(stage, qtbot, CHAT)
    assert stage.window.chat.session.conversation_id is not None
    press(qtbot, stage, KEY.Key_N, CTRL)
    assert stage.window.chat.session.conversation_id is None


def to_the_field(qtbot: QtBot, stage: Stage) -> None:
    stage.window.go(SETTINGS)
    press(qtbot, stage, KEY.Key_L, CTRL)
    assert stage.window.open_page == CHAT and stage.window.chat.composer.field.hasFocus()


def compare(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    chat.composer.field.setFocus()
    press(qtbot, stage, KEY.Key_D, CTRL)
    assert chat.comparing
    press(qtbot, stage, KEY.Key_D, CTRL)
    assert not chat.comparing


def settings(qtbot: QtBot, stage: Stage) -> None:
    press(qtbot, stage, KEY.Key_Comma, CTRL)
    assert stage.window.open_page == SETTINGS


def help_list(qtbot: QtBot, stage: Stage) -> None:
    press(qtbot, stage, KEY.Key_F1)
    dialog = stage.window.findChild(ShortcutsDialog)
    assert dialog is not None and dialog.isVisible()
    dialog.close()


def the_end(qtbot: QtBot, stage: Stage) -> None:
    press(qtbot, stage, KEY.Key_Q, CTRL)
    assert stage.quits == ["quit"] and not stage.window.isVisible()


def enter_sends(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=2)
    chat.new_chat()
    for number, (key, modifiers) in enumerate(
        ((KEY.Key_Return, NONE), (KEY.Key_Enter, PAD), (KEY.Key_Return, CTRL), (KEY.Key_Enter, CTRL | PAD)), start=1
    ):
        chat.composer.field.setFocus()
        chat.composer.field.setPlainText("the sea")
        press(qtbot, stage, key, modifiers)
        until(qtbot, lambda: not chat.busy)
        asked = [each for each in chat.session.messages if each.role == "user"]
        assert len(asked) == number


def shift_breaks(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot)
    for key, modifiers in ((KEY.Key_Return, SHIFT), (KEY.Key_Enter, SHIFT | PAD)):
        chat.composer.field.setPlainText("")
        chat.composer.field.setFocus()
        press(qtbot, stage, key, modifiers)
        assert chat.composer.field.toPlainText() == "\n" and not chat.busy


def escape_stops(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=0)
    chat.new_chat()
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: chat.busy)
    press(qtbot, stage, KEY.Key_Escape)
    until(qtbot, lambda: not chat.busy)
    stage.window.show_around()
    assert stage.window.tour.running
    press(qtbot, stage, KEY.Key_Escape)
    assert not stage.window.tour.running


def delete_deletes(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, CHAT)
    entries = page.conversations.list  # type: ignore[attr-defined]
    until(qtbot, lambda: entries.count() == 1)
    entries.setCurrentRow(0)
    entries.setFocus()
    press(qtbot, stage, KEY.Key_Delete)
    until(qtbot, lambda: not stage.engine.library.conversations.list())


def undone(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, STEERING)
    assert isinstance(page, SteeringPage)
    before = dict(stage.engine.desk.state.entry(ONE).values)
    stage.window.hand.set_value(ONE, 3, 9.0)
    until(qtbot, lambda: stage.engine.desk.state.entry(ONE).values[3] == 9.0 and page.undo_button.isEnabled())
    from_the_navigation(stage)
    press(qtbot, stage, KEY.Key_Z, CTRL)
    until(qtbot, lambda: dict(stage.engine.desk.state.entry(ONE).values) == before)


def pasted(qtbot: QtBot, stage: Stage) -> None:
    profile = {"steering": {"1": 2.0}}
    for key, document, names in (
        (
            PROFILES,
            {**profile, "name": "Pasted profile"},
            lambda: [each.record.name for each in stage.engine.profiles.list().profiles],
        ),
        (
            CLUSTERS,
            cluster("Pasted cluster"),
            lambda: [each.record.name for each in stage.engine.clusters.list().clusters],
        ),
        (
            CIRCUITS,
            circuit("Pasted circuit"),
            lambda: [each.record.name for each in stage.engine.circuits.list().circuits],
        ),
    ):
        page = open_page(stage, qtbot, key)
        assert isinstance(page, LibraryFrame)
        QGuiApplication.clipboard().setText(raw(document).decode())
        from_the_navigation(stage)
        press(qtbot, stage, KEY.Key_V, CTRL)
        until(qtbot, lambda names=names: any(name.startswith("Pasted") for name in names()))


def through_the_drawing(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, CIRCUITS)
    assert isinstance(page, CircuitsPage)
    page.card.open_tab(DRAWING)
    view = page.card.drawing.view
    view.setFocus()
    press(qtbot, stage, KEY.Key_Tab)
    first = view.scene().focusItem()
    assert first in view.nodes.values()
    press(qtbot, stage, KEY.Key_Up)
    assert view.scene().focusItem() in view.nodes.values() and view.scene().focusItem() is not first
    for key, larger in ((KEY.Key_Plus, True), (KEY.Key_Minus, False)):
        before = view.transform().m11()
        press(qtbot, stage, key)
        assert (view.transform().m11() > before) is larger
    press(qtbot, stage, KEY.Key_Plus)
    press(qtbot, stage, KEY.Key_Plus)
    zoomed = view.transform().m11()
    press(qtbot, stage, KEY.Key_0)
    assert view.transform().m11() != zoomed
    for key, modifiers in ((KEY.Key_Return, NONE), (KEY.Key_Enter, PAD)):
        view.scene().setFocusItem(first)
        press(qtbot, stage, key, modifiers)
        opened = stage.window.findChildren(FeatureDialog) or stage.window.open_page == FEATURES
        assert opened
        for dialog in stage.window.findChildren(FeatureDialog):
            dialog.close()
        stage.window.go(CIRCUITS)
        view.setFocus()


def the_dial(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, CLUSTERS)
    assert isinstance(page, ClustersPage)
    track = page.card.dial.track
    track.setFocus()
    for key, hundredths in ((KEY.Key_Right, 5), (KEY.Key_Left, -5), (KEY.Key_PageUp, 25), (KEY.Key_PageDown, -25)):
        before = track.value()
        press(qtbot, stage, key)
        assert track.value() - before == hundredths


def read_text(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, FEATURES)
    assert isinstance(page, FeaturesPage)
    page.tabs[READ].click()
    for text, key, modifiers in (
        ("the sea", KEY.Key_Return, CTRL),
        ("a ship on the sea", KEY.Key_Enter, CTRL),
        ("calm", KEY.Key_Enter, CTRL | PAD),
    ):
        page.reading.field.setFocus()
        page.reading.field.setPlainText(text)
        press(qtbot, stage, key, modifiers)
        until(qtbot, lambda text=text: read_of(page) == text)
        assert page.reading.field.toPlainText() == text, "no line was broken"


def read_of(page: FeaturesPage) -> str:
    reading = page.reading.reading
    return "" if reading is None else "".join(each.text for each in reading.tokens if each.text[:1] != "<")


TRIED: dict[tuple[str, str], Callable[[QtBot, Stage], None]] = {
    ("Everywhere", "Ctrl+1 … Ctrl+9"): pages,
    ("Everywhere", "Ctrl+PgUp, Ctrl+PgDown"): turned,
    ("Everywhere", "Ctrl+T"): switched,
    ("Everywhere", "Ctrl+N"): a_new_chat,
    ("Everywhere", "Ctrl+L"): to_the_field,
    ("Everywhere", "Ctrl+D"): compare,
    ("Everywhere", "Ctrl+,"): settings,
    ("Everywhere", "F1"): help_list,
    ("Everywhere", "Ctrl+Q"): the_end,
    ("In Chat", "Enter"): enter_sends,
    ("In Chat", "Shift+Enter"): shift_breaks,
    ("In Chat", "Esc"): escape_stops,
    ("In Chat", "Del"): delete_deletes,
    ("In Steering and its documents", "Ctrl+Z"): undone,
    ("In Steering and its documents", "Ctrl+V"): pasted,
    ("In Steering and its documents", "Arrows, Tab"): through_the_drawing,
    ("In Steering and its documents", "Arrows, Page Up, Page Down"): the_dial,
    ("In Features", "Ctrl+Enter"): read_text,
}


def test_every_key_of_the_list_is_tried_here() -> None:
    listed = {(head, keys) for head, rows in key_groups(["a page"] * 9) for keys, _words in rows}
    assert listed == set(TRIED)


@pytest.mark.parametrize("promise", list(TRIED), ids=lambda each: each[1])
def test_a_key_does_what_the_list_says(qtbot: QtBot, stage: Stage, promise: tuple[str, str]) -> None:
    TRIED[promise](qtbot, stage)


def promises(widget: QWidget) -> str:
    words = [widget.toolTip(), widget.property("placeholderText") or ""]
    return "\n".join([*words, widget.text() if isinstance(widget, QLabel) else ""])


def test_no_text_promises_a_key_that_the_list_has_not(qtbot: QtBot, stage: Stage) -> None:
    listed = "\n".join(keys for _head, rows in key_groups(["a page"] * 9) for keys, _words in rows)
    told: set[str] = set()
    for key in PAGES:
        page = open_page(stage, qtbot, key)
        for widget in (page, stage.window.navigation, *page.findChildren(QWidget)):
            told |= set(re.findall(r"\b(?:Ctrl|Shift|Alt)\+[\w,]+|\bEsc\b|\bF\d+\b", promises(widget)))
    assert "Ctrl+Enter" in told and "Ctrl+Z" in told
    assert {each for each in told if not re.fullmatch(r"Ctrl\+\d", each)} <= set(re.split(r"[\s]|, ", listed))
    written = "\n".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "docs").glob("*.md"))
    for each in set(re.findall(r"\bCtrl\+[A-Z0-9][a-z]*", written)):
        assert each in listed, each


@pytest.mark.parametrize("key", PAGES)
def test_no_key_means_two_things(qtbot: QtBot, stage: Stage, key: str) -> None:
    """Of what a page in front hears, no two hear the same key."""
    open_page(stage, qtbot, key)
    window = stage.window
    heard = [
        each.key().toString()
        for each in window.findChildren(QShortcut)
        if each.isEnabled() and isinstance(parent := each.parent(), QWidget) and parent.isVisible()
    ]
    heard += [
        each.shortcut().toString()
        for each in window.findChildren(QAction)
        if not each.shortcut().isEmpty() and each.shortcutContext() != Qt.ShortcutContext.WidgetShortcut
    ]
    heard += [
        each.shortcut().toString()
        for each in window.findChildren(QAbstractButton)
        if not each.shortcut().isEmpty() and each.isVisible()
    ]
    assert sorted(heard) == sorted(set(heard))
    assert shortcuts.QUIT in heard


def test_the_key_that_switches_steering_says_why_it_cannot(qtbot: QtBot, stage: Stage) -> None:
    switch, word = stage.window.bar.switch, stage.window.bar.passing
    until(qtbot, switch.isEnabled)
    switch.setEnabled(False)  # as it is while nothing is set
    from_the_navigation(stage)
    press(qtbot, stage, KEY.Key_T, CTRL)
    assert word is not None and word.isVisible()
    assert "Nothing is set to steer yet" in word.words.text()
