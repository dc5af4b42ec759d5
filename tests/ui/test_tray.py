"""The tray icon's menu, and closing with and without it. The offscreen platform has no tray: the icon is made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QSystemTrayIcon
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.window.tray import Tray


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker) -> Stage:
    return make_stage(make_engine())


def test_where_there_is_no_tray_there_is_no_icon_and_closing_quits(qtbot: QtBot, stage: Stage) -> None:
    assert QSystemTrayIcon.isSystemTrayAvailable() is False
    assert Tray.where_there_is_one(stage.window, stage.services) is None
    stage.settings.change({"CLOSE_TO_TRAY": True})
    stage.window.close()
    assert stage.quits == ["quit"]


def test_closing_quits_unless_the_setting_says_otherwise(qtbot: QtBot, stage: Stage) -> None:
    tray = Tray(stage.window, stage.services)
    stage.settings.change({"CLOSE_TO_TRAY": True})
    until(qtbot, stage.window.stays_in_tray)
    stage.window.close()
    assert not stage.window.isVisible() and stage.quits == []
    tray.refresh()
    assert tray.window_action.text() == "Show the window"
    tray.window_action.trigger()
    assert stage.window.isVisible() and tray.window_action.text() == "Hide the window"
    tray.icon.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
    assert not stage.window.isVisible()
    tray.quit_action.trigger()
    assert stage.quits == ["quit"]


def test_by_default_closing_quits_though_there_is_a_tray(qtbot: QtBot, stage: Stage) -> None:
    Tray(stage.window, stage.services)
    stage.window.close()
    assert stage.quits == ["quit"]


def test_quitting_by_key_quits_though_closing_only_hides(qtbot: QtBot, stage: Stage) -> None:
    Tray(stage.window, stage.services)
    stage.settings.change({"CLOSE_TO_TRAY": True})
    until(qtbot, stage.window.stays_in_tray)
    stage.window.leave()
    assert stage.quits == ["quit"]


def test_the_server_is_started_and_its_address_copied(qtbot: QtBot, stage: Stage) -> None:
    tray = Tray(stage.window, stage.services)
    assert tray.server_action.text() == "Start the server"
    tray.server_action.trigger()
    until(qtbot, lambda: tray.server_action.text().startswith("Copy http://"))
    tray.server_action.trigger()
    assert QGuiApplication.clipboard().text() == stage.server.address
    assert str(stage.server.address) in tray.icon.toolTip()


def test_steering_is_switched_off_and_on(qtbot: QtBot, stage: Stage, tmp_path: Path) -> None:
    tray = Tray(stage.window, stage.services)
    assert not tray.steering_action.isEnabled() and "Steering: nothing" in tray.icon.toolTip()
    saes = stage.engine.saes
    saes.import_local(make_sae(tmp_path / "one"), sae_id="one")
    stage.engine.attachments.attach("one")
    stage.engine.hand_steering.set_value(3, 2.0)
    until(qtbot, lambda: tray.steering_action.isEnabled())
    assert tray.steering_action.text() == "Switch steering off"
    assert "by hand: 1 feature" in tray.icon.toolTip()
    tray.steering_action.trigger()
    until(qtbot, lambda: tray.steering_action.text() == "Switch steering on")
    assert stage.engine.desk.now.plan.is_empty
    tray.steering_action.trigger()
    until(qtbot, lambda: not stage.engine.desk.now.plan.is_empty)


def test_an_icon_that_was_removed_keeps_nothing_open(qtbot: QtBot, stage: Stage) -> None:
    tray = Tray(stage.window, stage.services)
    stage.settings.change({"CLOSE_TO_TRAY": True})
    until(qtbot, stage.window.stays_in_tray)
    tray.remove()
    stage.window.close()
    assert stage.quits == ["quit"] and not tray.icon.isVisible()
