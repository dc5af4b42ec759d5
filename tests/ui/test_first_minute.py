"""From nothing to steered words: two clicks and Enter, whatever else an impatient person presses meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from engine.engine import Engine
from engine.errors import DownloadFailed
from engine.events import ModelLoadProgress, ModelsChanged
from engine.library.records import EngineKind, ModelRecord, ModelSource
from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, HOME
from ui.context.services import Progress
from ui.kit.basics import Button
from ui.talk.compare_message import CompareMessage

SET = "Demo: layers 10, 15 and 20"
INSTALL = "Install the demo model"


class Installation:
    """Stands in for the fetch alone: counts how often it is begun, and puts a tiny model and its pack on the shelf."""

    def __init__(self, engine: Engine, checkpoint: Path, made: Path) -> None:
        self._engine, self._checkpoint, self._made = engine, checkpoint, made
        self.begun = 0
        self.go = threading.Event()
        self.fails = False

    def __call__(self, progress: Progress) -> None:
        self.begun += 1
        progress(52.0, "Unpacking")
        assert self.go.wait(60)
        if self.fails:
            raise DownloadFailed("The index could not be reached.", remedy="Try again.")
        engine = self._engine
        engine.library.models.add(
            ModelRecord("demo", ModelSource.DEMO, EngineKind.TRANSFORMERS, local_path=str(self._checkpoint))
        )
        engine.saes.import_local(make_sae(self._made, layer=1), sae_id="made-sae")
        engine.attachments.save_set(SET, [("made-sae", 1)])
        place = {"mistudio_sae_id": "made-sae", "layer": 1, "n_features": 64}
        engine.clusters.import_document(raw(cluster("Demo: food and cooking", member(3, 8.0), sae=place)))
        engine.events.publish(ModelsChanged())


Start = Callable[[], tuple[Stage, Installation]]


@pytest.fixture
def start(make_engine: EngineMaker, make_stage: StageMaker, tiny_checkpoint: Path, tmp_path: Path) -> Start:
    """A function that opens the window of a person who has nothing yet."""

    def begin() -> tuple[Stage, Installation]:
        engine = make_engine(folder=None)
        installation = Installation(engine, tiny_checkpoint, tmp_path / "made")
        return make_stage(engine, install_demo=installation), installation

    return begin


def buttons(widget: QWidget, text: str) -> list[Button]:
    return [each for each in widget.findChildren(Button) if each.text().strip() == text and each.isVisible()]


def test_two_clicks_and_enter(start: Start, qtbot: QtBot) -> None:
    stage, installation = start()
    window, engine = stage.window, stage.engine
    until(qtbot, lambda: window.home.steps.load.button.isEnabled() and window.home.model.demo_button.isVisible())
    window.home.steps.load.button.click()
    installation.go.set()
    until(qtbot, lambda: buttons(window.home.model, "Compare in Chat"))
    assert engine.shelf.resident is not None and engine.shelf.resident.record.name == "demo"
    assert [each.layer for each in engine.desk.state.attachments] == [1]
    assert engine.desk.live_plan.is_empty, "nothing steers before it is asked for"
    buttons(window.home.model, "Compare in Chat")[0].click()
    chat = window.chat
    assert window.open_page == CHAT
    assert chat.composer.draft() == "Describe a place you like."
    chat.settings.length.setValue(4)
    # At once, before the cluster that was chosen can be in force.
    assert chat.dial.choosing
    qtbot.keyClick(chat.composer.field, Qt.Key.Key_Return)
    until(qtbot, lambda: chat.session.messages and not chat.busy)
    view = chat.messages.view(1)
    assert isinstance(view, CompareMessage)
    answer = chat.session.messages[1]
    assert answer.plain is not None
    steered, plain = (side.details["steering"] for side in (answer, answer.plain))
    assert steered["items"][0]["name"] == "Demo: food and cooking"  # type: ignore[index]
    assert steered["items"][0]["strengths"] == {"3": 10.0}  # type: ignore[index]  # 8 at λ 1.25
    assert plain["text"] == "none"  # type: ignore[index]


@pytest.mark.parametrize("size", [(1280, 800), (800, 600)], ids=["usual", "small"])
def test_the_way_to_the_dial_is_in_view_from_the_start(start: Start, qtbot: QtBot, size: tuple[int, int]) -> None:
    stage, installation = start()
    window = stage.window
    window.resize(*size)
    home, step = window.home, window.home.steps.dial

    def in_view() -> bool:
        seen = QRect(step.button.mapTo(home.viewport(), QPoint(0, 0)), step.button.size())
        return bool(home.viewport().rect().contains(seen)) and home.verticalScrollBar().value() == 0

    until(qtbot, lambda: home.steps.load.button.isEnabled() and step.button.isVisible())
    until(qtbot, in_view)
    window.demo.begin()
    until(qtbot, lambda: window.demo.stage == "Unpacking")
    assert in_view()
    installation.go.set()
    until(qtbot, lambda: step.button.isEnabled() and buttons(home.model, "Compare in Chat"))
    until(qtbot, in_view)
    # Once it was done, the model and the server stand first: not before a person looks elsewhere and back.
    step.button.click()
    window.chat.settings.length.setValue(2)
    qtbot.keyClick(window.chat.composer.field, Qt.Key.Key_Return)
    until(qtbot, lambda: window.chat.session.messages and not window.chat.busy)
    until(qtbot, lambda: step.done)
    window.go(HOME)
    until(qtbot, lambda: home.model.mapTo(home, QPoint(0, 0)).y() < home.steps.mapTo(home, QPoint(0, 0)).y())


def test_one_bar_goes_all_the_way_and_never_back(start: Start, qtbot: QtBot) -> None:
    stage, installation = start()
    window, card = stage.window, stage.window.home.model
    window.resize(1280, 800)
    seen: list[tuple[int, str]] = []

    def look() -> None:
        assert not (card.progress.isVisible() and card.demo_progress.isVisible()), "one bar, not two"
        if card.demo_progress.isVisible():
            assert not card.demo_progress.visibleRegion().isEmpty(), "in view at 1280 x 800 without scrolling"
            seen.append((card.demo_progress.value(), card.demo_stage.text()))

    window.demo.changed.connect(look)
    window.demo.begin()
    # A quick machine tells several steps at once, and only the last of them is shown: each that is looked for is held.
    until(qtbot, lambda: (31, "Unpacking") in seen)
    looked = threading.Event()
    stage.engine.events.subscribe(lambda event: looked.wait(60) if event.progress >= 90 else None, ModelLoadProgress)
    installation.go.set()
    # What follows the installation is told as well, from 60 % on.
    until(qtbot, lambda: seen[-1][0] >= 95)
    assert seen[-1][1] != "Unpacking"
    looked.set()
    until(qtbot, lambda: stage.engine.desk.state.attachments and not window.demo.running)
    until(qtbot, lambda: not card.demo_progress.isVisible())
    values = [value for value, _stage in seen]
    assert values == sorted(values) and values[0] == 0
    assert not card.progress.isVisible() and not card.demo_progress.isVisible()


def test_what_is_written_on_is_not_sent_by_itself(start: Start, qtbot: QtBot) -> None:
    stage, installation = start()
    window = stage.window
    installation.go.set()
    window.demo.begin()
    until(qtbot, lambda: buttons(window.home.model, "Compare in Chat"))
    buttons(window.home.model, "Compare in Chat")[0].click()
    chat = window.chat
    qtbot.keyClick(chat.composer.field, Qt.Key.Key_Return)
    qtbot.keyClicks(chat.composer.field, " And why?")
    until(qtbot, lambda: not chat.dial.busy and stage.engine.desk.state.profile is not None)
    assert chat.session.messages == []
    assert chat.composer.draft() == "Describe a place you like. And why?"


def test_whatever_is_pressed_meanwhile_there_is_one_installation(start: Start, qtbot: QtBot) -> None:
    stage, installation = start()
    window = stage.window
    window.tour.welcome(with_demo=True)
    until(qtbot, lambda: len(buttons(window, INSTALL)) == 3)
    three = buttons(window, INSTALL)
    for button in three:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
        # The second click of a double click, wherever it lands now.
        button.clicked.emit()
    until(qtbot, lambda: installation.begun and window.demo.stage == "Unpacking")
    assert buttons(window, INSTALL) == [], "no button offers what is under way"
    words = "The demo model is being installed: Unpacking, 31\N{NO-BREAK SPACE}%."
    assert window.home.steps.load.words.text() == words
    assert (
        window.home.model.demo_stage.text() == "Unpacking" and window.home.model.demo_progress.value() == 31
    )  # 52 of its 60 %
    add = window.home.model.add_button.geometry()
    assert add.left() >= window.home.model.demo_button.sizeHint().width(), "nothing slides under the next click"
    window.go(CHAT)
    until(qtbot, lambda: window.chat.composer.gate.words().startswith(words))
    assert window.chat.composer.gate_button is None
    installation.go.set()
    until(qtbot, lambda: stage.engine.desk.state.attachments and not window.demo.running)
    assert installation.begun == 1
    until(qtbot, lambda: window.chat.composer.gate.isHidden())


def test_a_failure_is_said_once_logged_and_can_be_tried_again(
    start: Start, qtbot: QtBot, caplog: pytest.LogCaptureFixture
) -> None:
    stage, installation = start()
    window = stage.window
    installation.fails = True
    installation.go.set()
    with caplog.at_level(logging.ERROR):
        window.demo.begin()
        window.demo.begin()
        until(qtbot, lambda: window.home.model.notice.words() == "The index could not be reached. Try again.")
    assert "the demo model could not be installed" in caplog.text
    assert "The index could not be reached." in caplog.text
    caplog.clear()
    until(qtbot, lambda: len(buttons(window, INSTALL)) == 2)
    installation.fails = False
    window.home.steps.load.button.click()
    until(qtbot, lambda: stage.engine.desk.state.attachments)
    assert installation.begun == 2


def test_another_model_in_memory_stays_there(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    engine = make_engine()
    installation = Installation(engine, checkpoint("qwen2"), tmp_path / "made")
    stage = make_stage(engine, install_demo=installation)
    installation.go.set()
    stage.window.demo.begin()
    until(qtbot, lambda: installation.begun and not stage.window.demo.running)
    assert engine.shelf.resident is not None and engine.shelf.resident.record.name == "tiny-llama"
    assert not engine.desk.state.attachments


def test_the_welcome_stays_on_its_page_and_goes_when_the_model_is_there(start: Start, qtbot: QtBot) -> None:
    stage, installation = start()
    window, panel = stage.window, stage.window.tour.panel
    window.tour.welcome(with_demo=True)
    assert panel.isVisible()
    window.go(CHAT)
    assert not panel.isVisible() and window.tour.running
    window.go(HOME)
    assert panel.isVisible()
    panel.action_button.click()
    until(qtbot, lambda: "Unpacking, 31" in panel.words.text())
    for covered in (window.home.model.demo_progress, window.bar):
        seen = covered.rect().translated(covered.mapTo(window.centralWidget(), covered.rect().topLeft()))
        assert not panel.geometry().intersects(seen)
    installation.go.set()
    until(qtbot, lambda: stage.engine.desk.state.attachments and not window.tour.running)
    assert not panel.isVisible()


def test_a_button_that_goes_takes_neither_focus_nor_view_along(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(load=False), size=(900, 480))
    window, home = stage.window, stage.window.home
    window.activateWindow()
    until(qtbot, window.isActiveWindow)
    step = home.steps.load
    until(qtbot, lambda: step.button.isEnabled() and home.verticalScrollBar().maximum() > 0)
    home.ensureWidgetVisible(step.button)
    step.button.setFocus()
    at = home.verticalScrollBar().value()
    step.button.click()
    until(qtbot, lambda: step.done)
    assert home.verticalScrollBar().value() == at
    assert QApplication.focusWidget() is step
