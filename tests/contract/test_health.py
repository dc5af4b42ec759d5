"""Health: alive, ready, and the figures of the queue."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.library.records import ProfileKind
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live
from tests.contract.stage import Stage


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
    from engine.actions.importing import import_local_model

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
