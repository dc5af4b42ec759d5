"""The frame: pages, keys, the bar, the place of the window, and closing."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.events import LibraryStateChanged, ServerStateChanged
from engine.library.conversations import StoredMessage
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage, open_stage
from ui.context.page_context import CHAT, GROUPS, HOME, STEERING
from ui.kit import theme
from ui.window.main_window import GEOMETRY_KEY
from ui.window.top_bar import shares


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, qtbot: QtBot) -> Stage:
    made = make_stage(make_engine(folder=None))
    made.window.activateWindow()
    until(qtbot, made.window.isActiveWindow)
    return made


def test_the_window_is_there_before_any_model(qtbot: QtBot, stage: Stage) -> None:
    assert stage.window.isVisible()
    assert stage.window.windowTitle() == "miLLM Desktop"
    assert stage.window.stack.currentWidget() is stage.window.home
    assert not stage.window.grab().isNull()


def test_keys_lead_everywhere(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    control = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(window, Qt.Key.Key_2, control)
    assert window.open_page == CHAT
    assert window.chat.composer.field.hasFocus()
    qtbot.keyClick(window, Qt.Key.Key_1, control)
    assert window.open_page == HOME
    assert window.navigation.button(HOME).isChecked()
    qtbot.keyClick(window, Qt.Key.Key_L, control)
    assert window.open_page == CHAT
    window.chat.settings.system.setPlainText("be brief")
    window.chat.settings.system.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_N, control)
    assert window.chat.settings.system.toPlainText() == ""
    assert window.chat.composer.field.hasFocus()
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert window.isVisible()


def test_the_first_steps_lead_to_their_pages(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    steps = window.home.steps
    for button, page in ((steps.chat_button, CHAT), (steps.steering_button, STEERING)):
        window.show_page(HOME)
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        assert window.open_page == page
        assert window.navigation.button(page).isChecked()


def test_shift_enter_breaks_the_line_and_enter_alone_does_not(qtbot: QtBot, stage: Stage) -> None:
    stage.window.show_page(CHAT)
    field = stage.window.chat.composer.field
    qtbot.keyClicks(field, "one")
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(field, "two")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert field.toPlainText() == "one\ntwo"


def test_the_field_grows_with_its_lines_up_to_a_limit(qtbot: QtBot, stage: Stage) -> None:
    stage.window.show_page(CHAT)
    field = stage.window.chat.composer.field
    one = field.height()
    field.setPlainText("a\nb\nc")
    three = field.height()
    assert one < three
    field.setPlainText("\n".join("x" * 40))
    assert three < field.height() < 12 * one


def test_control_q_asks_the_program_to_end_once(qtbot: QtBot, stage: Stage) -> None:
    qtbot.keyClick(stage.window, Qt.Key.Key_Q, Qt.KeyboardModifier.ControlModifier)
    until(qtbot, lambda: not stage.window.isVisible())
    stage.window.close()
    assert stage.quits == ["quit"]


def test_the_window_comes_back_where_it_was(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    first = make_stage(engine, size=(700, 560))
    first.window.move(40, 50)
    place = first.window.geometry()
    assert place.size().toTuple() == (700, 560)
    first.window.close()
    until(qtbot, lambda: engine.library.state.get(GEOMETRY_KEY) is not None)
    second = open_stage(engine, first.services.data_dir, size=None)
    qtbot.addWidget(second.window)
    assert second.window.geometry() == place
    second.window.close()
    assert second.bridge.shutdown(30)


def test_closing_does_not_wait_for_the_library(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    engine = make_engine(folder=None)
    stage = make_stage(engine, size=(700, 560))
    until(qtbot, lambda: not stage.bridge._busy)
    with closing(sqlite3.connect(engine.library.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        stage.window.close()
        # Somebody else still has the library, so nothing can have been written.
        assert other.in_transaction and stage.quits == ["quit"]
        assert engine.library.state.get(GEOMETRY_KEY) is None
        other.execute("ROLLBACK")
    until(qtbot, lambda: engine.library.state.get(GEOMETRY_KEY) is not None)


@pytest.mark.parametrize("kept", ["%%%", "bm9uc2Vuc2U=", 17, None])
def test_an_unusable_place_is_ignored(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, kept: object
) -> None:
    engine = make_engine(folder=None)
    engine.library.state.set(GEOMETRY_KEY, kept)
    stage = make_stage(engine)
    assert stage.window.isVisible()


def test_a_narrow_window_shows_icons_alone_and_nothing_beside_the_messages(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    window.show_page(CHAT)
    window.resize(1280, 800)
    assert window.chat.conversations.isVisible() and window.chat.settings.isVisible()
    window.resize(760, 560)
    assert window.navigation.width() == 60
    assert window.navigation.button(CHAT).accessibleName() == "Chat"
    assert not window.chat.settings.isVisible()
    window.chat.settings_button.click()
    assert window.chat.settings.isVisible() and not window.chat.conversations.isVisible()
    window.chat.settings_button.click()
    assert not window.chat.settings.isVisible()
    window.resize(1280, 800)
    window.chat.settings_button.click()
    assert window.chat.conversations.isVisible() and window.chat.settings.isVisible()
    assert window.navigation.width() > 60


@pytest.mark.parametrize("size", [(1280, 800), (960, 600), (640, 440)])
def test_no_page_is_wider_than_the_window(qtbot: QtBot, stage: Stage, size: tuple[int, int]) -> None:
    window = stage.window
    for page in (CHAT, HOME):
        window.show_page(page)
        window.resize(*size)
        assert window.size().toTuple() == size
    until(qtbot, lambda: window.home.horizontalScrollBar().maximum() == 0)


def test_the_bar_copies_the_address(qtbot: QtBot, stage: Stage) -> None:
    stage.server.start(0)
    address = stage.server.wait_ready(60)
    bar = stage.window.bar
    until(qtbot, lambda: bar.server.value.full_text() == address)
    bar.copy.click()
    assert QGuiApplication.clipboard().text() == address
    assert "check" in bar.copy.icon_name


def test_what_went_wrong_stays_until_dismissed(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.events.publish(ServerStateChanged("error", None, "Port 8000 is taken by another program."))
    bar = stage.window.bar
    until(qtbot, lambda: bar.message.full_text() == "Port 8000 is taken by another program.")
    assert not bar._timer.isActive()
    assert bar.toast.isVisible() and bar.toast.parentWidget() is bar.parentWidget()
    assert bar.toast.geometry().top() >= bar.geometry().bottom()
    bar.dismiss.click()
    assert bar.message.full_text() == ""
    assert not bar.toast.isVisible()


def test_a_lost_library_is_told_until_it_is_well(qtbot: QtBot, stage: Stage) -> None:
    bar = stage.window.bar
    stage.engine.events.publish(LibraryStateChanged("lost", "The library was deleted. Put it back."))
    until(qtbot, lambda: bar.message.full_text() == "The library was deleted. Put it back.")
    assert not bar._timer.isActive()
    stage.engine.events.publish(LibraryStateChanged("well"))
    until(qtbot, lambda: bar.message.full_text() == "The library is where it was: changes are kept again.")


def test_background_failures_nobody_caught_are_told(
    qtbot: QtBot, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def task() -> None:
        raise OSError("No space left on device")

    stage.bridge.run_in_background(task)
    until(qtbot, lambda: "No space left on device" in stage.window.bar.message.full_text())
    assert "background work failed" in caplog.text


def test_the_whole_window_changes_with_the_scheme(qtbot: QtBot, stage: Stage) -> None:
    light = stage.window.grab().toImage().pixelColor(400, 790)
    theme.current().force(Qt.ColorScheme.Dark)
    dark = stage.window.grab().toImage().pixelColor(400, 790)
    assert light.lightness() > 200
    assert dark.lightness() < 60


def test_the_last_conversations_can_be_opened_from_home(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    engine = make_engine(folder=None)
    engine.library.conversations.create("Boats", "", [StoredMessage("user", "how do ships float", {})])
    stage = make_stage(engine, size=(1280, 1000))
    recent = stage.window.home.recent
    until(qtbot, lambda: len(recent.tiles) == 1 and recent.isVisible())
    recent.tiles[0].click()
    assert stage.window.open_page == CHAT
    until(qtbot, lambda: [m.content for m in stage.window.chat.session.messages] == ["how do ships float"])


class StrayWindows(QObject):
    """Notes each widget that is shown as a window of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.seen.append(type(watched).__name__)
        return False


