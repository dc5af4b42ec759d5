"""Deltas reach the loop in order, by one waking for as many as come while it is busy."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.generation.request import Delta, Piece, TextDelta
from engine.generation.text.parts import Kind
from server.generation.mailbox import Post


def delta(number: int) -> Delta:
    return TextDelta(0, (Piece(Kind.CONTENT, str(number)),), number)


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often it is woken from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.wakings = 0

    def call_soon_threadsafe(self, *args: object, **options: object) -> asyncio.Handle:
        self.wakings += 1
        return super().call_soon_threadsafe(*args, **options)  # type: ignore[arg-type]


def test_all_arrive_in_order_and_one_waking_serves_those_that_come_together() -> None:
    loop = CountingLoop()
    arrived: list[Delta] = []

    async def listen() -> None:
        post, full = Post.of(loop), asyncio.Event()

        def take(one: Delta) -> None:
            arrived.append(one)
            if len(arrived) == 8:
                full.set()

        def step() -> None:
            for number in range(8):
                post.put(take, delta(number))

        # The loop is held while they are put, so that none of them can be delivered in between.
        thread = threading.Thread(target=step)
        thread.start()
        thread.join(30)
        before = loop.wakings
        assert before == 1
        await asyncio.wait_for(full.wait(), 30)

    try:
        loop.run_until_complete(listen())
    finally:
        loop.close()
    assert arrived == [delta(number) for number in range(8)]


def test_it_is_woken_again_after_a_pause() -> None:
    loop = CountingLoop()
    arrived: list[Delta] = []

    async def listen() -> None:
        for number in range(3):
            here = asyncio.Event()

            def take(one: Delta, here: asyncio.Event = here) -> None:
                arrived.append(one)
                here.set()

            thread = threading.Thread(target=Post.of(loop).put, args=(take, delta(number)))
            thread.start()
            thread.join(30)
            await asyncio.wait_for(here.wait(), 30)
            # Until it has looked once more and found nothing.
            while Post.of(loop)._awake:
                await asyncio.sleep(0)

    try:
        loop.run_until_complete(listen())
        assert loop.wakings == 3
    finally:
        loop.close()
    assert arrived == [delta(0), delta(1), delta(2)]


def test_a_closed_loop_is_said() -> None:
    loop = CountingLoop()

    async def make() -> Post:
        return Post.of(loop)

    post = loop.run_until_complete(make())
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            post.put(lambda one: None, delta(1))
