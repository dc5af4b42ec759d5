"""One submitted request as a route sees it: its deltas until it ends, its client leaves or the server stops."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engine.errors import MillmError
from engine.public.generation import (
    ChoiceFinished,
    Delta,
    GenerationService,
    PreparedRequest,
    RequestFailed,
    RequestFinished,
    Started,
    TextDelta,
)
from server.generation.mailbox import Post
from server.in_flight import Exchange

Piece = TextDelta | ChoiceFinished | RequestFinished
"""What follows the start."""


class GenerationInterrupted(Exception):
    """Carries the error that ended a request which had been submitted; its OpenAI type may differ from a refusal's."""

    def __init__(self, error: MillmError) -> None:
        super().__init__(error.message)
        self.error = error


class Running:
    """A request from its submission to its end. Raises what ``submit`` raises, before anything of the answer was sent.

    Args:
        exchange: The HTTP exchange that waits for it. When that is over, on any way, the request is cancelled and
            its lane is free within a token.
    """

    def __init__(self, service: GenerationService, prepared: PreparedRequest, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Delta] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._handle = service.submit(prepared, self._sink(Post.of(self._loop)))
        exchange.on_close(self.close)

    @property
    def behind(self) -> bool:
        """Whether more deltas wait already: the client reads more slowly than the model writes."""
        return bool(self._arrived)

    async def started(self) -> Started:
        """Wait until it leaves the queue. Raises :class:`GenerationInterrupted`, :class:`ServerStopping`."""
        delta = await self._next(None)
        if not isinstance(delta, Started):
            raise TypeError(f"a request began with {type(delta).__name__}")
        return delta

    async def next(self, patience: float | None = None) -> Piece | None:
        """The next delta; None when none came within ``patience`` seconds. Raises as :meth:`started`."""
        delta = await self._next(patience)
        if delta is None or isinstance(delta, TextDelta | ChoiceFinished | RequestFinished):
            return delta
        raise TypeError(f"a request went on with {type(delta).__name__}")

    def close(self) -> None:
        """Let go of it. Harmless when it has ended."""
        self._handle.cancel()
        if self._waiter is not None:
            self._waiter.cancel()

    async def _next(self, patience: float | None) -> Delta | None:
        self._exchange.check()
        if self.behind:
            # Without a pause a long backlog would keep the loop from noticing that the client has left.
            await asyncio.sleep(0)
        else:
            self._waiter = self._loop.create_future()
            try:
                if not await self._exchange.ready(self._waiter, patience):
                    return None
                self._waiter.result()
            finally:
                self._waiter = None
        delta = self._arrived.popleft()
        if isinstance(delta, RequestFailed):
            raise GenerationInterrupted(delta.error)
        return delta

    def _take(self, delta: Delta) -> None:
        self._arrived.append(delta)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _sink(self, post: Post) -> Callable[[Delta], None]:
        notes = self._exchange.notes

        def sink(delta: Delta) -> None:
            notes.heard(delta)
            try:
                post.put(self._take, delta)
            except RuntimeError:
                # The loop is closed: the server has stopped, and nobody reads this answer any more.
                self._handle.cancel()

        return sink
