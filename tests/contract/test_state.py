"""What other servers' clients ask of the server's state: ``/props``, ``/slots``, health and readiness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from server.dialects import owner_of
from server.request_log import RequestLog
from tests.conftest import CheckpointMaker
from tests.contract.conftest import ENDLESS, MODEL, Live, text_body
from tests.contract.raw import RawRequest
from tests.tiny import CHAT_TEMPLATE, THINKING_TEMPLATE
from tests.waiting import wait_until

Serve = Callable[..., Live]


def get(live: Live, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
    with live.http() as client:
        return client.get(path, params=query or None, headers=headers)


def refused(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


# --- props ------------------------------------------------------------------------------------------------------------


def test_props_of_the_loaded_model(live: Live) -> None:
    found = get(live, "/props").json()
    build = found.pop("build")
    assert build.startswith("miLLM Desktop ")
    assert found == {
        "model": MODEL,
        "default_model": MODEL,
        "models": [MODEL],
        "max_context": 2048,
        "total_slots": 8,
        "default_generation_settings": {
            "n_ctx": 2048,
            "max_tokens": 1024,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
        },
        "chat_template": CHAT_TEMPLATE,
        "kv_cache": {"bits": 32, "dtype": "float32"},
        "max_request_bytes": 32 * 1024 * 1024,
        "capabilities": get(live, f"/v1/models/{MODEL}").json()["capabilities"],
        "loaded": True,
    }


def test_echoing_the_defaults_changes_nothing(live: Live) -> None:
    defaults = get(live, "/props").json()["default_generation_settings"]
    plain = live.text(max_tokens=...).json()["choices"]
    assert live.text(**{**defaults, "temperature": 0}).json()["choices"] == plain
    # Random draws have the same bytes too.
    plain = live.text(max_tokens=..., temperature=..., seed=7).json()["choices"]
    assert live.text(**defaults, seed=7).json()["choices"] == plain


def test_a_cap_that_is_no_one_number_is_left_out(
    own_engine: Callable[..., Engine], serve: Serve, checkpoint: CheckpointMaker
) -> None:
    live = serve(own_engine(checkpoint("llama", max_positions=1024)))
    defaults = get(live, "/props").json()["default_generation_settings"]
    assert "max_tokens" not in defaults
    assert defaults["n_ctx"] == 1024


def test_props_of_a_gguf(gguf: Live) -> None:
    found = get(gguf, "/props").json()
    assert found["kv_cache"] == {"bits": 32, "dtype": "f32"}
    assert found["chat_template"] == CHAT_TEMPLATE
    assert found["loaded"] is True


def test_props_of_another_model(
    own_engine: Callable[..., Engine], serve: Serve, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    live = serve(own_engine(None))
    bare = get(live, "/props").json()
    assert (bare["model"], bare["default_model"], bare["models"], bare["loaded"]) == (None, None, [], False)
    assert (bare["max_context"], bare["chat_template"], bare["kv_cache"], bare["capabilities"]) == (None,) * 4
    assert bare["default_generation_settings"].keys() == {"temperature", "top_p", "top_k", "min_p", "repeat_penalty"}
    engine = live.engine
    import_local_model(engine.library, engine.events, checkpoint("llama", chat_template=THINKING_TEMPLATE))
    found = get(live, "/props", model=MODEL).json()
    assert (found["model"], found["default_model"], found["loaded"]) == (MODEL, None, False)
    assert found["chat_template"] == THINKING_TEMPLATE
    assert found["kv_cache"] is None
    assert found["capabilities"]["thinking"] is True
    assert engine.shelf.resident is None
    there = get(live, "/props", model=MODEL, autoload=1).json()
    assert (there["model"], there["default_model"], there["loaded"]) == (MODEL, MODEL, True)
    assert there["kv_cache"] == {"bits": 32, "dtype": "float32"}


def test_wrong_props(live: Live) -> None:
    assert refused(get(live, "/props", model="nope")) == (404, "model_not_found", "model")
    assert refused(get(live, "/props", model="nope", autoload=1)) == (404, "model_not_found", "model")
    assert refused(get(live, "/props", autoload="perhaps")) == (400, "invalid_parameter", "autoload")
    assert refused(get(live, "/props?model=a&model=b")) == (400, "invalid_parameter", "model")


# --- slots ------------------------------------------------------------------------------------------------------------

FIGURES = (
    "tick_wall_ms",
    "tick_plan_prefill_tokens",
    "tick_plan_prefill_lanes",
    "tick_plan_decode_lanes",
    "decode_tok_s",
    "prefill_tok_s",
    "ttft_last_ms",
)


def test_nothing_is_said_of_what_was_not_measured(
    own_engine: Callable[..., Engine], serve: Serve, checkpoint: CheckpointMaker
) -> None:
    bare = serve(own_engine(None))
    (slot,) = get(bare, "/slots").json()
    assert (slot["id"], slot["model"], slot["is_processing"]) == (0, None, False)
    assert (slot["lanes_active"], slot["lanes_total"], slot["waiting"]) == (0, 8, 0)
    assert [slot[name] for name in ("kv_pool_used", "kv_pool_total", *FIGURES)] == [None] * 9
    live = serve(own_engine(checkpoint("llama")))
    (slot,) = get(live, "/slots").json()
    assert slot["model"] == MODEL
    assert slot["kv_pool_used"] == 0
    assert slot["kv_pool_total"] >= 2048
    assert [slot[name] for name in FIGURES] == [None] * 7
    assert live.text().status_code == 200
    (slot,) = get(live, "/slots").json()
    assert slot["tick_plan_decode_lanes"] == 1
    assert slot["tick_plan_prefill_tokens"] == slot["tick_plan_prefill_lanes"] == 0
    assert all(slot[name] > 0 for name in ("tick_wall_ms", "decode_tok_s", "prefill_tok_s", "ttft_last_ms"))
    assert slot["kv_pool_used"] == 0


def test_a_slot_at_work(narrow: Live) -> None:
    body = text_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)
    with RawRequest(narrow, "/v1/completions", body) as first:
        # The one lane is its own before another asks.
        first.read_until(b"data: ")
        with RawRequest(narrow, "/v1/completions", body):
            wait_until(lambda: get(narrow, "/slots").json()[0]["waiting"] == 1, "a waiting request")
            (slot,) = get(narrow, "/slots").json()
        assert slot["is_processing"] is True
        assert (slot["lanes_active"], slot["lanes_total"]) == (1, 1)
        # Every token of the prompt and of the answer so far.
        assert 4 < slot["kv_pool_used"] <= slot["kv_pool_total"]


def test_slots_are_neither_saved_nor_restored(live: Live) -> None:
    with live.http() as client:
        for what in ("save", "restore"):
            response = client.post(f"/slots/0/{what}", json={"filename": "x"})
            assert refused(response) == (501, "route_retired", None)
            assert response.json()["error"]["type"] == "server_error"


# --- health -----------------------------------------------------------------------------------------------------------


def test_health_by_its_other_names(live: Live) -> None:
    for path in ("/health", "/healthz"):
        response = get(live, path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
    ready = get(live, "/readyz")
    assert ready.status_code == 200
    assert ready.json().keys() == get(live, "/api/health/ready").json().keys()
    metrics = get(live, "/v1/metrics")
    assert metrics.headers["content-type"] == get(live, "/metrics").headers["content-type"]
    assert b"millm_build_info" in metrics.content


@pytest.mark.parametrize("path", ["/props", "/slots", "/readyz", "/v1/metrics"])
def test_who_needs_the_key(live: Live, serve: Serve, path: str) -> None:
    guarded = serve(live.engine, API_KEY="secret")
    assert get(guarded, "/health").status_code == 200
    assert get(guarded, "/healthz").status_code == 200
    assert get(guarded, path).status_code == 401
    assert get(guarded, path, headers={"Authorization": "Bearer secret"}).status_code == 200


def test_reading_the_state_is_not_in_the_list_of_requests() -> None:
    told: list[object] = []
    log = RequestLog(told.append)
    for path in ("/props", "/slots", "/health"):
        scope = {"method": "GET", "path": path, "raw_path": path.encode(), "headers": []}
        log.finish(log.begin(scope), 200, 0.0, cut_short=False)
    assert told == []
    assert owner_of("/props") is owner_of("/v1/models")
