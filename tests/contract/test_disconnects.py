"""A client that leaves frees its lane, streaming or not, whether it was queued, being read or being answered."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.contract.conftest import ENDLESS, MODEL, Live, chat_body, text_body
from tests.contract.raw import RawRequest
from tests.waiting import wait_until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LONG_PROMPT = "the sea was calm and the ship went slowly along the coast in the evening " * 2500
"""Tens of thousands of tokens: read in hundreds of chunks."""


def endless(path: str, **more: Any) -> dict[str, Any]:
    make = chat_body if path == CHAT else text_body
    return make(max_tokens=ENDLESS, ignore_eos=True, **more)


def _in_flight(live: Live) -> int:
    return live.engine.generation.stats().in_flight


def _waiting(live: Live) -> int:
    return live.engine.generation.stats().queue_waiting


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [True, False])
def test_while_the_answer_is_written(narrow: Live, path: str, stream: bool) -> None:
    with RawRequest(narrow, path, endless(path, stream=stream)) as request:  # A088
        if stream:
            request.read_until(b'"text"' if path == TEXT else b'"content"')
        wait_until(lambda: _in_flight(narrow) == 1, "a running lane")
        request.leave()
    wait_until(
        lambda: narrow.engine.generation.stats().queue_pending == 0, "the lane of the client that left to be free"
    )
    assert narrow.chat().status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_while_the_prompt_is_read(narrow: Live, stream: bool) -> None:
    body = text_body(prompt=LONG_PROMPT, max_tokens=4, stream=stream)
    with RawRequest(narrow, TEXT, body) as request:
        wait_until(lambda: _in_flight(narrow) == 1, "a lane that reads its prompt")
        request.leave()
    wait_until(
        lambda: narrow.engine.generation.stats().queue_pending == 0, "the lane of the client that left to be free"
    )


@pytest.mark.parametrize("stream", [True, False])
def test_while_queued(narrow: Live, stream: bool) -> None:
    # One runs, three wait, two of them leave: exactly one is left to run.
    with RawRequest(narrow, CHAT, endless(CHAT, stream=stream)) as running, ExitStack() as stack:
        wait_until(lambda: _in_flight(narrow) == 1, "the first to run")
        queued = [stack.enter_context(RawRequest(narrow, CHAT, endless(CHAT, stream=stream))) for _ in range(3)]
        wait_until(lambda: _waiting(narrow) == 3, "three to wait")
        queued[0].leave()
        queued[2].leave()
        wait_until(lambda: _waiting(narrow) == 1, "two to have left the queue")
        assert _in_flight(narrow) == 1  # A202: the lane limit is as before
        running.leave()
        wait_until(lambda: (_in_flight(narrow), _waiting(narrow)) == (1, 0), "the one that stayed to run")
        queued[1].leave()
    wait_until(lambda: narrow.engine.generation.stats().queue_pending == 0, "all to be gone")


def test_fifty_times_and_then_an_ordinary_call(narrow: Live) -> None:
    for turn in range(50):
        with RawRequest(narrow, CHAT, endless(CHAT, stream=turn % 2 == 0)) as request:
            if turn % 4 == 0:
                request.read_until(b'"content"')
            request.leave()
    wait_until(lambda: narrow.engine.generation.stats().queue_pending == 0, "nothing to be left over")
    assert narrow.chat().json()["usage"]["completion_tokens"] == 8


def test_with_the_sdk_closing_its_stream(narrow: Live) -> None:
    with narrow.sdk() as client:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "the quick brown fox"}],
            max_tokens=ENDLESS,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        seen = iter(stream)
        next(seen)
        next(seen)
        assert _in_flight(narrow) == 1
        stream.close()
        wait_until(lambda: _in_flight(narrow) == 0, "the lane count to drop")
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "again"}], max_tokens=3
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 3


def test_before_the_body_has_come(narrow: Live) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", narrow.port)) as half:
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{")
    assert narrow.chat().status_code == 200


def test_a_choice_of_several_frees_all_its_lanes(live: Live) -> None:
    body = chat_body(n=4, stream=True, max_tokens=1500, ignore_eos=True, temperature=1.0)
    with RawRequest(live, CHAT, body) as request:
        request.read_until(b'"content"')
        wait_until(lambda: _in_flight(live) == 4, "four lanes")
        request.leave()
    wait_until(lambda: live.engine.generation.stats().queue_pending == 0, "all four lanes to be free")
