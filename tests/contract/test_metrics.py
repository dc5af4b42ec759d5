"""``/metrics``: what is counted, under which names, and what is never a label."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from email.message import Message
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
SECRET = "xylophone"


class Figures:
    """The numbers of one reading."""

    def __init__(self, live: Live, **options: Any) -> None:
        with live.http() as client:
            response = client.get("/metrics", **options)
        assert response.status_code == 200
        self.text = response.text
        self.content_type = response.headers["content-type"]
        self.types: dict[str, str] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(self.text):
            self.types[family.name] = family.type
            for sample in family.samples:
                self._samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def get(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0.0)

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for found, labels in self._samples if found == name]


@pytest.fixture
def own(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker) -> Live:
    """A server that nobody else asks."""
    return serve(own_engine(checkpoint("llama")))


def test_tokens_and_requests_are_counted(own: Live) -> None:
    assert own.chat(max_tokens=8, ignore_eos=True, n=2, temperature=1).status_code == 200
    prompt = own.text(max_tokens=4, ignore_eos=True, stream=False).json()["usage"]["prompt_tokens"]
    scored = own.text(max_tokens=1, logprobs=3)
    assert scored.status_code == 200
    with own.http() as client:
        assert client.post("/v1/embeddings", json={"model": MODEL, "input": "the sea"}).status_code == 200
        assert client.post("/v1/embeddings", json={"model": MODEL, "input": ""}).status_code == 400
    figures = Figures(own)
    assert figures.content_type.startswith("text/plain; version=")
    assert figures.get("millm_generated_tokens_total") == 20
    assert figures.get("millm_requests_total", work="generation", outcome="ok") == 2
    assert figures.get("millm_requests_total", work="scoring", outcome="ok") == 1
    assert figures.get("millm_requests_total", work="embeddings", outcome="ok") == 1
    assert figures.get("millm_prompt_tokens_total", work="scoring") == prompt
    assert figures.get("millm_time_to_first_token_seconds_count") == 2
    assert figures.get("millm_queue_wait_seconds_count", work="generation") == 2
    assert figures.get("millm_request_duration_seconds_count", work="embeddings") == 1
    chat = "/v1/chat/completions"
    assert figures.get("millm_http_requests_total", route=chat, method="POST", status="200") == 1
    assert figures.get("millm_http_requests_total", route="/v1/embeddings", method="POST", status="400") == 1
    assert figures.get("millm_http_request_duration_seconds_count", route="/v1/completions") == 2


def test_a_stream_counts_its_tokens_and_ends(own: Live) -> None:
    with (
        own.http() as client,
        client.stream(
            "POST",
            "/v1/completions",
            json={"model": MODEL, "prompt": "the", "max_tokens": 12, "ignore_eos": True, "stream": True},
        ) as response,
    ):
        assert response.read().endswith(b"data: [DONE]\n\n")
    wait_until(lambda: _answered(own, "/v1/completions", "200") == 1, "the stream to be counted")
    assert Figures(own).get("millm_generated_tokens_total") == 12


def test_a_client_that_leaves_is_counted_as_cancelled(narrow: Live) -> None:
    before = Figures(narrow)
    labels = {"work": "generation", "outcome": "request_cancelled"}
    body = {"model": MODEL, "prompt": "the", "max_tokens": 20_000, "ignore_eos": True, "stream": True}
    with narrow.http() as client, client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_bytes())
    name = "millm_requests_total"
    wait_until(lambda: Figures(narrow).get(name, **labels) == before.get(name, **labels) + 1, "the cancellation")
    assert Figures(narrow).get("millm_generated_tokens_total") > before.get("millm_generated_tokens_total")


def test_ignored_fields_are_counted_without_their_names(own: Live) -> None:
    assert own.chat(user=SECRET, metadata={SECRET: SECRET}, **{SECRET: 1}).status_code == 200
    figures = Figures(own)
    assert figures.get("millm_ignored_fields_total", route="/v1/chat/completions") == 3
    assert SECRET not in figures.text


def test_unknown_routes_and_methods_share_a_label(own: Live) -> None:
    with own.http() as client:
        for path in (f"/{SECRET}", f"/api/{SECRET}", f"/v1/{SECRET}"):
            assert client.get(path).status_code == 404
        assert client.delete("/api/health").status_code == 405
        assert client.request("BREW", "/api/health").status_code == 405
        assert client.get(f"/api/profiles/{SECRET}").status_code == 404
    figures = Figures(own)
    name = "millm_http_requests_total"
    assert figures.get(name, route="unmatched", method="GET", status="404") == 3
    assert figures.get(name, route="unmatched", method="DELETE", status="405") == 1
    assert figures.get(name, route="unmatched", method="OTHER", status="405") == 1
    assert figures.get(name, route="/api/profiles/{profile_id}", method="GET", status="404") == 1
    assert SECRET not in figures.text


def test_the_model_and_its_loads(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(None)
    own = serve(engine)
    without = Figures(own)
    assert without.get("millm_model_loaded") == 0
    assert without.labels("millm_model_info") == []
    record = import_local_model(engine.library, engine.events, checkpoint("llama"))
    engine.loader.load(record.id).result(120)
    figures = Figures(own)
    (info,) = figures.labels("millm_model_info")
    assert (info["name"], info["engine"], info["device"], info["backend"]) == (MODEL, "transformers", "cpu", "cbm")
    assert figures.get("millm_model_loaded") == 1
    assert figures.get("millm_model_memory_bytes") > 100_000
    assert figures.get("millm_lanes_limit") == 8
    assert figures.get("millm_queue_limit") == 64
    # The event that ends a load comes after its result.
    name = "millm_model_loads_total"
    wait_until(lambda: Figures(own).get(name, outcome="ok") == 1, "the load to be counted")
    assert Figures(own).get("millm_model_load_duration_seconds_count") == 1
    engine.loader.unload().result(60)
    after = Figures(own)
    assert (after.get("millm_model_loaded"), after.labels("millm_model_info")) == (0, [])
    assert after.get("millm_model_unloads_total") == 1


def test_steering_is_counted(stage: Any) -> None:
    before = Figures(stage.live)
    stage.attach("sae-1", 1)
    stage.engine.hand_steering.set_value(3, 20.0)
    stage.engine.hand_steering.set_value(5, 20.0)
    after = Figures(stage.live)
    assert after.get("millm_saes_attached") == 1
    assert after.get("millm_steered_features") == 2
    assert after.get("millm_steering_changes_total") >= before.get("millm_steering_changes_total") + 2
    assert after.get("millm_steering_plan_version") > before.get("millm_steering_plan_version")
    assert after.get("millm_sae_memory_bytes") > 0


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, PLAIN),
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PLAIN),
        (PROMETHEUS, OPEN),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text; version=1.0.0", OPEN),
        ("Application/OpenMetrics-Text; Version=0.0.1", OPEN),
        ("application/openmetrics-text; version=2.0.0", OPEN),
        ("application/openmetrics-text; version=99", OPEN),
        ("application/openmetrics-text; version=latest", OPEN),
        ("application/openmetrics-text; version=", OPEN),
        ('application/openmetrics-text; version="1.0.0"; q=0.8', OPEN),
        ("application/openmetrics-text; escaping=nothing", OPEN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.5", PLAIN),
        ("application/openmetrics-text;q=0.5, text/plain;q=0.5", OPEN),
        ("text/plain;q=0.2, application/openmetrics-text ; q=0.9", OPEN),
        ("application/openmetrics-text;q=nan, text/plain", OPEN),
        ("application/openmetrics-text;q=, text/plain;q=", OPEN),
        ("application/openmetrics-text;q=-1e309", OPEN),
        ("application/openmetrics-textual", PLAIN),
        ("image/png;q=0.1", PLAIN),
        (";;;,,,q=q=q;=", PLAIN),
        ("\xe9\xff", PLAIN),
        ("a" * 8000, PLAIN),
    ],
)
def test_any_accept_header_gets_text_that_a_parser_reads(live: Live, accept: str | None, content_type: str) -> None:
    """A scraper may name versions nobody has heard of; it is told which one it got."""
    line = b"" if accept is None else b"Accept: " + accept.encode("latin-1") + b"\r\n"
    for path in ("/metrics", "/api/health/metrics/prometheus"):
        status, headers, text = _raw(live, path, line)
        assert (status, headers["content-type"]) == (200, content_type)
        if content_type == OPEN:
            assert text.endswith("# EOF\n")
            families = list(openmetrics_families(text))
        else:
            families = list(text_string_to_metric_families(text))
        named = {family.name: family for family in families}
        assert [sample.value for sample in named["millm_lanes_limit"].samples] == [8.0]


def test_several_accept_lines_are_one(live: Live) -> None:
    lines = b"Accept: text/plain;q=0.1\r\nAccept: application/openmetrics-text;q=0.2\r\n"
    status, headers, _ = _raw(live, "/metrics", lines)
    assert (status, headers["content-type"]) == (200, OPEN)


def _raw(live: Live, path: str, lines: bytes) -> tuple[int, Message, str]:
    """A GET over a bare socket with these header lines: clients add an ``Accept`` of their own and mend odd ones."""
    with socket.create_connection(("127.0.0.1", live.port), 60) as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n".encode()
        connection.sendall(head + lines + b"\r\n")
        response = HTTPResponse(connection)
        response.begin()
        return response.status, response.headers, response.read().decode()


def test_the_same_figures_under_health(live: Live) -> None:
    with live.http() as client:
        text = client.get("/api/health/metrics/prometheus")
        body = client.get("/api/health/metrics").json()
    assert "millm_build_info" in text.text
    assert body["machine"]["memory_total_mb"] > 0
    named = {family["name"]: family for family in body["metrics"]}
    assert named["millm_lanes_limit"]["samples"] == [{"name": "millm_lanes_limit", "labels": {}, "value": 8}]


def test_they_want_the_key(live: Live, serve: Callable[..., Live]) -> None:
    guarded = serve(live.engine, API_KEY="sesame")
    with guarded.http() as client:
        for path in ("/metrics", "/api/health/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_two_servers_of_one_engine_count_apart(live: Live, serve: Callable[..., Live]) -> None:
    other = serve(live.engine)
    with other.http() as client:
        assert client.get("/api/health").status_code == 200
    assert _answered(other, "/api/health", "200") == 1


def test_every_metric_is_described_and_every_description_is_true(live: Live) -> None:
    with live.http() as client:
        families = client.get("/api/health/metrics").json()["metrics"]
    kinds = {"counter": "_total", "info": "_info"}
    served = {family["name"] + kinds.get(family["type"], ""): family["type"] for family in families}
    row = re.compile(r"^\| `(millm_\w+)` \| (\w+) \|", re.MULTILINE)
    described = dict(row.findall(PAGE.read_text(encoding="utf-8")))
    assert described == served


def _answered(live: Live, route: str, status: str) -> float:
    figures = Figures(live)
    return sum(
        figures.get("millm_http_requests_total", route=route, method=method, status=status)
        for method in ("GET", "POST")
    )
