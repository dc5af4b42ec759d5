"""Streams: frames, order of chunks, usage, and what a client sees when something goes wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from httpx_sse import connect_sse

from tests.contract.conftest import LONG, Live, chat_body, text_body


def events(live: Live, path: str = "/v1/chat/completions", **body: Any) -> tuple[httpx.Response, list[dict[str, Any]]]:
    """All JSON events of a stream; the last frame must be ``[DONE]`` and comes once."""
    make = chat_body if path.startswith("/v1/chat") else text_body
    with live.http() as client, connect_sse(client, "POST", path, json=make(stream=True, **body)) as source:
        data = [event.data for event in source.iter_sse()]
    assert data[-1] == "[DONE]"
    assert data.count("[DONE]") == 1
    return source.response, [json.loads(item) for item in data[:-1]]


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Prompt, completion, total. How much of the prompt was known already depends on what ran before."""
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        choice.get("delta", {}).get("content", choice.get("text", ""))
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    )


def test_frames(live: Live) -> None:
    with live.http() as client:
        response = client.post("/v1/chat/completions", json=chat_body(stream=True))
    assert response.headers["content-type"] == "text/event-stream"  # A079
    frames = response.text.split("\n\n")
    assert frames[-1] == ""
    assert frames[-2] == "data: [DONE]"
    assert all(frame.startswith("data: {") for frame in frames[:-2])
    assert not any("\n" in frame for frame in frames)


def test_headers_come_before_the_body(live: Live) -> None:
    response, _ = events(live, foo=1, seed=7)
    assert response.headers["X-miLLM-Backend"] == "serial"
    assert response.headers["X-miLLM-Ignored-Fields"] == '"foo"'
    assert response.headers["X-miLLM-Seed"] == '7;scope="request"'
    assert response.headers["X-miLLM-Mode"] == "generation"
    # The report of a stream is in its last chunk.
    assert "X-miLLM-Steering" not in response.headers
    assert "X-miLLM-Batch" not in response.headers


def test_the_order_of_chunks(live: Live) -> None:
    _, chunks = events(live)
    assert chunks[0]["choices"] == [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]  # A080
    finish = chunks[-1]
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]  # A082
    assert counts(finish["usage"]) == (22, 8, 30)
    assert finish["millm_steering"] == "none"  # A094
    for chunk in chunks[1:-1]:
        assert chunk["choices"][0]["delta"].keys() == {"content"}
        assert "usage" not in chunk  # A083
        assert "millm_steering" not in chunk
    assert "system_fingerprint" not in str(chunks)  # A095
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["model"] == "tiny-llama"


def test_a_stream_gives_the_text_of_the_whole_answer(live: Live) -> None:
    _, chunks = events(live, max_tokens=60)
    assert text_of(chunks) == live.chat(max_tokens=60).json()["choices"][0]["message"]["content"]
    _, chunks = events(live, "/v1/completions", max_tokens=60)
    assert text_of(chunks) == live.text(max_tokens=60).json()["choices"][0]["text"]


