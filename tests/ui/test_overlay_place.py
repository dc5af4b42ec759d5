"""What lies over a page covers no control: the passing word and the welcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QPlainTextEdit, QPushButton, QSlider, QWidget
from pytestqt.qtbot import QtBot

from engine.events import ModelLoadComplete
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.full import full_stage, open_page, settle
from tests.ui.look import until
from ui.context.page_context import CHAT, HOME
from ui.kit.basics import pill
from ui.kit.overlay_place import controls_in, free_place
from ui.window.main_window import MainWindow
from ui.window.toast import Toast

ROOM = QRect(0, 0, 400, 300)


@pytest.mark.parametrize(
    ("taken", "wanted", "found"),
    [
        ([], QPoint(300, 260), QPoint(300, 260)),
        # Never out of the room.
        ([], QPoint(900, -5), QPoint(300, 0)),
        # Straight up, off what is there.
        ([QRect(310, 250, 20, 20)], QPoint(300, 260), QPoint(300, 192)),
        # Nowhere is free: the corner that covers least.
        ([QRect(0, 0, 400, 300), QRect(0, 0, 300, 300)], QPoint(0, 0), QPoint(300, 0)),
    ],
)
def test_the_nearest_place_that_covers_nothing(taken: list[QRect], wanted: QPoint, found: QPoint) -> None:
    assert free_place(QSize(100, 40), wanted, ROOM, taken) == found


def test_what_must_not_be_covered(qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    page.resize(600, 400)
    over = QWidget(page)
    reading = QPlainTextEdit(page)
    reading.setReadOnly(True)
    hidden = QPushButton("hidden", page)
    for widget, at in ((QPushButton("press", page), 0), (QLineEdit(page), 50), (pill("loaded"), 100), (reading, 150)):
        widget.setParent(page)
        widget.setGeometry(10, at, 80, 20)
    QLabel("words", page).setGeometry(10, 350, 80, 20)
    QPushButton("close", over).setGeometry(0, 0, 20, 20)
    page.show()
    hidden.hide()
    found = sorted(each.top() + 6 for each in controls_in(page, (over,)))
    assert found == [0, 50, 100]


def test_what_is_covered_already_counts_whole(qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    page.resize(600, 400)
    frame = QWidget(page)
    frame.setObjectName("frame")
    frame.setGeometry(100, 100, 200, 50)
    QPushButton("press", frame).setGeometry(20, 30, 80, 40)  # the frame shows its upper half
    over = QWidget(page)
    over.setAutoFillBackground(True)
    over.setGeometry(150, 0, 300, 300)
    page.show()
    assert controls_in(page, (over,)) == [QRect(120, 130, 80, 20).adjusted(-6, -6, 6, 6)]


def body_of(window: MainWindow) -> QWidget:
    body = window.centralWidget()
    assert body is not None
    return body


def covered(window: MainWindow, over: QWidget) -> list[QRect]:
    body = body_of(window)
    panel = window.tour.panel
    assert window.bar.passing is not None
    controls = controls_in(body, (panel, window.bar.passing))
    assert len(controls) > 20  # the navigation alone has fourteen
    return [each for each in controls if over.geometry().intersects(each)]


def test_the_welcome_and_the_passing_word_cover_no_control(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    window = make_stage(make_engine()).window
    window.show_page(HOME)
    word = window.bar.passing
    assert word is not None
    window.say("The model is loaded.")
    until(qtbot, word.isVisible)
    assert covered(window, word) == []
    for with_demo in (True, False):
        window.tour.welcome(with_demo=with_demo)
        QApplication.processEvents()
        window.tour.panel.follow()
        assert covered(window, window.tour.panel) == []
        assert body_of(window).rect().contains(window.tour.panel.geometry())
    window.tour.panel.end()
    # In Chat the lower right corner is the button that sends and stops.
    window.show_page(CHAT)
    QApplication.processEvents()
    window.say("The model is loaded.")
    assert window.chat.composer.button.isVisible()
    assert covered(window, word) == []


def seen_in(window: MainWindow, part: QWidget) -> QRect:
    body = body_of(window)
    return QRect(part.mapTo(body, QPoint(0, 0)), part.size())


@pytest.mark.parametrize("size", [(800, 600), (1280, 800)], ids=["small", "usual"])
def test_the_word_that_a_model_is_loaded_keeps_off_what_steers(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path, size: tuple[int, int]
) -> None:
    stage = full_stage(make_stage, make_engine(), tmp_path / "saes", "Harbour", size=size)
    window = stage.window
    open_page(stage, qtbot, CHAT)
    strip, word = window.chat.strip, window.bar.passing
    assert word is not None
    until(qtbot, strip.dial.isVisible)
    settle(stage)
    resident = stage.engine.shelf.resident
    assert resident is not None
    loaded = ModelLoadComplete(resident.record.id, resident.record.name, 1.0)
    window._on_event(loaded)
    assert word.isVisible()
    settle(stage)
    assert not word.geometry().intersects(seen_in(window, strip.dial))
    assert not word.geometry().intersects(seen_in(window, window.chat.composer.button))
    for sae_id in ("sae-one", "sae-two"):
        stage.engine.attachments.detach(sae_id)
    until(qtbot, strip.way.isVisible)
    settle(stage)
    window._on_event(loaded)
    assert word.isVisible()
    assert not word.geometry().intersects(seen_in(window, strip))
    # What comes while the word is there is not covered for longer than it takes to see it.
    came = QPushButton("It came later", body_of(window))
    came.setGeometry(word.geometry().adjusted(0, 4, -150, -4))
    came.show()
    came.lower()
    until(qtbot, lambda: not word.geometry().intersects(came.geometry()))
    assert word.isVisible()


def test_the_passing_word_makes_way_for_what_comes_under_it(qtbot: QtBot) -> None:
    page = QWidget()
    qtbot.addWidget(page)
    page.resize(900, 600)
    word = Toast(page)
    page.show()
    word.show_words("The model is loaded.")
    corner = word.geometry()
    assert corner.bottomRight().x() > 850 and corner.bottomRight().y() > 550
    dial = QSlider(Qt.Orientation.Horizontal, page)  # as a page that fills itself after it is in front
    dial.setGeometry(corner)
    dial.show()
    until(qtbot, lambda: not word.geometry().intersects(dial.geometry()))
    assert word.isVisible() and page.rect().contains(word.geometry())


@pytest.mark.parametrize("with_demo", [True, False], ids=["offers the demo", "only welcomes"])
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "fresh"])
@pytest.mark.parametrize("size", [(800, 600), (1024, 700), (1280, 800)], ids=lambda size: f"{size[0]}")
def test_the_welcome_covers_no_word_of_what_to_do_first(
    qtbot: QtBot,
    make_engine: EngineMaker,
    make_stage: StageMaker,
    size: tuple[int, int],
    loaded: bool,
    with_demo: bool,
) -> None:
    stage = make_stage(make_engine() if loaded else make_engine(None))
    window, panel = stage.window, stage.window.tour.panel
    window.resize(*size)
    window.show_page(HOME)
    steps = window.home.steps
    until(qtbot, lambda: steps.load.done if loaded else steps.load.button.isEnabled())
    until(qtbot, lambda: window.home._ordered is False)
    settle(stage)
    window.tour.welcome(with_demo=with_demo)
    settle(stage)
    panel.follow()
    for step in (steps.load, steps.attach):
        seen = seen_in(window, step)
        assert not panel.geometry().intersects(seen), step.words.text()
        assert body_of(window).rect().contains(seen), "the step is in view whole"
    # The words of the third, and its way on.
    assert not panel.geometry().intersects(seen_in(window, steps.dial.words))
    assert not panel.geometry().intersects(seen_in(window, steps.dial.button))
    assert body_of(window).rect().contains(panel.geometry())
    if size[0] == 1280:
        assert covered(window, panel) == []
