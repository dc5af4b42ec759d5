"""Memory that runs out while an answer is being written: told as such, and forgotten by the next request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from httpx_sse import connect_sse

from engine.engine import Engine
from tests.contract.conftest import Live, chat_body
from tests.contract.stage import CHAT


@contextmanager
def running_out(live: Live, *, after: int = 0) -> Iterator[None]:
    """From pass number ``after`` on, torch finds no memory."""
    loaded = live.engine.shelf.resident
    assert loaded is not None
    passes = 0

    def full(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes > after:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    hook = loaded.backend._model.get_input_embeddings().register_forward_pre_hook(full)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("after", [0, 4], ids=["reading the prompt", "writing the fourth token"])
@pytest.mark.parametrize("changes", [{}, {"seed": 1}, {"n": 2}], ids=["batched", "solo", "two"])
def test_an_answer(live: Live, after: int, changes: dict[str, int]) -> None:
    before = live.chat(max_tokens=24).json()["choices"]
    # Not a prompt that is known by now: its passes are counted.
    messages = [{"role": "user", "content": f"a smile {after} {sorted(changes)}"}]
    with running_out(live, after=after):
        response = live.chat(messages=messages, max_tokens=24, ignore_eos=True, **changes)
    assert response.status_code == 503  # A203
    error = response.json()["error"]
    assert error["code"] == "insufficient_memory"  # A203
    assert error["type"] == "invalid_request_error"  # A203
    assert error["param"] is None
    assert error["message"].startswith("cpu ran out of memory")  # A203: the device, then what was asked for
    assert "prompt tokens and asks for up to 24 more" in error["message"]
    assert response.headers["Retry-After"] == "30"
    live.wait_idle()
    assert live.chat(max_tokens=24).json()["choices"] == before  # A203


def test_a_stream_that_has_begun(live: Live) -> None:
    body = chat_body(stream=True, max_tokens=24, ignore_eos=True, messages=[{"role": "user", "content": "naïve café"}])
    with running_out(live, after=5), live.http() as client, connect_sse(client, "POST", CHAT, json=body) as source:
        events = [event.data for event in source.iter_sse()]
    assert events[-1] == "[DONE]"
    error = json.loads(events[-2])["error"]
    assert (error["code"], error["type"], error["retry_after"]) == ("insufficient_memory", "invalid_request_error", 30)
    live.wait_idle()
    assert live.chat().status_code == 200


def test_others_in_the_batch_are_told_too_and_all_can_come_again(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], tiny_checkpoint: object
) -> None:
    live = serve(own_engine(tiny_checkpoint))
    sea = [{"role": "user", "content": "the sea"}]
    with running_out(live, after=6):
        response = live.chat(extra_messages=[sea, sea], max_tokens=24, ignore_eos=True)
    assert response.status_code == 503
    assert "for each of 3 answers" in response.json()["error"]["message"]
    assert live.chat(extra_messages=[sea, sea]).status_code == 200