def test_text_completions_stream(live: Live) -> None:
    _, chunks = events(live, "/v1/completions")  # A091
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert chunks[0]["choices"][0]["text"]
    assert chunks[-1]["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}]
    assert chunks[-1]["usage"]["completion_tokens"] == 8
    assert chunks[-1]["millm_steering"] == "none"


def test_include_usage(live: Live) -> None:
    _, asked = events(live, stream_options={"include_usage": True})  # A047
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] == 8
    assert "millm_steering" not in asked[-1]
    assert asked[-2]["choices"][0]["finish_reason"] == "length"
    assert asked[-2]["millm_steering"] == "none"
    assert not any("usage" in chunk for chunk in asked[:-1])
    _, declined = events(live, stream_options={"include_usage": False})
    assert not any("usage" in chunk for chunk in declined)
    assert declined[-1]["millm_steering"] == "none"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    "more", [{}, {"n": 3, "seed": 3, "temperature": 1}, {"stream_options": {"include_usage": False}}]
)
def test_every_chunk_has_a_choice(live: Live, path: str, more: dict[str, Any]) -> None:
    _, chunks = events(live, path, **more)
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    # The report comes once, on the chunk that closes the last open choice.
    assert ["millm_steering" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks].count("length") == more.get("n", 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_the_official_loop(live: Live) -> None:
    """As OpenAI's own examples read a stream."""
    with live.sdk() as client:
        stream = client.chat.completions.create(
            model="tiny-llama",
            messages=[{"role": "user", "content": "the quick brown fox"}],
            max_tokens=8,
            temperature=0,
            stream=True,
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == live.chat().json()["choices"][0]["message"]["content"]


def test_reports_in_chunks_of_their_own(live: Live, serve: Callable[..., Live]) -> None:
    own = serve(live.engine, REPORT_CHUNKS="separate")
    for path in ("/v1/chat/completions", "/v1/completions"):
        _, chunks = events(own, path, stream_options={"include_usage": True})
        finish, usage, report = chunks[-3:]
        assert finish["choices"][0]["finish_reason"] == "length"
        assert "millm_steering" not in finish
        assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 8)
        assert (report["choices"], report["millm_steering"]) == ([], "none")


def test_unknown_stream_options_are_reported(live: Live) -> None:
    response, _ = events(live, stream_options={"include_usage": True, "include_obfuscation": False})
    assert response.headers["X-miLLM-Ignored-Fields"] == '"stream_options.include_obfuscation"'


def test_continuous_usage(live: Live) -> None:
    _, chunks = events(live, stream_options={"continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks[1:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks[1:-1]} == {22}


def test_several_choices(live: Live) -> None:
    _, chunks = events(live, n=3, temperature=1.0, max_tokens=6, ignore_eos=True)  # A067
    for index in range(3):
        mine = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert sum("role" in choice["delta"] for choice in mine) == 1
        assert "role" in mine[0]["delta"]
        assert [choice["finish_reason"] for choice in mine if choice["finish_reason"]] == ["length"]
        assert mine[-1]["finish_reason"] == "length"
    with_usage = [chunk for chunk in chunks if "usage" in chunk]
    assert len(with_usage) == 1
    assert with_usage[0] is chunks[-1]
    assert counts(with_usage[0]["usage"]) == (22, 18, 40)


def test_several_choices_of_several_prompts(live: Live) -> None:
    _, chunks = events(live, "/v1/completions", prompt=["the sea", "a language"], n=2, max_tokens=4)
    whole = live.text(prompt=["the sea", "a language"], n=2, max_tokens=4).json()
    assert [text_of(chunks, index) for index in range(4)] == [choice["text"] for choice in whole["choices"]]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stop_string_never_leaks(live: Live, path: str) -> None:
    send = live.chat if "chat" in path else live.text
    whole = _text_in(send(max_tokens=200, ignore_eos=True).json())
    # Long enough to come in several tokens, so that its beginning arrives before its end.
    stop = whole[20:26]
    _, chunks = events(live, path, max_tokens=200, ignore_eos=True, stop=stop)  # A086
    assert text_of(chunks) == whole[: whole.index(stop)]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] < 100
    # Answered as a whole it stops just as early: nobody writes on to cut it afterwards.
    stopped = send(max_tokens=200, ignore_eos=True, stop=stop).json()
    assert _text_in(stopped) == whole[: whole.index(stop)]
    assert stopped["usage"]["completion_tokens"] == chunks[-1]["usage"]["completion_tokens"]


def _text_in(body: dict[str, Any]) -> str:
    """The text of a whole answer's one choice."""
    choice = body["choices"][0]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def test_logprobs_arrive_with_their_text(live: Live) -> None:
    _, chunks = events(live, logprobs=True, top_logprobs=1, max_tokens=10)
    streamed = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in choice.get("logprobs", {"content": []})["content"]
    ]
    whole = live.chat(logprobs=True, top_logprobs=1, max_tokens=10).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in streamed] == [entry["bytes"] for entry in whole]
    assert len(streamed) == 10
    _, chunks = events(live, "/v1/completions", logprobs=1, max_tokens=10)
    tokens = [
        token for c in chunks for choice in c["choices"] for token in (choice["logprobs"] or {"tokens": []})["tokens"]
    ]
    assert len(tokens) == 10


def test_the_first_token_comes_while_the_answer_is_being_written(live: Live) -> None:
    with (
        live.http() as client,
        connect_sse(
            client, "POST", "/v1/chat/completions", json=chat_body(stream=True, max_tokens=LONG, ignore_eos=True)
        ) as s,
    ):
        stream = s.iter_sse()
        assert "role" in next(stream).data
        assert "content" in next(stream).data
        assert live.engine.generation.stats().in_flight == 1  # A085: a lane still runs
    live.wait_idle()


def test_refusals_come_before_the_200(live: Live) -> None:
    for path, body in (
        ("/v1/chat/completions", chat_body(stream=True, max_tokens=5000)),
        ("/v1/completions", text_body(stream=True, max_tokens=5000)),
    ):
        with live.http() as client:
            response = client.post(path, json=body)
        assert response.status_code == 400  # A089
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == "context_length_exceeded"
