"""The open TCP connections of the server's loop, so that they can be cut.

A client that reads nothing holds its route in a send. Cancelling the route does not help: closing the connection waits
for the same unread bytes, and Hypercorn gives no access to it. Python 3.13 has ``Server.abort_clients`` for this.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, cast


class Connections:
    """Remembers every connection accepted by servers made on ``loop`` from now on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._open: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        create = loop.create_server

        async def create_server(factory: Callable[[], asyncio.Protocol], *args: Any, **options: Any) -> asyncio.Server:
            return await create(lambda: self._watched(factory()), *args, **options)

        loop.create_server = create_server  # type: ignore[method-assign, assignment]

    def abort(self) -> None:
        """Cut every connection at once; what was not sent is lost."""
        for transport in list(self._open):
            transport.abort()

    def _watched(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        made = protocol.connection_made

        def connection_made(transport: asyncio.BaseTransport) -> None:
            self._open.add(cast(asyncio.Transport, transport))
            made(transport)

        protocol.connection_made = connection_made  # type: ignore[method-assign]
        return protocol
