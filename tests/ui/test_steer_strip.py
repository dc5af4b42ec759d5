"""What steers stands above the composer, comparing or not, with the ways to what is missing; and the keys' way back."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, MODELS, SAES, SERVER, STEERING
from ui.kit.steer_targets import Target, TargetKind
from ui.kit.steering_text import live_words
from ui.talk.steer_strip import NOT_ATTACHED, NOT_YET, SteerStrip

SAE = "made-sae"


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    """The tiny model, an SAE in the library, and a cluster for it; nothing is attached."""
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    place = {"mistudio_sae_id": SAE, "layer": 1, "n_features": 64}
    engine.clusters.import_document(raw(cluster("Harbour", member(3, 8.0), sae=place)))
    return make_stage(engine)


def test_it_is_there_without_comparing_and_leads_to_what_is_missing(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    chat = chat_of(stage, qtbot)
    strip = chat.strip
    assert not chat.comparing and strip.isVisible()
    until(qtbot, lambda: strip.choice.findText("Harbour") > 0)
    assert strip.missing.isVisible() and strip.missing.text() == NOT_ATTACHED and not strip.dial.isVisible()
    strip.way.click()
    assert stage.window.open_page == SAES
    engine.attachments.attach(SAE)
    stage.window.show_page(CHAT)
    until(qtbot, lambda: strip.missing.text() == NOT_YET)
    strip.way.click()
    assert stage.window.open_page == STEERING
    stage.window.show_page(CHAT)
    engine.hand_steering.set_values({3: 6.0}, sae_id=SAE, layer=1)
    until(qtbot, strip.dial.isVisible)
    assert not strip.missing.isVisible() and not strip.way.isVisible()
    assert strip.now.full_text() == "now: by hand: 1 feature"
    # It turns what steers the one answer that is written.
    strip.dial.turn_to(0.5)
    until(qtbot, lambda: dict(engine.desk.state.entry((SAE, 1)).values) == {3: 3.0})


def test_a_cluster_that_stands_at_zero_says_so_and_has_a_way_back(qtbot: QtBot, stage: Stage) -> None:
    engine = stage.engine
    engine.attachments.attach(SAE)
    chat = chat_of(stage, qtbot)
    strip = chat.strip
    until(qtbot, lambda: strip.choice.findText("Harbour") > 0)
    strip.choice.activated.emit(strip.choice.findText("Harbour"))
    until(qtbot, lambda: strip.dial.isVisible() and strip.dial.value() == 0.5 and not chat.dial.busy)
    assert strip.notice.words() == ""
    strip.dial.turn_to(0.0)
    until(qtbot, lambda: engine.desk.live_plan.is_empty and not chat.dial.busy)
    # The bar and the strip name what is in force and adds nothing.
    assert live_words(engine.desk.now) == "nothing (cluster Harbour at λ 0)"
    until(qtbot, lambda: strip.now.full_text() == "now: nothing (cluster Harbour at λ 0)")
    # Chosen again some other day, it is as it was left.
    engine.profiles.deactivate(chat.dial.chosen[1])
    until(qtbot, lambda: chat.dial.chosen[1] == "")
    strip.choice.activated.emit(strip.choice.findText("Harbour"))
    until(qtbot, lambda: strip.notice.words() == "Its dial stands at λ 0, so it adds nothing.")
    button = strip.say_zero(strip.notice.words())
    assert button.text() == "Back to the document's own, λ 0.5"
    stage.window.activateWindow()
    until(qtbot, stage.window.isActiveWindow)
    button.setFocus()
    button.click()
    # The button goes, and the keys with it to where one types.
    assert chat.composer.field.hasFocus()
    until(qtbot, lambda: not engine.desk.live_plan.is_empty and not chat.dial.busy)
    assert strip.dial.value() == 0.5 and strip.notice.words() == ""


def test_after_the_mouse_one_types_and_with_keys_one_stays(qtbot: QtBot, stage: Stage) -> None:
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values({3: 6.0}, sae_id=SAE, layer=1)
    chat = chat_of(stage, qtbot)
    stage.window.activateWindow()
    until(qtbot, stage.window.isActiveWindow)
    strip = chat.strip
    until(qtbot, strip.dial.isVisible)
    field, track = chat.composer.field, strip.dial.track
    middle = QPoint(round(track.place(strip.dial.value())), track.height() // 2)
    qtbot.mousePress(track, Qt.MouseButton.LeftButton, pos=middle)
    assert track.hasFocus()
    qtbot.mouseMove(track, middle + QPoint(30, 0))
    qtbot.mouseRelease(track, Qt.MouseButton.LeftButton, pos=middle + QPoint(30, 0))
    assert field.hasFocus()
    tick = QPoint(round(track.place(1.0)), 2)
    track.setFocus()
    qtbot.mouseClick(strip.dial.marks, Qt.MouseButton.LeftButton, pos=tick)
    assert strip.dial.value() == 1.0 and field.hasFocus()
    # By keys the dial keeps them, and a number that is typed too.
    track.setFocus()
    qtbot.keyClick(track, Qt.Key.Key_Right)
    assert track.hasFocus()
    qtbot.mouseClick(strip.dial.field.lineEdit(), Qt.MouseButton.LeftButton)
    assert strip.dial.field.hasFocus()
    strip.choice.setFocus()
    qtbot.keyClick(strip.choice, Qt.Key.Key_Down)
    assert strip.choice.hasFocus()
    # From the list by the mouse: letters are a message then, and no search for something else to steer with.
    qtbot.mousePress(strip.choice, Qt.MouseButton.LeftButton)
    strip.choice.hidePopup()
    strip.choice.activated.emit(0)
    assert field.hasFocus()


def test_the_parts_of_the_bar_open_what_they_name(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    chat_of(stage, qtbot)
    bar = window.bar
    for cell, page, name in (
        (bar.model, MODELS, "Open the models"),
        (bar.saes, SAES, "Open the SAEs"),
        (bar.steering, STEERING, "Open the steering"),
        (bar.server, SERVER, "Open the server's page"),
    ):
        assert cell.accessibleName().endswith(name) and cell.value.full_text() in cell.accessibleName()
        for press in (
            lambda cell=cell: qtbot.mouseClick(cell, Qt.MouseButton.LeftButton),
            lambda cell=cell: qtbot.keyClick(cell, Qt.Key.Key_Return),
            lambda cell=cell: qtbot.keyClick(cell, Qt.Key.Key_Space),
        ):
            window.show_page(CHAT)
            press()
            assert window.open_page == page
    # A click on its words is a click on it.
    window.show_page(CHAT)
    inside = bar.steering.value.mapTo(window, bar.steering.value.rect().center())
    assert window.childAt(inside) is bar.steering
    assert bar.steering.focusPolicy() & Qt.FocusPolicy.TabFocus
    # What it shows changes, and so does its name.
    stage.engine.attachments.attach(SAE)
    stage.engine.hand_steering.set_values({3: 6.0}, sae_id=SAE, layer=1)
    until(qtbot, lambda: bar.steering.accessibleName() == "Steering now: by hand: 1 feature. Open the steering")
    assert f"{SAE} @ layer 1" in bar.saes.toolTip()
    QApplication.processEvents()


def test_nothing_is_said_before_it_is_known_what_steers(qtbot: QtBot) -> None:
    strip = SteerStrip()
    qtbot.addWidget(strip)
    strip.show()
    assert strip.missing.isHidden() and strip.way.isHidden()
    strip.show_target(Target(TargetKind.NONE), attached=True)
    assert strip.missing.text() == NOT_YET and not strip.missing.isHidden() and not strip.way.isHidden()
