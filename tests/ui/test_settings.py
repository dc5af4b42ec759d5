"""The Settings page on a real settings file: shown, changed, refused, locked, waiting; the hub's token; the theme."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QComboBox, QLineEdit
from pytestqt.qtbot import QtBot

from app.settings import Settings
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import SETTINGS
from ui.kit.basics import Button
from ui.program.setting_row import shown
from ui.program.settings import SettingsPage


def open_page(stage: Stage, qtbot: QtBot) -> SettingsPage:
    stage.window.show_page(SETTINGS)
    page = stage.window.page(SETTINGS)
    assert isinstance(page, SettingsPage)
    until(qtbot, lambda: page.rows)
    return page


def field(page: SettingsPage, name: str) -> QLineEdit:
    editor = page.rows[name].editor
    assert isinstance(editor, QLineEdit)
    return editor


def type_into(page: SettingsPage, qtbot: QtBot, name: str, text: str) -> None:
    """As a person does: select what is there, type, press Enter."""
    editor = field(page, name)
    editor.setFocus()
    editor.selectAll()
    qtbot.keyClicks(editor, text)
    qtbot.keyClick(editor, Qt.Key.Key_Return)


def kept(tmp_path: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))
    return content


def test_every_setting_is_shown_with_default_variable_and_when_it_counts(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    assert set(page.rows) == set(Settings.model_fields)
    row = page.rows["MAX_LANES"]
    assert row.description.text() == "How many answers are written at the same time."
    assert row.facts.text() == "default 8 · a whole number from 1 to 256 · MILLM_MAX_LANES · counts at once"
    assert page.rows["DEVICE"].facts.text().endswith("counts at the next load of a model")
    assert page.rows["CORS_ORIGINS"].facts.text().startswith("default none · with commas between them")
    assert page.rows["QUEUE_DURATION_WINDOW"].facts.text().endswith("counts when the program is started again")


def test_a_change_is_written_and_counts_at_once_where_it_can(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    type_into(page, qtbot, "DEFAULT_MAX_TOKENS", "77")
    until(qtbot, lambda: stage.engine.settings.DEFAULT_MAX_TOKENS == 77)
    assert kept(tmp_path)["DEFAULT_MAX_TOKENS"] == 77
    row = page.rows["DEFAULT_MAX_TOKENS"]
    until(qtbot, lambda: row.origin.text() == "changed" and row.undo.isVisible())
    row.undo.click()
    until(
        qtbot, lambda: stage.engine.settings.DEFAULT_MAX_TOKENS == 1024 and field(page, row.info.name).text() == "1024"
    )
    assert "DEFAULT_MAX_TOKENS" not in kept(tmp_path)
    assert not row.undo.isVisible()


def test_switches_and_choices(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    page.rows["LOCK_ON_ATTACH"].editor.click()  # type: ignore[union-attr]
    until(qtbot, lambda: stage.engine.settings.LOCK_ON_ATTACH is False)
    theme = page.rows["THEME"].editor
    assert isinstance(theme, QComboBox)
    theme.setCurrentText("dark")
    theme.textActivated.emit("dark")
    until(qtbot, lambda: kept(tmp_path).get("THEME") == "dark")
    assert kept(tmp_path)["LOCK_ON_ATTACH"] is False


def test_what_cannot_be_used_is_refused_beside_the_setting_and_nothing_is_written(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    before = kept(tmp_path)
    type_into(page, qtbot, "MAX_LANES", "many")
    row = page.rows["MAX_LANES"]
    until(qtbot, lambda: row.error.isVisible())
    assert "allowed: a whole number from 1 to 256" in row.error.text()
    assert kept(tmp_path) == before and stage.engine.settings.MAX_LANES == 8
    assert field(page, "MAX_LANES").text() == "many"
    type_into(page, qtbot, "MAX_LANES", "3")
    until(qtbot, lambda: not row.error.isVisible() and stage.engine.settings.MAX_LANES == 3)
    type_into(page, qtbot, "PROXY", "no proxy")
    until(qtbot, lambda: page.rows["PROXY"].error.isVisible())


def test_what_the_environment_sets_is_shown_as_locked(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None), environ={"MILLM_MAX_LANES": "5", "RESTORE_LAST": "false"})
    page = open_page(stage, qtbot)
    row = page.rows["MAX_LANES"]
    assert field(page, "MAX_LANES").text() == "5" and field(page, "MAX_LANES").isReadOnly()
    assert row.origin.text() == "environment, cannot be changed here"
    assert "MILLM_MAX_LANES" in row.origin.toolTip()
    assert not page.rows["RESTORE_LAST"].editor.isEnabled()
    assert "RESTORE_LAST" in page.rows["RESTORE_LAST"].origin.toolTip()


def test_what_waits_for_a_start_is_said(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    type_into(page, qtbot, "QUEUE_DURATION_WINDOW", "9")
    until(qtbot, lambda: "QUEUE_DURATION_WINDOW" in page.waiting.words())
    until(qtbot, lambda: page.rows["QUEUE_DURATION_WINDOW"].origin.text() == "waits for a restart")
    assert stage.engine.settings.QUEUE_DURATION_WINDOW == 50
    stage.server.start()
    stage.server.wait_ready(60)
    type_into(page, qtbot, "MAX_BODY_BYTES", "4096")
    until(qtbot, lambda: "Settings of the server" in page.waiting.words())

    def shown() -> list[Button]:
        # One that was replaced a moment ago may still wait to be deleted.
        return [each for each in page.waiting.findChildren(Button) if not each.isHidden()]

    # It appears once the page has heard that the server runs.
    until(qtbot, lambda: len(shown()) == 1)
    shown()[0].click()
    until(qtbot, lambda: stage.server.state == "running" and not stage.server.outdated)


def test_a_change_elsewhere_is_shown_without_a_click(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    stage.settings.change({"MAX_LANES": 2, "ALLOWED_HOSTS": "a, b"})
    until(qtbot, lambda: field(page, "MAX_LANES").text() == "2" and field(page, "ALLOWED_HOSTS").text() == "a, b")


def test_settings_are_found_by_their_words(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.search.setText("sae activations")
    seen = [name for name, row in page.rows.items() if row.isVisible()]
    assert "SAE_ACTIVATIONS_MAX_TOP_K" in seen and "PORT" not in seen and "THEME" not in seen
    assert not page.data.isVisible() and not page.groups["Server"].isVisible()
    page.search.setText("zzz")
    assert page.nothing.isVisible()
    page.search.clear()
    assert page.rows["PORT"].isVisible() and not page.nothing.isVisible()


def test_the_key_is_not_shown(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.settings.change({"API_KEY": "hush"})
    page = open_page(stage, qtbot)
    assert field(page, "API_KEY").echoMode() is QLineEdit.EchoMode.Password


# --- the hub's token --------------------------------------------------------------------------------------------------


def test_a_token_is_kept_in_words_and_forgotten(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    until(qtbot, lambda: page.hub.state.text() == "none")
    assert "no keyring" in page.hub.words.text()
    page.hub.field.setFocus()
    qtbot.keyClicks(page.hub.field, "hf_abcdefgh")
    qtbot.keyClick(page.hub.field, Qt.Key.Key_Return)
    until(qtbot, lambda: page.hub.state.text() == "kept")
    assert page.hub.field.text() == ""
    assert str(tmp_path / "hf-token") in page.hub.words.text()
    if os.name == "posix":
        assert (tmp_path / "hf-token").stat().st_mode & 0o777 == 0o600
    page.hub.forget_button.click()
    until(qtbot, lambda: page.hub.state.text() == "none")
    assert not (tmp_path / "hf-token").exists()


def test_what_is_no_token_is_refused(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.hub.field.setText("two words")
    page.hub.save_button.click()
    until(qtbot, lambda: "That is no token" in page.hub.notice.words())
    assert "two words" not in page.hub.notice.words()


def test_the_environments_token_wins(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    page = open_page(make_stage(make_engine(folder=None), environ={"HF_TOKEN": "hf_outside"}), qtbot)
    until(qtbot, lambda: page.hub.state.text() == "kept")
    assert page.hub.words.text() == "Set by the environment variable HF_TOKEN."
    assert not page.hub.field.isEnabled() and not page.hub.forget_button.isVisible()


def test_the_data_folder_is_shown_and_opened(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    assert page.folder.full_text() == str(tmp_path)
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url) or True)
    page.open_button.click()
    assert [url.toLocalFile() for url in opened] == [str(tmp_path)]
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda _url: False)
    page.open_button.click()
    assert str(tmp_path) in page.notice.words()


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (True, "on"), (2.0, "2"), (0.5, "0.5"), (["a", "b"], "a, b"), ([], ""), ("x", "x")]
)
def test_values_in_words(value: object, text: str) -> None:
    assert shown(value) == text
