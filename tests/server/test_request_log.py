"""The log of requests: what is noted of real requests over HTTP, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from engine.events import RequestRecorded
from engine.generation.request import Piece, RequestFinished, TextDelta, Usage
from engine.generation.text.parts import Kind
from server.request_log import RequestLog, client_name
from tests.conftest import EngineMaker
from tests.waiting import wait_until

SECRET = "xylophone-in-the-attic"


class Recorder:
    """A server on an engine of its own, and what was published about its requests."""

    def __init__(self, thread: Any, base: str, heard: list[RequestRecorded]) -> None:
        self.thread, self.heard = thread, heard
        self.http = httpx.Client(base_url=base, timeout=120)

    def ended(self, number: int) -> RequestRecorded:
        wait_until(
            lambda: any(e.status is not None and e.number == number for e in self.heard), f"request {number} to end"
        )
        return next(e for e in self.thread.requests() if e.number == number)


@pytest.fixture
def recorder(make_engine: EngineMaker) -> Any:
    from server.config import ServerSettings
    from server.thread import ServerThread

    engine = make_engine()
    heard: list[RequestRecorded] = []
    engine.events.subscribe(lambda event: heard.append(event), RequestRecorded)  # type: ignore[arg-type]
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    made = Recorder(thread, thread.wait_ready(60).removesuffix("/v1"), heard)
    yield made
    made.http.close()
    thread.stop(30)


def body(**more: Any) -> dict[str, Any]:
    return {
        "model": "tiny-llama",
        "messages": [{"role": "user", "content": SECRET}],
        "max_tokens": 8,
        "ignore_eos": True,
        **more,
    }


def test_an_answer_is_noted_with_what_was_measured(recorder: Recorder) -> None:
    sent = body(user=SECRET, steering={"features": []}, temperature=0)
    sent.pop("steering")
    answer = recorder.http.post("/v1/chat/completions", json=sent, headers={"User-Agent": "OpenAI/Python 3.51.0"})
    assert answer.status_code == 200
    entry = recorder.ended(1)
    assert (entry.method, entry.path, entry.status) == ("POST", "/v1/chat/completions", 200)
    assert (entry.client, entry.remote, entry.model) == ("openai 3.51.0", "127.0.0.1", "tiny-llama")
    assert entry.ignored_fields == ("user",)
    assert entry.steering == "none" and entry.mode == "generation" and entry.backend == "cbm"
    assert entry.completion_tokens == 8
    assert entry.prompt_tokens == answer.json()["usage"]["prompt_tokens"]
    assert entry.tokens_per_second is not None and entry.tokens_per_second > 0
    assert entry.side_call is None and not entry.stream and entry.error is None
    first = recorder.heard[0]
    assert (first.number, first.status, first.model) == (1, None, None)
    assert SECRET not in repr(recorder.heard)


def test_a_stream_and_a_side_call_are_told(recorder: Recorder) -> None:
    task = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."
    sent = body(stream=True)
    sent["messages"] = [{"role": "user", "content": task}]
    with recorder.http.stream("POST", "/v1/chat/completions", json=sent) as answer:
        answer.read()
    entry = recorder.ended(1)
    assert entry.stream and entry.side_call == "title"
    assert entry.completion_tokens == 8 and entry.steering == "none" and not entry.cut_short


def test_refusals_are_noted_with_code_and_place(recorder: Recorder) -> None:
    recorder.http.post("/v1/chat/completions", json=body(temperature=SECRET))
    recorder.http.post("/v1/chat/completions", json=body(model=SECRET))
    recorder.http.post("/v1/chat/completions", json=body(), headers={"Origin": "http://evil.example"})
    entries = [recorder.ended(number) for number in (1, 2, 3)]
    assert [(e.status, e.error, e.param) for e in entries] == [
        (400, "invalid_parameter", "temperature"),
        (404, "model_not_found", "model"),
        (403, "origin_not_allowed", "Origin"),
    ]
    assert SECRET not in repr(recorder.heard)


def test_reading_state_is_not_listed_and_changing_it_is(recorder: Recorder) -> None:
    recorder.http.get("/api/health")
    recorder.http.get("/api/saes")
    recorder.http.get(f"/?q={SECRET}")
    recorder.http.get(f"/v1/models?q={SECRET}")
    recorder.http.post("/api/monitoring/clear")
    recorder.http.get("/api/nothing-here")
    wait_until(lambda: len([e for e in recorder.thread.requests() if e.status]) == 3, "three requests to be noted")
    assert [(e.method, e.path) for e in recorder.thread.requests()] == [
        ("GET", "/v1/models"),
        ("POST", "/api/monitoring/clear"),
        ("GET", "/api/nothing-here"),
    ]
    assert SECRET not in repr(recorder.heard)


def test_scoring_and_embeddings_say_their_tokens(recorder: Recorder) -> None:
    recorder.http.post("/v1/embeddings", json={"model": "tiny-llama", "input": "one two"})
    recorder.http.post(
        "/v1/completions", json={"model": "tiny-llama", "prompt": "a b", "max_tokens": 1, "allowed_token_ids": [5, 6]}
    )
    embedding, scoring = recorder.ended(1), recorder.ended(2)
    assert embedding.status == 200 and embedding.prompt_tokens and embedding.tokens_per_second is None
    assert scoring.status == 200 and scoring.mode == "scoring" and scoring.prompt_tokens


def test_the_log_outlives_a_restart_and_can_be_cleared(recorder: Recorder) -> None:
    recorder.http.get("/v1/models")
    recorder.ended(1)
    recorder.thread.restart()
    recorder.thread.wait_ready(60)
    assert [e.number for e in recorder.thread.requests()] == [1]
    recorder.thread.clear_requests()
    assert recorder.thread.requests() == ()


def scope(path: str, method: str = "POST") -> dict[str, Any]:
    return {"type": "http", "method": method, "raw_path": path.encode(), "headers": [], "client": ("10.0.0.1", 5)}


def test_the_log_is_bounded() -> None:
    heard: list[RequestRecorded] = []
    log = RequestLog(heard.append, limit=3)
    notes = [log.begin(scope(f"/v1/{turn}")) for turn in range(5)]
    assert [e.path for e in log.entries()] == ["/v1/2", "/v1/3", "/v1/4"]
    log.finish(notes[0], 200, 1.0, cut_short=False)
    log.finish(notes[4], 200, 1.0, cut_short=True)
    assert [(e.path, e.status, e.cut_short) for e in log.entries()] == [
        ("/v1/2", None, False),
        ("/v1/3", None, False),
        ("/v1/4", 200, True),
    ]
    log.clear()
    assert [e.path for e in log.entries()] == ["/v1/2", "/v1/3"]


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("OpenAI/Python 3.51.0", "openai 3.51.0"),
        ("AsyncOpenAI/Python 3.51.0", "openai (async) 3.51.0"),
        ("curl/8.5.0", "curl 8.5.0"),
        ("Python/3.11 aiohttp/3.9.1", "Python 3.11"),
        ("Mozilla/5.0 (X11; Linux x86_64) Gecko", "Mozilla 5.0"),
        ("Open WebUI/0.6", "Open WebUI 0.6"),
        ("", "unknown"),
        ("\x00\x01", "unknown"),
    ],
)
def test_clients_have_names(agent: str, name: str) -> None:
    assert client_name(agent) == name


def test_what_the_wire_carries_cannot_forge_a_line() -> None:
    heard: Callable[..., None] = lambda _event: None  # noqa: E731
    log = RequestLog(heard)
    log.begin({**scope("/v1/a\nb\x1b[0m"), "headers": [(b"user-agent", b"evil\r\nX\x1b")]})
    (entry,) = log.entries()
    assert entry.path == "/v1/a?b?[0m" and entry.client == "evilX"


def test_speed_counts_tokens_and_not_the_pieces_they_came_in() -> None:
    notes = RequestLog(lambda _entry: None).begin(scope("/v1/x"))
    # The first text took three tokens; the other eight came in one piece more.
    notes.heard(TextDelta(0, (Piece(Kind.REASONING, "so"),), 3))
    notes.heard(TextDelta(0, (Piece(Kind.CONTENT, "yes"),), 11))
    notes.heard(RequestFinished(Usage(5, 11), 0.0, 0.0, 0.0))
    notes.first_token_at, notes.last_at = 10.0, 12.0
    assert (notes.completion_tokens, notes.tokens_per_second) == (11, 4.0)
