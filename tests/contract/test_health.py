"""Health: alive, ready, and the figures of the queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from engine.library.records import ProfileKind
from engine.models.hardware.gpus import GpuCard, GpuProcess, GpuReading, TorchMemory
from engine.models.hub.breaker import HUB
from server.health import reports
from tests.conftest import CheckpointMaker
from tests.contract.conftest import ENDLESS, MODEL, Live, chat_body, text_body
from tests.contract.raw import RawRequest
from tests.contract.stage import CHAT, TEXT, Stage
from tests.waiting import wait_until


def test_alive(live: Live) -> None:
    with live.http() as client:
        body = client.get("/api/health").json()
    assert body.keys() == {"status", "version", "timestamp", "uptime_seconds"}  # A289
    assert body["status"] == "healthy"
    assert body["uptime_seconds"] >= 0


def test_ready_with_and_without_a_model(
    live: Live, own_engine: Callable[..., Engine], serve: Callable[..., Live]
) -> None:
    with live.http() as client:
        body = client.get("/api/health/ready").json()
    assert (body["ready"], body["status"], body["model_loaded"], body["sae_attached"]) == (True, "healthy", True, False)
    with serve(own_engine(None)).http() as client:
        response = client.get("/api/health/ready")
    assert response.status_code == 200  # A290
    assert (response.json()["ready"], response.json()["status"], response.json()["model_loaded"]) == (
        True,
        "degraded",
        False,
    )


def test_a_library_that_cannot_be_read(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tmp_path: Path
) -> None:
    live = serve(own_engine(None))
    with sqlite3.connect(tmp_path / "library-0.db") as database:
        database.execute("ALTER TABLE models RENAME TO gone")
    database.close()
    with live.http() as client:
        response = client.get("/api/health/ready")
        assert client.get("/api/health").status_code == 200
        listing = client.get("/v1/models")
    with sqlite3.connect(tmp_path / "library-0.db") as database:
        database.execute("ALTER TABLE gone RENAME TO models")
    database.close()
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "5"
    assert (response.json()["ready"], response.json()["status"]) == (False, "unhealthy")
    assert listing.status_code == 500
    assert listing.json()["error"]["code"] == "library_unusable"


def test_the_details(live: Live) -> None:
    with live.http() as client:
        body = client.get("/api/health/detailed").json()
    assert body["model_loaded"] is True
    assert body["model_name"] == "tiny-llama"
    assert (body["sae_attached"], body["sae_id"], body["sae_count"], body["sae_ids"]) == (False, None, 0, [])
    assert [component["name"] for component in body["components"]] == ["model", "queue", "library"]
    inference = body["inference"]
    assert set(inference) == {
        "backend",
        "cbm_enabled",
        "cbm_running",
        "queue_pending",
        "queue_max_concurrent",
        "queue_max_pending",
        "in_flight",
        "queue_waiting",
        "batch_backlog_rows",
        "estimated_wait_seconds",
        "error",
    }
    assert (inference["backend"], inference["cbm_enabled"], inference["cbm_running"]) == ("cbm", True, True)
    assert (inference["queue_max_concurrent"], inference["queue_max_pending"]) == (8, 64)
    assert (inference["in_flight"], inference["queue_waiting"], inference["queue_pending"]) == (0, 0, 0)
    assert inference["batch_backlog_rows"] is None
    assert inference["error"] is None


def test_an_estimate_needs_three_samples(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    live = serve(own_engine(checkpoint("llama")))

    def estimate() -> float | None:
        with live.http() as client:
            value: float | None = client.get("/api/health/detailed").json()["inference"]["estimated_wait_seconds"]
        return value

    for _ in range(2):
        assert estimate() is None  # A205
        assert live.chat().status_code == 200
    assert estimate() is None
    assert live.chat().status_code == 200
    live.wait_idle()
    assert estimate() == 0.0  # nobody waits


def test_the_inference_page(live: Live) -> None:
    with live.http() as client:
        body = client.get("/api/health/inference").json()
    assert body["backend"] == "cbm"
    assert body["capabilities"] == {
        "streaming": True,
        "per_request_sampling_params": True,
        "per_request_profile_override": True,
        "speculative_decoding": False,
    }
    assert body["queue"] == {"max_concurrent": 8, "max_pending": 64, "current_pending": 0}
    assert isinstance(body["description"], str)
    assert isinstance(body["limitations"], list)


def test_without_batching(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    live = serve(own_engine(checkpoint("llama"), ENABLE_CONTINUOUS_BATCHING=False))
    with live.http() as client:
        assert client.get("/api/health/inference").json()["backend"] == "serial"
        figures = client.get("/api/health/detailed").json()["inference"]
    assert (figures["backend"], figures["cbm_enabled"], figures["cbm_running"]) == ("serial", False, False)
    assert live.chat().headers["X-miLLM-Backend"] == "serial"


def test_the_page_at_the_root(live: Live) -> None:
    with live.http() as client:
        response = client.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert live.address in response.text
    assert "tiny-llama" in response.text
    for link in ("/v1/models", "/api/health", "/api/health/detailed"):
        assert f'href="{link}"' in response.text
    assert "<script" not in response.text


def test_the_page_escapes_names(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(None)
    from engine.actions.models.importing import import_local_model

    record = import_local_model(engine.library, engine.events, checkpoint("llama"), name="<b>bold</b>")
    engine.loader.load(record.id).result(60)
    with serve(engine).http() as client:
        page = client.get("/").text
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page


def test_attached_saes_and_the_active_profile(stage: Stage) -> None:
    def read(page: str) -> dict[str, Any]:
        with stage.live.http() as client:
            return dict(client.get(f"/api/health/{page}").json())

    assert read("ready")["sae_attached"] is False
    assert read("detailed")["active_profile"] is None
    stage.attach("sae-1", 1)
    stage.attach("sae-3", 3)
    body = read("detailed")
    assert (body["sae_attached"], body["sae_id"], body["sae_count"], body["sae_ids"]) == (
        True,
        "sae-1",
        2,
        ["sae-1", "sae-3"],
    )
    assert read("ready")["sae_attached"] is True
    record = stage.profile("naïve calm", {3: 60.0}, intensity=0.5, kind=ProfileKind.CLUSTER)
    # A row alone is not in force.
    assert read("detailed")["active_profile"] is None
    stage.activate(record)
    assert read("detailed")["active_profile"] == {
        "id": record.id,
        "name": "naïve calm",
        "source_kind": "cluster",
        "intensity": 0.5,
        "sensing_enabled": False,
    }


# --- the machine and the program --------------------------------------------------------------------------------------


def test_the_cards_or_why_there_are_none(live: Live) -> None:
    with live.http() as client:
        body = client.get("/api/health/gpus").json()
    assert body.keys() == {"read_at", "cards", "reason"}
    assert datetime.fromisoformat(body["read_at"]).tzinfo is not None
    if body["cards"]:
        assert body["reason"] is None
        assert body["cards"][0]["total_mb"] > 0
    else:
        assert isinstance(body["reason"], str)


def test_a_card_as_nvidia_smi_has_it(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    card = GpuCard(
        1, "GPU-1", "Made-up", 24_576_000_000, 1_024_000_000, 23_552_000_000, 12.0, 55.0, (GpuProcess(77, 512_000_000),)
    )
    torch = TorchMemory(0, 100_000_000, 200_000_000)
    monkeypatch.setattr(
        reports, "read_gpus", lambda: GpuReading((card, replace(card, torch=torch)), None, "nvidia-smi")
    )
    with live.http() as client:
        one, two = client.get("/api/health/gpus").json()["cards"]
    assert one == {
        "smi_index": 1,
        "uuid": "GPU-1",
        "name": "Made-up",
        "total_mb": 24576.0,
        "used_mb": 1024.0,
        "free_mb": 23552.0,
        "utilization": 12.0,
        "temperature": 55.0,
        "torch_index": None,
        "torch_measured": False,
        "millm_allocated_mb": None,
        "millm_reserved_mb": None,
        "engine_memory": "not_measured_by_torch",
        "processes": [{"pid": 77, "used_mb": 512.0}],
        "processes_reason": None,
    }
    assert (two["torch_index"], two["torch_measured"], two["engine_memory"]) == (0, True, None)
    assert (two["millm_allocated_mb"], two["millm_reserved_mb"]) == (100.0, 200.0)


def test_reading_the_cards_takes_no_place_in_the_queue(stage: Stage) -> None:
    with stage.paused(), stage.live.http() as client:
        # A289: alive is said without the model, and so is all the rest.
        for page in ("", "/gpus", "/detailed", "/inference", "/metrics", "/circuits", "/version", "/ready"):
            assert client.get(f"/api/health{page}").status_code == 200


def test_versions(live: Live) -> None:
    with live.http() as client:
        body = client.get("/api/health/version").json()
        assert body["version"] == client.get("/api/health").json()["version"]
    assert body["libraries"]["torch"][0].isdigit()
    assert body["libraries"]["transformers"][0].isdigit()
    assert "llama-cpp-python" in body["libraries"]
    assert body["python"].count(".") == 2


def test_circuit_breakers(live: Live) -> None:
    breaker = live.engine.breakers[HUB]
    with live.http() as client:
        (closed,) = client.get("/api/health/circuits").json()["circuit_breakers"]
        assert closed == {
            "name": "huggingface_hub",
            "state": "closed",
            "failures": 0,
            "failure_threshold": 5,
            "recovery_seconds": 60.0,
            "remaining_seconds": None,
            "times_opened": 0,
        }
        for _ in range(5):
            breaker.failed()
        (opened,) = client.get("/api/health/detailed").json()["circuit_breakers"]
        assert (opened["state"], opened["failures"], opened["times_opened"]) == ("open", 5, 1)
        assert 0 < opened["remaining_seconds"] <= 60
        assert 'millm_breaker_open{service="huggingface_hub"} 1.0' in client.get("/metrics").text
        reset = client.post("/api/health/circuits/huggingface_hub/reset")
        assert reset.status_code == 200
        assert reset.json()["data"]["state"] == "closed"
        assert breaker.allow()


def test_a_breaker_that_is_not_there(live: Live) -> None:
    with live.http() as client:
        response = client.post("/api/health/circuits/nothing/reset")
        assert client.post("/api/health/circuits/huggingface_hub/reset", json={"now": True}).status_code == 422
        assert client.post("/api/health/circuits/huggingface_hub/reset?now=1").status_code == 422
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "NOT_FOUND"
    assert "huggingface_hub" in error["details"]["remedy"]


def test_where_the_model_is(live: Live) -> None:
    with live.http() as client:
        placement = client.get("/api/health/detailed").json()["model_placement"]
    assert (placement["mode"], placement["devices"]) == ("cpu", ["cpu"])
    assert placement["memory_by_device_mb"]["cpu"] > 0


def test_running_lanes_are_counted(narrow: Live) -> None:
    def read() -> dict[str, Any]:
        with narrow.http() as client:
            return dict(client.get("/api/health/detailed").json()["inference"])

    body = text_body(max_tokens=ENDLESS, ignore_eos=True, n=2, temperature=1)
    with RawRequest(narrow, TEXT, body), RawRequest(narrow, TEXT, body):
        wait_until(lambda: read()["in_flight"] == 1, "a lane")
        wait_until(lambda: read()["queue_pending"] == 2, "two requests")
        assert read()["queue_waiting"] == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TEXT, text_body()),
        (CHAT, chat_body()),
        (TEXT, text_body(logprobs=1, max_tokens=1)),
        ("/v1/embeddings", {"model": MODEL, "input": "the sea"}),
    ],
)
def test_every_503_says_when_to_come_back(narrow: Live, path: str, body: dict[str, Any]) -> None:
    endless = text_body(max_tokens=ENDLESS, ignore_eos=True)
    with ExitStack() as stack, narrow.http() as client:
        for taken in range(1, 5):
            stack.enter_context(RawRequest(narrow, TEXT, endless))
            wait_until(lambda taken=taken: narrow.engine.generation.stats().queue_pending == taken, f"{taken} requests")  # type: ignore[misc]
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
