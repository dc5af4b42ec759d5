"""Backpressure: the queue's limit, Retry-After, the window, and requests that meet an unload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import openai
import pytest

from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import ENDLESS, MODEL, Live, chat_body
from tests.contract.raw import RawRequest
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"


@contextmanager
def full_queue(live: Live) -> Iterator[None]:
    """The narrow engine with its lane and all three places of its queue taken."""
    with ExitStack() as stack:
        for taken in range(1, 5):
            stack.enter_context(RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True)))
            wait_until(lambda taken=taken: live.engine.generation.stats().queue_pending == taken, f"{taken} requests")  # type: ignore[misc]
        yield


@pytest.mark.parametrize("stream", [True, False])
def test_a_full_queue_refuses(narrow: Live, stream: bool) -> None:
    with full_queue(narrow):
        response = narrow.chat(stream=stream)  # A092
        assert response.status_code == 503
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == "queue_full"
        assert response.json()["error"]["type"] == "server_error"
        assert 1 <= int(response.headers["Retry-After"]) <= 60
        with narrow.sdk() as client, pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
        assert caught.value.status_code == 503
        assert caught.value.code == "queue_full"
        assert int(caught.value.response.headers["Retry-After"]) >= 1
    narrow.wait_idle()
    assert narrow.chat().status_code == 200


def test_the_figures_of_a_full_queue(narrow: Live) -> None:
    with full_queue(narrow), narrow.http() as client:
        figures = client.get("/api/health/detailed").json()["inference"]
        assert (figures["in_flight"], figures["queue_waiting"], figures["queue_pending"]) == (1, 3, 4)
        assert (figures["queue_max_concurrent"], figures["queue_max_pending"]) == (1, 3)
        assert client.get("/api/health/ready").json()["status"] == "degraded"


def test_twelve_at_once_on_a_queue_of_ten(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama", max_positions=65536), MAX_LANES=1, MAX_PENDING_REQUESTS=10)
    live = serve(engine)
    with RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True)) as holder:
        wait_until(lambda: engine.generation.stats().in_flight == 1, "the lane to be taken")
        with ThreadPoolExecutor(11) as pool:
            answers = [pool.submit(live.chat) for _ in range(11)]
            wait_until(lambda: sum(a.done() for a in answers) == 1, "the eleventh that waits to be refused")
            refused = next(a.result() for a in answers if a.done())
            assert refused.status_code == 503  # A197
            assert int(refused.headers["Retry-After"]) >= 1
            holder.leave()
            assert sorted(a.result().status_code for a in answers) == [200] * 10 + [503]


def test_eight_chats_at_once_get_their_own_answers(live: Live) -> None:
    prompts = [
        f"{word} and the old forest" for word in ("sea", "fox", "ship", "dog", "café", "token", "evening", "東京")
    ]
    # The penalty keeps the tiny model from answering everything with one word.
    options = {"max_tokens": 48, "repetition_penalty": 1.5}
    alone = [live.chat(messages=[{"role": "user", "content": p}], **options).json()["choices"] for p in prompts]
    assert len({str(choices) for choices in alone}) == 8

    def ask(prompt: str) -> str:
        with live.sdk() as client:
            answer = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": prompt}], temperature=0, extra_body=options
            )
        return answer.choices[0].message.content or ""

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, prompts))
    assert together == [choices[0]["message"]["content"] for choices in alone]


def test_a_seeded_request_among_others(live: Live) -> None:
    alone = live.chat(seed=3, temperature=1.0, max_tokens=32).json()["choices"]
    with ThreadPoolExecutor(5) as pool:
        others = [pool.submit(live.chat, temperature=1.0, max_tokens=64) for _ in range(4)]
        seeded = pool.submit(live.chat, seed=3, temperature=1.0, max_tokens=32).result()
        assert all(other.result().status_code == 200 for other in others)
    assert seeded.json()["choices"] == alone  # A175
    assert seeded.headers["X-miLLM-Backend"] == "serial"


def test_the_window_is_exact(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    live = serve(own_engine(checkpoint("llama", max_positions=64)))
    prompt_tokens = live.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    room = 64 - prompt_tokens
    fits = live.chat(max_tokens=room, ignore_eos=True)
    assert fits.status_code == 200  # A206
    assert fits.json()["usage"]["total_tokens"] == 64
    for stream in (False, True):
        refused = live.chat(max_tokens=room + 1, stream=stream)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["type"] == "invalid_request_error"
        assert "64" in error["message"]
        assert str(prompt_tokens) in error["message"]
        assert str(room + 1) in error["message"]
    # Without a cap the rest of the window is written.
    assert live.chat(max_tokens=..., ignore_eos=True).json()["usage"]["total_tokens"] == 64  # A008
    too_long = live.text(prompt="the quick brown fox " * 100, max_tokens=...)
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"


def test_an_unload_refuses_newcomers_and_lets_the_running_finish(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama", max_positions=65536), GRACEFUL_UNLOAD_TIMEOUT=120)
    live = serve(engine)
    with RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)) as holder:
        holder.read_until(b'"content"')
        unloading = engine.loader.unload()
        for stream in (False, True):
            refused = live.chat(stream=stream)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "model_busy"
            assert int(refused.headers["Retry-After"]) >= 1
        holder.leave()
    unloading.result(60)
    assert engine.shelf.resident is None
    # The next request that names it loads it again.
    assert live.chat().status_code == 200


def test_an_unload_that_does_not_wait_ends_the_stream_with_an_event(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama", max_positions=65536), GRACEFUL_UNLOAD_TIMEOUT=0)
    live = serve(engine)
    with RawRequest(live, CHAT, chat_body(max_tokens=ENDLESS, ignore_eos=True, stream=True)) as holder:
        holder.read_until(b'"content"')
        engine.loader.unload().result(60)
        rest = holder.read_until(b"data: [DONE]\n\n")
    assert b'"code":"model_busy","retry_after":5' in rest
    assert b"millm_steering" not in rest
