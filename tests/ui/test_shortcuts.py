"""The keys of the window: what they do, and that all of them are listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, HOME, RECORDS, SETTINGS
from ui.kit.shortcuts import key_groups
from ui.program.settings import SettingsPage
from ui.window.shortcuts_dialog import ShortcutsDialog

CTRL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker) -> Stage:
    return make_stage(make_engine(folder=None))


def listed(dialog: ShortcutsDialog) -> str:
    return "\n".join(each.text() for each in dialog.findChildren(QLabel))


def test_every_key_of_the_window_is_listed(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    qtbot.keyClick(window, Qt.Key.Key_F1)
    dialog = window.findChild(ShortcutsDialog)
    assert dialog is not None and dialog.isVisible()
    words = listed(dialog)
    keys = [each.key().toString() for each in window.findChildren(QShortcut) if each.parent() is window]
    assert {"F1", "Ctrl+N", "Ctrl+T", "Ctrl+,", "Ctrl+PgUp", "Ctrl+PgDown", "Ctrl+Q", "Esc"} <= set(keys)
    numbered = {f"Ctrl+{number}" for number in range(1, 10)}
    assert numbered <= set(keys) and len(keys) == len(set(keys))
    for key in set(keys) - numbered:
        assert key in words, key
    assert "Ctrl+1 … Ctrl+9" in words and "1 Home, 2 Chat, 3 Records" in words
    qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    until(qtbot, lambda: not window.findChildren(ShortcutsDialog))


def test_settings_lists_them_too(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    qtbot.keyClick(window, Qt.Key.Key_Comma, CTRL)
    assert window.open_page == SETTINGS
    page = window.page(SETTINGS)
    assert isinstance(page, SettingsPage)
    page.keys_button.click()
    dialog = window.findChild(ShortcutsDialog)
    assert dialog is not None and "stop the answer that is being written, else end the tour" in listed(dialog)
    dialog.close()


def test_the_pages_are_turned(qtbot: QtBot, stage: Stage) -> None:
    window = stage.window
    for key, page in ((Qt.Key.Key_PageDown, CHAT), (Qt.Key.Key_PageDown, RECORDS), (Qt.Key.Key_PageUp, CHAT)):
        qtbot.keyClick(window, key, CTRL)
        assert window.open_page == page
    window.go(HOME)
    qtbot.keyClick(window, Qt.Key.Key_PageUp, CTRL)
    assert window.open_page == SETTINGS


def test_all_steering_goes_off_and_on_by_a_key(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made")
    engine.attachments.attach("made")
    engine.hand_steering.set_value(3, 4.0)
    window = make_stage(engine).window
    window.activateWindow()
    until(qtbot, lambda: window.isActiveWindow() and window.bar.switch.isEnabled() and window.bar.switch.isChecked())
    qtbot.keyClick(window, Qt.Key.Key_T, CTRL)
    until(qtbot, lambda: engine.desk.live_plan.is_empty)
    until(qtbot, lambda: not window.bar.switch.isChecked())
    qtbot.keyClick(window, Qt.Key.Key_T, CTRL)
    until(qtbot, lambda: not engine.desk.live_plan.is_empty)


def test_no_key_is_listed_twice_in_one_place() -> None:
    for head, rows in key_groups(["Home", "Chat"]):
        assert len({keys for keys, _words in rows}) == len(rows), head
