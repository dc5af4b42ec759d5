"""The Server page on a real engine, a real server and real requests."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from engine.config import EngineSettings
from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import until
from tests.ui.stage import Stage
from ui.context.page_context import SERVER
from ui.serve import request_text as words
from ui.serve.server import ServerPage, base_url, choose, make_key


def open_page(stage: Stage, qtbot: QtBot) -> ServerPage:
    stage.window.show_page(SERVER)
    page = stage.window.page(SERVER)
    assert isinstance(page, ServerPage)
    until(qtbot, lambda: page._infos)
    return page


def started(stage: Stage, page: ServerPage, qtbot: QtBot) -> str:
    page.server.start_button.click()
    until(qtbot, lambda: page.server.pill is not None and page.server.pill.text() == "running")
    address = stage.server.address
    assert address is not None
    return address


def ask(stage: Stage, **more: Any) -> httpx.Response:
    """One answer over HTTP, as another program would get it."""
    sent = {
        "model": "tiny-llama",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 6,
        "ignore_eos": True,
        **more,
    }
    headers = {"User-Agent": "curl/8.5.0"}
    if key := stage.settings.current.API_KEY:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.post(f"{stage.server.address}/chat/completions", json=sent, headers=headers, timeout=120)


def from_another_program(stage: Stage, page: ServerPage, qtbot: QtBot, **more: Any) -> None:
    """Ask on another thread and wait until the page has the answer's last word."""
    ended = len([e for e in stage.server.requests() if e.status is not None])
    stage.bridge.run_in_background(lambda: ask(stage, **more))
    until(qtbot, lambda: len([e for e in stage.server.requests() if e.status is not None]) > ended)
    until(qtbot, lambda: page.requests.model.rowCount() and page.requests.model.entry(0).status is not None)  # type: ignore[union-attr]


# --- start, stop, address ---------------------------------------------------------------------------------------------