@pytest.mark.parametrize("key", [spec.key for _, specs in GROUPS for spec in specs])
def test_a_page_built_late_opens_no_window_of_its_own_and_fits(
    qtbot: QtBot, qapp: QApplication, make_engine: EngineMaker, make_stage: StageMaker, key: str
) -> None:
    window = make_stage(make_engine(folder=None)).window
    window.activateWindow()
    until(qtbot, window.isActiveWindow)
    strays = StrayWindows()
    qapp.installEventFilter(strays)
    window.show_page(key)
    qapp.removeEventFilter(strays)
    assert strays.seen == []
    assert qapp.activeWindow() is window
    assert window.navigation.button(key).isChecked()
    assert window.size().toTuple() == (1280, 800)


@pytest.mark.parametrize(
    ("wanted", "room", "widths"),
    [
        ((190, 190, 330, 210), 1000, [190, 190, 330, 210]),
        ((190, 190, 330, 210), 900, [170, 190, 330, 210]),
        ((190, 190, 330, 210), 750, [120, 100, 330, 200]),
        ((190, 190, 330, 210), 500, [110, 100, 170, 120]),
        ((190, 190, 330, 210), 100, [60, 60, 60, 60]),
    ],
)
def test_the_bar_cuts_the_model_first_and_what_steers_last(wanted: list[int], room: int, widths: list[int]) -> None:
    assert shares(wanted, room) == widths


def test_the_bar_gives_room_to_the_words_it_shows_now(qtbot: QtBot, stage: Stage) -> None:
    bar = stage.window.bar
    bar.steering.value.set_text("cluster Demo: sea, ships and sailing · λ 1")
    bar.show_server("running", "http://127.0.0.1:8000/v1")
    until(qtbot, lambda: bar.steering.value.text() == "cluster Demo: sea, ships and sailing · λ 1")
    bar.steering.value.set_text("nothing")
    bar.show_server("running", "http://127.0.0.1:8000/v1")
    assert bar.steering.width() < 140
    assert bar.server.value.text() == "http://127.0.0.1:8000/v1"


def test_what_passes_by_itself_moves_nothing(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    top = window.stack.geometry().top()
    window.say("tiny-llama is loaded.")
    passing = window.bar.passing
    assert passing is not None and passing.isVisible()
    assert passing.words.text() == "tiny-llama is loaded."
    assert not window.bar.toast.isVisible() and window.stack.geometry().top() == top
    window.resize(900, 640)
    assert window.centralWidget().rect().contains(passing.geometry())
    qtbot.mouseClick(passing, Qt.MouseButton.LeftButton)
    assert not passing.isVisible()
    window.say("This one stays.", lasting=True)
    assert window.bar.toast.isVisible() and not passing.isVisible()


def test_the_keyboard_goes_on_from_the_page_that_was_opened(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    window.navigation.button(HOME).setFocus()
    window.go(STEERING)
    assert window.navigation.button(STEERING).hasFocus()
