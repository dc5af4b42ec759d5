"""The register of requests under way: what each must let go of, and how all are ended when the server stops.

Measured: Hypercorn waits its whole grace period for an open stream and then destroys the handler's task without running
its ``finally``. So the server ends its own requests first (:meth:`Exchanges.end_all`) and only then asks Hypercorn to
stop.

Quart answers a dropped client by cancelling the handler's task. That alone is not enough: ``asyncio.wait_for`` swallows
a cancellation that comes together with its result (Python 3.11; Quart reads bodies with it), and a generator that was
never begun runs no ``finally``. So the middleware looks for ``http.disconnect`` itself, and what must be let go of is
kept here as callbacks, which run on every way out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from engine.checked import there
from server.errors import ServerStopping
from server.request_log import RequestLog, RequestNotes

log = logging.getLogger(__name__)

T = TypeVar("T")
ASGIApp = Callable[..., Awaitable[None]]

MAX_LOGGED_PATH = 200


class Exchange:
    """One HTTP request or WebSocket from its first line to its last byte, or to the moment its client leaves.

    Attributes:
        task: Serves the ASGI call.
        client_left: The connection is gone.
        notes: What is learnt about it, for the log of requests.
        route: The pattern of the route that takes it; None until one does.
    """

    def __init__(self, task: asyncio.Task[Any], notes: RequestNotes | None = None) -> None:
        self.task = task
        self.notes = notes if notes is not None else RequestNotes()
        self.client_left = False
        self.route: str | None = None
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the exchange is over, however it ended."""
        self._callbacks.append(callback)
        if self.client_left:
            self.close()

    def stop(self) -> None:
        """The server is being stopped: whatever the route waits for ends with :class:`ServerStopping`."""
        if not self._stop.done():
            self._stop.set_result(None)

    def leave(self) -> None:
        """The client has left: whatever the route waits for is cancelled."""
        self.client_left = True
        self.stop()
        self.close()

    def close(self) -> None:
        """Run the callbacks, the newest first."""
        while self._callbacks:
            self._callbacks.pop()()

    def check(self) -> None:
        """Raise :class:`ServerStopping` when the server is stopping, ``CancelledError`` when the client has left."""
        if self.client_left:
            raise asyncio.CancelledError
        if self._stop.done():
            raise ServerStopping

    async def ready(self, task: asyncio.Future[Any], timeout: float | None = None) -> bool:
        """Whether ``task`` is done within ``timeout`` s; it goes on either way. Raises as :meth:`check`."""
        await asyncio.wait({task, self._stop}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return True
        self.check()
        return False

    async def wait_for(self, awaitable: Awaitable[T]) -> T:
        """The result of ``awaitable``, which is dropped when the client leaves or the server stops."""
        task = asyncio.ensure_future(awaitable)
        try:
            await self.ready(task)
            return task.result()
        finally:
            task.cancel()


_current: ContextVar[Exchange] = ContextVar("exchange")


def current_exchange() -> Exchange:
    """The exchange of the request being handled."""
    return _current.get()


Ended = Callable[[Exchange, str, int, float], None]
"""Told of an exchange that is over, with its method, its status (0: nothing was sent) and its seconds."""


class Exchanges:
    """ASGI middleware that keeps the register and the request log. Lives on the server's loop."""

    def __init__(self, app: ASGIApp, requests: RequestLog | None = None) -> None:
        self._app = app
        self._requests = requests
        self._open: set[Exchange] = set()
        self._listeners: list[Ended] = []
        self.closing = False

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        task = there(asyncio.current_task())
        exchange = Exchange(task, None if self._requests is None else self._requests.begin(scope))
        # Quart's task for the route starts with a copy of this context.
        _current.set(exchange)
        if self.closing:
            exchange.stop()
        self._open.add(exchange)
        began = time.monotonic()
        status, whole = 0, False

        async def noting_send(message: dict[str, Any]) -> None:
            nonlocal status, whole
            kind = message["type"].removeprefix("websocket.").removeprefix("http.")
            if kind == "response.start":
                status = message["status"]
            elif kind == "accept":
                status = 101
            whole = kind == "close" or (kind == "response.body" and not message.get("more_body", False))
            await send(message)

        async def noting_receive() -> dict[str, Any]:
            nonlocal whole
            message: dict[str, Any] = await receive()
            if message["type"] in ("http.disconnect", "websocket.disconnect"):
                # A WebSocket has no other end than this.
                whole = whole or message["type"] == "websocket.disconnect"
                exchange.leave()
            return message

        try:
            await self._app(scope, noting_receive, noting_send)
        finally:
            exchange.close()
            self._open.discard(exchange)
            # Neither query nor body: they may hold what a person wrote. raw_path is percent-encoded, so it cannot
            # forge a line.
            path = scope["raw_path"].decode("ascii", "replace")[:MAX_LOGGED_PATH]
            seconds = time.monotonic() - began
            method = scope.get("method", "WEBSOCKET")
            log.info("%s %s %d %.3f s%s", method, path, status, seconds, "" if whole else ", cut short")
            for ended in self._listeners:
                ended(exchange, method, status, seconds)
            if self._requests is not None:
                self._requests.finish(exchange.notes, status, seconds, cut_short=not whole)

    def on_end(self, listener: Ended) -> None:
        """Call ``listener`` whenever an exchange is over."""
        self._listeners.append(listener)

    async def end_all(self, grace: float, cut: Callable[[], None]) -> None:
        """End every request: routes get ``grace`` seconds to say goodbye, then ``cut`` ends their connections."""
        self.closing = True
        for exchange in self._open:
            exchange.stop()
        if await self._all_gone(grace):
            return
        # A client that does not read holds its route in a send.
        cut()
        if not await self._all_gone(grace):
            log.warning("%d requests did not end when the server was stopped", len(self._open))

    async def _all_gone(self, timeout: float) -> bool:
        tasks = [exchange.task for exchange in self._open]
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=timeout)
        return not pending
