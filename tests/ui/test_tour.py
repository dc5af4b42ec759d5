"""The first start in the window: the folder dialog, the welcome, the tour, and a crash report that is offered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, QRect, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QFileOpenEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QWidget
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, HOME, SETTINGS
from ui.context.services import Progress
from ui.program.folder_dialog import FolderDialog
from ui.window.tour import SEEN_KEY
from ui.window.tour_panel import TourPanel, beside


class Opener(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url.toLocalFile())


@pytest.fixture
def opener() -> Iterator[Opener]:
    made = Opener()
    QDesktopServices.setUrlHandler("file", made, "open")
    yield made
    QDesktopServices.unsetUrlHandler("file")


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker) -> Stage:
    return make_stage(make_engine(None))


def seen(stage: Stage) -> object:
    return stage.engine.library.state.get(SEEN_KEY)


def test_the_tour_points_at_real_widgets_and_leaves_the_chat_as_it_was(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.show_around()
    assert window.open_page == CHAT
    for head, place in (("One dial: λ", "1 of 3"), ("Compare", "2 of 3"), ("For other programs", "3 of 3")):
        until(qtbot, lambda head=head: panel.head.text() == head and not panel.ring.isHidden())
        assert panel.place.text() == place
        panel.follow()
        target = panel._target()
        assert target is not None
        assert target.isVisible()
        middle = target.mapTo(window.centralWidget(), target.rect().center())
        assert panel.ring.geometry().contains(middle)
        assert not panel.geometry().contains(middle)
        assert window.centralWidget().rect().contains(panel.geometry())
        assert window.chat.compare_button.isChecked()
        panel.next_button.click()
    assert panel.isHidden()
    assert panel.ring.isHidden()
    assert window.open_page == HOME
    assert not window.chat.compare_button.isChecked()
    until(qtbot, lambda: seen(stage) is True)


def test_it_ends_at_any_step_and_begins_again_from_home_and_settings(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.home.steps.tour_button.click()
    assert panel.place.text() == "1 of 3"
    assert panel.back_button.isHidden()
    panel.next_button.click()
    panel.back_button.click()
    assert panel.place.text() == "1 of 3"
    panel.close_button.click()
    assert panel.isHidden()
    until(qtbot, lambda: seen(stage) is True)
    window.go(SETTINGS)
    settings = window.page(SETTINGS)
    settings.tour_button.click()  # type: ignore[attr-defined]
    assert panel.place.text() == "1 of 3"
    panel.close_button.click()


def test_the_keyboard_leads_through_it_and_out_of_it(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.activateWindow()
    until(qtbot, window.isActiveWindow)
    window.show_around()
    assert panel.next_button.hasFocus()
    qtbot.keyClick(panel.next_button, Qt.Key.Key_Space)
    assert panel.place.text() == "2 of 3"
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert panel.isHidden()
    until(qtbot, lambda: seen(stage) is True)


def test_the_window_can_be_used_meanwhile(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.show_around()
    window.show_page(HOME)
    panel.follow()
    assert panel.ring.isHidden()
    assert not panel.isHidden()
    window.show_page(CHAT)
    panel.follow()
    assert not panel.ring.isHidden()


def test_a_newcomer_is_welcomed_once_and_may_refuse(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.tour.offer()
    until(qtbot, lambda: window.tour.running)
    assert panel.head.text() == "Welcome"
    assert panel.action_button.text() == "Install the demo model"
    assert "93 MB" in panel.words.text()
    panel.skip_button.click()
    until(qtbot, lambda: seen(stage) is True)
    said: list[None] = []
    window.tour.offer()
    # The offer is asked for in the background: what is asked after it is answered after it.
    stage.bridge.run_in_background(lambda: None, said.append, owner=window)
    until(qtbot, lambda: said)
    assert not window.tour.running


def test_the_welcome_installs_only_when_asked_to(
    make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot
) -> None:
    asked: list[Progress] = []
    stage = make_stage(make_engine(None), install_demo=asked.append)
    panel = stage.window.tour.panel
    stage.window.tour.welcome(with_demo=True)
    assert asked == []
    panel.action_button.click()
    until(qtbot, lambda: len(asked) == 1)
    assert panel.action_button.isHidden()
    assert "being installed" in panel.words.text()
    panel.next_button.click()
    assert panel.place.text() == "1 of 3"


def test_a_crash_report_is_offered_and_opened(stage: Stage, opener: Opener, tmp_path: Path) -> None:
    report = tmp_path / "crash-1.txt"
    bar = stage.window.bar
    stage.window.offer_report(report)
    assert "failed the last time" in bar.message.full_text()
    assert not bar.toast.isHidden()
    bar.action.click()
    assert opener.opened == [str(report)]
    assert bar.toast.isHidden()
    stage.window.say("Something else.")
    assert bar.action.isHidden()


def test_documents_the_desktop_hands_over_are_opened(qapp: QApplication, tmp_path: Path) -> None:
    from app.gui import _OpenedFiles

    found: list[object] = []
    opened = _OpenedFiles()
    opened.arrived.connect(found.append)
    qapp.installEventFilter(opened)
    try:
        QApplication.sendEvent(qapp, QFileOpenEvent(str(tmp_path / "a.circuit.json")))
    finally:
        qapp.removeEventFilter(opened)
    assert found == [(tmp_path / "a.circuit.json",)]


# --- the wheel over it ------------------------------------------------------------------------------------------------


def turn(panel: TourPanel, part: QWidget, notches: int) -> None:
    """As from a mouse: the window is told where, and finds out over what."""
    window = panel.window()
    QTest.wheelEvent(window.windowHandle(), part.mapTo(window, part.rect().center()), QPoint(0, -120 * notches))
    QApplication.processEvents()


def test_the_wheel_over_the_welcome_scrolls_the_page_behind(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.resize(800, 600)
    window.show_page(HOME)
    window.tour.welcome(with_demo=True)
    bar = window.home.verticalScrollBar()
    until(qtbot, lambda: bar.maximum() > 200 and panel.isVisible())
    assert panel.reader.verticalScrollBar().maximum() == 0
    for part in (panel.head, panel.words, panel):
        before = bar.value()
        turn(panel, part, 1)
        assert bar.value() > before, part
        turn(panel, part, -1)
        assert bar.value() == before
    # At its end nothing moves, and nothing else does.
    bar.setValue(bar.maximum())
    port = window.home.server.port.value()
    turn(panel, panel, 5)
    assert (bar.value(), window.home.server.port.value()) == (bar.maximum(), port)


def test_where_the_welcome_has_more_to_show_the_wheel_scrolls_it(stage: Stage, qtbot: QtBot) -> None:
    window, panel = stage.window, stage.window.tour.panel
    window.resize(560, 360)
    window.show_page(HOME)
    window.tour.welcome(with_demo=True)
    panel.words.setText("Many words. " * 80)
    panel.follow()
    until(qtbot, lambda: panel.reader.verticalScrollBar().maximum() > 0)
    body = window.centralWidget()
    assert body is not None and body.rect().contains(panel.geometry())
    # Its buttons are in reach whatever it says.
    for button in (panel.close_button, panel.action_button, panel.next_button, panel.skip_button):
        assert panel.rect().contains(QRect(button.mapTo(panel, QPoint(0, 0)), button.size()))
    own, behind = panel.reader.verticalScrollBar(), window.home.verticalScrollBar()
    before = behind.value()
    turn(panel, panel.words, 1)
    assert own.value() > 0
    for _ in range(20):
        turn(panel, panel.head, 1)
    assert own.value() == own.maximum()
    turn(panel, panel.words, 3)
    assert behind.value() == before


# --- where a panel stands ---------------------------------------------------------------------------------------------

ROOM = QRect(0, 0, 1000, 700)
PANEL = QRect(0, 0, 300, 200)


@pytest.mark.parametrize(
    ("spot", "sideways", "expected"),
    [
        (QRect(400, 100, 100, 40), False, QPoint(299, 153)),  # under
        (QRect(400, 600, 100, 40), False, QPoint(299, 386)),  # above
        (QRect(100, 100, 100, 500), False, QPoint(213, 249)),  # right
        (QRect(100, 100, 100, 40), True, QPoint(213, 19)),
        (QRect(800, 100, 100, 500), False, QPoint(486, 249)),  # left
        (QRect(0, 100, 60, 40), False, QPoint(12, 153)),  # never past the edge
    ],
)
def test_a_panel_stands_where_there_is_room(spot: QRect, sideways: bool, expected: QPoint) -> None:
    assert beside(spot, PANEL, ROOM, sideways=sideways) == expected


def test_without_room_it_covers_least() -> None:
    spot = QRect(300, 200, 700, 500)
    assert beside(spot, PANEL, ROOM) == QPoint(12, 12)


# --- the folder dialog ------------------------------------------------------------------------------------------------


def test_the_folder_dialog_offers_checks_and_settles(qtbot: QtBot, tmp_path: Path) -> None:
    settled: list[Path] = []

    def settle(folder: Path) -> str | None:
        settled.append(folder)
        return "That folder cannot be written." if folder.name == "bad" else None

    dialog = FolderDialog(
        tmp_path / "offered", settle, inside=lambda folder: folder / "own", free=lambda _: 5_000_000_000
    )
    qtbot.addWidget(dialog)
    assert dialog.folder == tmp_path / "offered"
    assert dialog.room.text() == "5.0 GB free on this disk"
    assert dialog.notice.words() == ""
    dialog.field.setText(str(tmp_path / "bad"))
    dialog.go_button.click()
    assert dialog.notice.words() == "That folder cannot be written."
    assert dialog.result() != QDialog.DialogCode.Accepted
    dialog.field.setText("  ")
    dialog.go_button.click()
    assert dialog.notice.words() == "Name a folder."
    dialog.pick(str(tmp_path / "picked"))
    dialog.go_button.click()
    assert dialog.result() == QDialog.DialogCode.Accepted
    assert settled == [tmp_path / "bad", tmp_path / "picked" / "own"]


def test_a_missing_folder_is_named(qtbot: QtBot, tmp_path: Path) -> None:
    dialog = FolderDialog(
        tmp_path, lambda _: None, inside=lambda folder: folder, free=lambda _: None, missing=Path("/media/disk/miLLM")
    )
    qtbot.addWidget(dialog)
    assert "/media/disk/miLLM" in dialog.notice.words()
    assert dialog.room.text() == ""
