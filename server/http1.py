"""HTTP/1.1 and WebSocket as Hypercorn speaks them, and nothing else: this server has no use for HTTP/2.

Hypercorn takes a connection for HTTP/2 when its first bytes or an ``Upgrade: h2c`` say so. A client that asks for the
upgrade gets its answer as HTTP/1.1, which RFC 9110 §7.8 allows; one that begins with HTTP/2 is told that this is no
version spoken here.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import h11
from hypercorn.asyncio.worker_context import EventWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol.h11 import H11Protocol

from server.config import SHUTDOWN_GRACE_S

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that they close first and never write into one being closed. As long
may the lines of a request's head take."""
MAX_SOCKET_MESSAGE = 64 * 1024
VERSIONS = (b"1.0", b"1.1")
BAD_REQUEST, VERSION_NOT_SUPPORTED = 400, 505
_EXTENSIONS = b"sec-websocket-extensions"
_HANDSHAKE = (b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-protocol", b"sec-websocket-version")

PROTECTIVE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
)
"""No foreign page may show an answer in a frame, embed it, or have it taken for what it is not."""


class Http1Config(Config):
    """What Hypercorn's protocols are told."""

    def __init__(self) -> None:
        super().__init__()
        self.graceful_timeout = SHUTDOWN_GRACE_S
        self.keep_alive_timeout = KEEP_ALIVE_S
        self.include_server_header = False
        # Clients of the event socket have nothing to say.
        self.websocket_max_message_size = MAX_SOCKET_MESSAGE
        self.accesslog = None
        logger = logging.getLogger("server.hypercorn")
        logger.setLevel(logging.WARNING)
        self.errorlog = logger

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """Headers of every answer, Hypercorn's own refusals included."""
        return [*super().response_headers(protocol), *PROTECTIVE_HEADERS]


class Http1(H11Protocol):
    """One connection's requests, one after the other."""

    can_read: _Gate

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.can_read = _Gate()
        self.heard = time.monotonic()
        self._refused = False
        self.deaf = False
        """Whether what the client still sends is thrown away."""

    @property
    def waits_for_client(self) -> bool:
        """Whether the next word is the client's: it is silent, or in the midst of a request."""
        return self.connection.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def client_may_be_sending(self) -> bool:
        """Whether it was answered before its request was read to the end, or before its request could be read."""
        return self._refused or self.connection.their_state in (h11.SEND_BODY, h11.ERROR)

    async def handle(self, event: Event) -> None:
        """Take what the connection brings. Raises ``ConnectionResetError`` where a read waits on a client that left."""
        if isinstance(event, Closed):
            self.can_read.leave()
        elif isinstance(event, RawData):
            self.heard = time.monotonic()
            if self.deaf:
                return
        await super().handle(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Every request is answered as it came."""

    async def _create_stream(self, request: h11.Request) -> None:
        if request.http_version not in VERSIONS:
            await self._refuse(VERSION_NOT_SUPPORTED)
        elif not all(value.isascii() for name, value in request.headers if name in _HANDSHAKE):
            # Hypercorn's reader of WebSocket handshakes takes them for ASCII, and fails without an answer.
            await self._refuse(BAD_REQUEST)
        else:
            await super()._create_stream(_without_extensions(request))

    async def _refuse(self, status: int) -> None:
        self._refused = True
        await self._send_error_response(status)
        await self.send(Closed())


def _without_extensions(request: h11.Request) -> h11.Request:
    """``request`` without WebSocket extensions: events are short, and wsproto fails on some that are misspelt."""
    headers = request.headers.raw_items()
    kept = [(name, value) for name, value in headers if name.lower() != _EXTENSIONS]
    if len(kept) == len(headers):
        return request
    return h11.Request(method=request.method, headers=kept, target=request.target, http_version=request.http_version)


class _Gate(EventWrapper):
    """Where reading stops while a request is answered that has another one behind it.

    Hypercorn opens it at the end of the answer, and there is none when the client leaves before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left = False

    def leave(self) -> None:
        """The client is gone; nobody waits here any more."""
        self._left = True
        self._event.set()

    async def wait(self) -> None:
        """Until it is opened. Raises ``ConnectionResetError`` when the client has left."""
        if not self._left:
            await super().wait()
        if self._left:
            raise ConnectionResetError("the client has left")
