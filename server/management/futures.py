"""Waiting for the engine's futures on behalf of a client: one that leaves takes its reading with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from server.context import ServerContext
from server.in_flight import current_exchange

T = TypeVar("T")


async def result_of(context: ServerContext, begin: Callable[[], Future[T]]) -> T:
    """Call ``begin`` (it may read files) off the loop and give the result of the future it returns.

    When the client leaves or the server stops, the future is cancelled, also where it is made only afterwards.
    """
    exchange = current_exchange()
    lock = threading.Lock()
    made: list[Future[T]] = []
    left = False

    def leave() -> None:
        nonlocal left
        with lock:
            left = True
            for future in made:
                future.cancel()

    def call() -> Future[T]:
        future = begin()
        with lock:
            made.append(future)
            if left:
                future.cancel()
        return future

    exchange.on_close(leave)
    future = await context.load(call)
    return await exchange.wait_for(asyncio.wrap_future(future))