def test_it_starts_says_where_and_stops(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    assert page.server.pill is not None and page.server.pill.text() == "stopped"
    address = started(stage, page, qtbot)
    assert page.server.address.full_text() == address
    page.server.copy.click()
    assert QGuiApplication.clipboard().text() == address
    assert f'base_url="{address}"' in page.snippets.code.toPlainText()
    assert 'model="tiny-llama"' in page.snippets.code.toPlainText()
    page.snippets.tabs.button(3).click()
    page.snippets.copy.click()
    assert "ChatOpenAI" in QGuiApplication.clipboard().text()
    page.server.stop_button.click()
    until(qtbot, lambda: page.server.pill.text() == "stopped")  # type: ignore[union-attr]


def test_a_taken_port_is_named_and_the_free_one_is_kept(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = int(other.getsockname()[1])
        stage = make_stage(make_engine(folder=None), port=taken)
        page = open_page(stage, qtbot)
        until(qtbot, lambda: page.server.port.value() == taken)
        page.server.start_button.click()
        until(qtbot, lambda: str(taken) in page.server.notice.words())
        until(qtbot, lambda: page.server.port.value() != taken)
        offered = page.server.port.value()
        started(stage, page, qtbot)
    assert stage.server.address == f"http://127.0.0.1:{offered}/v1"
    assert json.loads((tmp_path / "settings.json").read_text())["PORT"] == offered


# --- who may use it ---------------------------------------------------------------------------------------------------


def test_one_switch_shares_with_a_key_and_takes_it_back(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    page.access.switch.click()
    until(qtbot, lambda: stage.server.shared and page.server.pill.text() == "running")  # type: ignore[union-attr]
    kept = json.loads((tmp_path / "settings.json").read_text())
    key = kept["API_KEY"]
    assert kept["HOST"] == "0.0.0.0" and key.startswith("millm-") and len(key) > 30
    assert (tmp_path / "settings.json").stat().st_mode & 0o077 == 0
    assert page.server.facts.values()["Can be reached from"] == "Your network"
    until(qtbot, lambda: page.access.key.text() == key)
    assert key in page.snippets.code.toPlainText()
    assert ask(stage).status_code == 200
    bare = httpx.get(f"{stage.server.address}/models", timeout=30)
    assert bare.status_code == 401
    until(qtbot, lambda: not page.access.lines or page.access.lines[-1].text == key)
    for each in page.access.lines[-1:]:
        assert key not in each.shown.full_text()
        page.access.show_key.click()
        assert each.shown.full_text() == key
        page.access.show_key.click()
        assert key not in each.shown.full_text()
    page.access.switch.click()
    until(qtbot, lambda: not stage.server.shared and page.server.pill.text() == "running")  # type: ignore[union-attr]
    kept = json.loads((tmp_path / "settings.json").read_text())
    assert "HOST" not in kept and kept["API_KEY"] == key
    until(qtbot, lambda: not page.access.lines)


def test_addresses_are_shown_together_with_the_key(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    page = open_page(make_stage(make_engine(folder=None)), qtbot)
    page.access.show_addresses(["http://192.168.1.4:8000/v1", "http://10.0.0.2:8000/v1"], "millm-abc")
    assert [each.text for each in page.access.lines] == [
        "http://192.168.1.4:8000/v1",
        "http://10.0.0.2:8000/v1",
        "millm-abc",
    ]
    page.access.lines[0].copy.click()
    assert QGuiApplication.clipboard().text() == "http://192.168.1.4:8000/v1"


def test_a_key_is_made_shown_copied_given_and_taken_away(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    started(stage, page, qtbot)
    page.access.make_key.click()
    until(qtbot, lambda: page.access.key.text().startswith("millm-"))
    assert page.access.key.echoMode() is QLineEdit.EchoMode.Password
    page.access.show_key.click()
    assert page.access.key.echoMode() is QLineEdit.EchoMode.Normal
    page.access.copy_key.click()
    assert QGuiApplication.clipboard().text() == stage.settings.current.API_KEY
    # It counts from the next start, and the page says so.
    until(qtbot, lambda: "next start" in page.outdated.words())
    page.restart()
    until(qtbot, lambda: stage.server.state == "running" and not stage.server.outdated)
    assert httpx.get(f"{stage.server.address}/models", timeout=30).status_code == 401
    page.access.key.setText("my own key")
    qtbot.keyClick(page.access.key, Qt.Key.Key_Return)
    until(qtbot, lambda: stage.settings.current.API_KEY == "my own key")
    page.access.key.setText("")
    qtbot.keyClick(page.access.key, Qt.Key.Key_Return)
    until(qtbot, lambda: stage.settings.current.API_KEY is None)


def test_a_setting_from_the_environment_is_shown_as_such(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None), environ={"MILLM_HOST": "127.0.0.1", "MILLM_API_KEY": "from-outside"})
    page = open_page(stage, qtbot)
    assert not page.access.switch.isEnabled()
    assert "MILLM_HOST" in page.access.share_words.text()
    assert page.access.key.isReadOnly() and not page.access.make_key.isEnabled()
    assert "MILLM_API_KEY" in page.access.key_words.text()


def test_origins_and_hosts_are_kept_and_count_after_a_restart(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None))
    page = open_page(stage, qtbot)
    started(stage, page, qtbot)
    page.access.more.click()
    assert page.access.more_panel.isVisible()
    page.access.origins.setPlainText("https://chat.example.org\nhttp://localhost:3000")
    page.access.save_lists.click()
    until(qtbot, lambda: "next start" in page.outdated.words())
    assert stage.settings.current.CORS_ORIGINS == ["https://chat.example.org", "http://localhost:3000"]
    assert stage.settings.current.ALLOWED_HOSTS == ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"]
    page.restart()
    until(qtbot, lambda: stage.server.state == "running" and not stage.server.outdated)
    answer = httpx.get(f"{stage.server.address}/models", headers={"Origin": "http://localhost:3000"}, timeout=30)
    assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"


# --- requests ---------------------------------------------------------------------------------------------------------


def test_requests_appear_without_a_click_with_everything_known(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    started(stage, page, qtbot)
    assert page.requests.empty.isVisible()
    from_another_program(stage, page, qtbot, user="someone")
    table = page.requests.model
    shown = [str(table.data(table.index(0, column))) for column in range(table.columnCount())]
    assert shown[1:5] == ["curl 8.5.0", "chat", "tiny-llama", "none"]
    for width in (1280, 1000, 800):
        stage.window.resize(width, 800)
        until(qtbot, lambda: page.requests.table.columnWidth(4) >= 150)
    stage.window.resize(1280, 800)
    assert float(shown[5]) > 0 and shown[6] == "cut" and shown[7] == "200" and shown[8] == "user"
    page.requests.table.setFocus()
    page.requests.table.selectRow(0)
    rows = page.requests.detail.rows()
    assert rows["Client"] == "curl 8.5.0 at 127.0.0.1"
    assert rows["Tokens written"] == "6" and rows["Steering"] == "none" and rows["Ignored fields"] == "user"
    page.requests.detail.copy.click()
    assert "Request: POST /v1/chat/completions" in QGuiApplication.clipboard().text()
    assert "someone" not in QGuiApplication.clipboard().text()


def test_calls_and_forms_are_told(qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker) -> None:
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    started(stage, page, qtbot)
    tool = {"type": "function", "function": {"name": "now"}}
    held = {"tools": [tool], "tool_choice": "required", "ignore_eos": False}
    from_another_program(stage, page, qtbot, **held, max_tokens=300, n=2)
    table = page.requests.model
    until(qtbot, lambda: str(table.data(table.index(0, 6))) != "")
    page.requests.table.selectRow(0)
    rows = page.requests.detail.rows()
    assert int(rows["Calls written"]) >= 2
    assert rows["Held to"] == "tool calls"
    assert "now" not in page.requests.detail._text()


def test_side_calls_are_marked_and_can_be_hidden(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine())
    page = open_page(stage, qtbot)
    started(stage, page, qtbot)
    task = "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history."
    from_another_program(stage, page, qtbot)
    from_another_program(stage, page, qtbot, messages=[{"role": "user", "content": task}])
    until(qtbot, lambda: page.requests.model.rowCount() == 2)
    table = page.requests.model
    assert table.data(table.index(0, 2)) == "chat · tags"
    page.requests.table.selectRow(0)
    assert page.requests.detail.rows()["Side call"] == "asks for tags for the conversation"
    page.requests.hide_side_calls.click()
    assert [table.entry(row).side_call for row in range(table.rowCount())] == [None]  # type: ignore[union-attr]
    page.requests.hide_side_calls.click()
    assert table.rowCount() == 2
    page.requests.clear_button.click()
    assert table.rowCount() == 0 and stage.server.requests() == ()


def test_a_page_opened_late_knows_what_came_before_and_refusals_say_why(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker
) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.server.start()
    stage.server.wait_ready(60)
    assert ask(stage, model="nobody").status_code == 404
    page = open_page(stage, qtbot)
    until(qtbot, lambda: page.requests.model.rowCount() == 1)
    entry = page.requests.model.entry(0)
    assert entry is not None
    assert words.status(entry) == "404 model_not_found" and words.tone(entry) == "warn"
    assert dict(words.details(entry))["Field at fault"] == "model"


# --- pure -------------------------------------------------------------------------------------------------------------


def test_addresses_worth_showing_come_first() -> None:
    found = {
        "lo": ["127.0.0.1"],
        "docker0": ["172.17.0.1"],
        "eth1": ["8.8.4.4"],
        "eth0": ["192.168.1.4", "169.254.3.3"],
    }
    assert choose(found) == ["192.168.1.4", "8.8.4.4", "172.17.0.1"]
    assert base_url("192.168.1.4", "http://127.0.0.1:8123/v1") == "http://192.168.1.4:8123/v1"


def test_keys_are_long_and_never_the_same() -> None:
    one, other = make_key(), make_key()
    assert one != other and len(one) >= 38 and one.startswith("millm-")


@pytest.mark.parametrize("setting", ["MAX_LANES", "DEFAULT_MAX_TOKENS"])
def test_the_engine_of_a_stage_reads_what_the_store_writes(
    make_engine: EngineMaker, make_stage: StageMaker, setting: str
) -> None:
    stage = make_stage(make_engine(folder=None))
    stage.settings.change({setting: "3"})
    assert isinstance(stage.engine.settings, EngineSettings)
    assert getattr(stage.engine.settings, setting) == 3
