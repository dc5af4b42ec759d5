"""The window and the API are two faces of one engine: a change through either appears in the other without a click."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, until
from tests.ui.stage import Stage
from ui.context.page_context import RECORDS, SWEEP
from ui.steer.sweep import SweepPage

SAE = "made-sae"
PLACE = (SAE, 1)


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id=SAE)
    place = {"mistudio_sae_id": SAE, "layer": 1, "n_features": 64}
    engine.clusters.import_document(raw(cluster("Harbour", member(3, 8.0), sae=place)))
    made = make_stage(engine)
    made.server.start()
    return made


@pytest.fixture
def api(stage: Stage) -> httpx.Client:
    address = stage.server.wait_ready(60)
    return httpx.Client(base_url=address.removesuffix("/v1") + "/api", timeout=60)


def test_what_the_api_changes_shows_in_the_open_window(qtbot: QtBot, stage: Stage, api: httpx.Client) -> None:
    window = stage.window
    chat = chat_of(stage, qtbot)
    chat.set_comparing(True)
    until(qtbot, lambda: chat.strip.choice.findText("Harbour") > 0)
    api.post(f"/saes/{SAE}/attach", json={"layer": 1}).raise_for_status()
    until(qtbot, lambda: window.bar.saes.value.full_text() == "made-sae @ layer 1")
    until(qtbot, lambda: window.home.steps.attach.done)
    (found,) = api.get("/clusters").json()["data"]["clusters"]
    api.post(f"/clusters/{found['id']}/activate").raise_for_status()
    until(qtbot, lambda: window.bar.steering.value.full_text() == "cluster Harbour · λ 0.5")
    until(qtbot, lambda: chat.strip.dial.isEnabled() and chat.strip.dial.value() == 0.5)
    api.put(f"/clusters/{found['id']}/intensity", json={"intensity": 1.5}).raise_for_status()
    until(qtbot, lambda: chat.strip.dial.value() == 1.5)
    assert window.bar.steering.value.full_text() == "cluster Harbour · λ 1.5"
    api.post(f"/clusters/{found['id']}/deactivate").raise_for_status()
    until(qtbot, lambda: window.bar.steering.value.full_text() == "nothing")
    until(qtbot, lambda: not chat.strip.dial.isEnabled())


def test_what_the_window_changes_the_api_tells(qtbot: QtBot, stage: Stage, api: httpx.Client) -> None:
    stage.engine.attachments.attach(SAE)
    chat = chat_of(stage, qtbot)
    chat.set_comparing(True)
    until(qtbot, lambda: chat.strip.choice.findText("Harbour") > 0)
    chat.strip.choice.activated.emit(chat.strip.choice.findText("Harbour"))
    until(qtbot, lambda: stage.engine.desk.state.profile is not None and not chat.dial.busy)
    chat.strip.dial.settled.emit(1.5)
    until(qtbot, lambda: dict(stage.engine.desk.state.entry(PLACE).values) == {3: 12.0})
    (found,) = api.get("/clusters").json()["data"]["clusters"]
    assert (found["is_active"], found["intensity"]) == (True, 1.5)
    sent = {"model": "tiny-llama", "messages": [{"role": "user", "content": "the sea"}], "max_tokens": 2}
    answer = httpx.post(f"{stage.server.wait_ready(60)}/chat/completions", json=sent, timeout=60)
    assert 'name="Harbour";source=active;intensity="1.5"' in answer.headers["X-miLLM-Steering"]
    stage.window.bar.switch.click()
    until(qtbot, lambda: stage.engine.desk.live_plan.is_empty)
    answer = httpx.post(f"{stage.server.wait_ready(60)}/chat/completions", json=sent, timeout=60)
    assert answer.headers["X-miLLM-Steering"] == "none"


def test_a_sweep_and_a_record_of_the_api_show_in_the_window(qtbot: QtBot, stage: Stage, api: httpx.Client) -> None:
    stage.engine.attachments.attach(SAE)
    stage.window.show_page(SWEEP)
    sweep = stage.window.page(SWEEP)
    assert isinstance(sweep, SweepPage)
    (found,) = api.get("/clusters").json()["data"]["clusters"]
    asked = {
        "base": {"kind": "cluster", "id": found["id"]},
        "prompts": ["the sea"],
        "intensities": [1],
        "max_tokens": 2,
    }
    begun = api.post("/sweeps", json=asked).raise_for_status().json()["data"]
    until(qtbot, lambda: sweep.outcome is not None and sweep.status.text() == "Harbour: 2 of 2 answers")
    answers = [cell["text"] for cell in api.get(f"/sweeps/{begun['id']}").json()["data"]["cells"]]
    assert sweep.outcome is not None and [cell.text for cell in sweep.outcome.cells] == answers
    stage.window.show_page(RECORDS)
    records = stage.window.records
    given = {"title": "Sea", "model": "tiny-llama", "prompt": "Where?", "plain": "A garden.", "steered": "A harbour."}
    kept = api.post("/experiments", json=given).raise_for_status().json()["data"]
    until(qtbot, lambda: records.titles() == ["Sea"] and records.view.record is not None)
    assert records.view.record is not None and records.view.record.id == kept["id"]
    assert records.view.comparison.told.text() == "tiny-llama · not steered"
    api.delete(f"/experiments/{kept['id']}").raise_for_status()
    until(qtbot, lambda: records.titles() == [])
