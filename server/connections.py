"""The server's TCP connections from the accept to the last byte, and how many there may be.

Hypercorn speaks the protocols (``http1.py``); taking connections and letting go of them is done here, because with its
own server

- a client that closes a connection between two requests leaves its socket behind until the keep-alive time is over,
- a client that reads nothing holds its socket for as long as it likes, and cannot be cut when the server stops,
- asyncio's accept writes a hundred lines into the log each time the process is out of files, and takes connections up
  to the last file, so that nothing else can be opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import sys
import time

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr
from quart import Quart

from engine.checked import there
from server.http1 import Http1

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 2048
"""More than any person's clients open; each costs some 100 kB."""
RESERVED_FILES = 256
"""Files left to the rest of the program: models, the database, logs, downloads."""
SEND_STALL_S = 300.0
"""How long a client may take none of what waits for it."""
LEFT_STALL_S = 5.0
"""The same for one that has said its last word."""
LINGER_S = 5.0
"""How long a client that was refused in the midst of its request may go on sending."""
SWEEP_S = 5.0
ACCEPT_RETRY_S = 0.1
COMPLAIN_EVERY_S = 60.0
STREAM_BUFFER = 2**16

_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, 10024, 10055})
"""The last two are Windows' names for the first and the third."""


def room() -> int:
    """How many connections may be open at once in this process."""
    if sys.platform == "win32":
        # Sockets are counted apart from files there, and their limit is far away.
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, max(soft - RESERVED_FILES, soft // 2)))


class Connection(TCPServer):
    """One connection. Hypercorn's, but it ends when its client has closed it, and knows what its client has taken."""

    protocol: Http1  # type: ignore[assignment]

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(app, asyncio.get_running_loop(), config, context, {}, reader, writer)
        self._put = 0
        self._taken = 0
        self._moved = time.monotonic()

    async def run(self) -> None:
        """Serve it to its end. Raises nothing for what a client does."""
        sock = self.writer.get_extra_info("socket")
        try:
            client = parse_socket_addr(sock.family, sock.getpeername())
            server = parse_socket_addr(sock.family, sock.getsockname())
            async with TaskGroup(self.loop) as group:
                self._task_group = group
                self.protocol = Http1(
                    self.app,
                    self.config,
                    self.context,
                    group,
                    ConnectionState(self.state),
                    False,
                    client,
                    server,
                    self.protocol_send,
                )
                await self.idle_task.restart(group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Send, close, or take note that a request has begun or ended."""
        if isinstance(event, RawData):
            self._put += len(event.data)
        elif isinstance(event, Updated) and event.idle and self.reader.at_eof():
            return
        elif isinstance(event, Closed) and self.protocol.client_may_be_sending and not self.reader.at_eof():
            self._linger()
            return
        await super().protocol_send(event)

    @property
    def silent_since(self) -> float | None:
        """When its client was last heard, where the next word is the client's; None while something is done for it."""
        protocol: Http1 | None = getattr(self, "protocol", None)
        return protocol.heard if protocol is not None and protocol.waits_for_client else None

    def abort(self) -> None:
        """Cut it; what was not sent is lost."""
        self.writer.transport.abort()

    def abort_if_stalled(self, now: float) -> None:
        """Cut it when its client has taken nothing for too long of what waits for it."""
        waiting = self.writer.transport.get_write_buffer_size()
        taken = self._put - waiting
        if waiting == 0 or taken != self._taken:
            self._taken, self._moved = taken, now
        elif now - self._moved >= (LEFT_STALL_S if self.reader.at_eof() else SEND_STALL_S):
            self.abort()

    def _linger(self) -> None:
        """Say that this was the last answer, and close when the client has seen it or after ``LINGER_S`` seconds.

        Closing while the client still sends makes the system reset the connection, and it never sees the answer.
        """
        if self.protocol.deaf:
            return
        self.protocol.deaf = True
        try:
            self.writer.write_eof()
        except (OSError, RuntimeError):
            self.abort()
        else:
            self.loop.call_later(LINGER_S, self.abort)

    async def _read_data(self) -> None:
        try:
            await super()._read_data()
        except ConnectionError:
            # The client left while a request of its waited behind another.
            await self.protocol.handle(Closed())
        finally:
            # It would hold the connection, and with it the socket, until the keep-alive time is over.
            await self.idle_task.stop()


class Connections:
    """All connections of one server. Lives on the server's loop.

    Args:
        limit: How many may be open at once. At the limit those that wait for their client are closed, the longest
            silent first; where all are busy, new ones wait with the system until one ends.
    """

    def __init__(self, app: Quart, config: Config, limit: int | None = None) -> None:
        self._app = ASGIWrapper(app)
        self._config = config
        self._context = WorkerContext(None)
        self._limit = room() if limit is None else limit
        self._open: dict[asyncio.Task[None], Connection | None] = {}
        self._one_less = asyncio.Event()
        self._complained: float | None = None

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def take(self, listener: socket.socket) -> None:
        """Accept on ``listener`` until cancelled, whatever goes wrong with one connection."""
        loop = asyncio.get_running_loop()
        sweeping = asyncio.create_task(self._sweep())
        try:
            while True:
                await self._make_room()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:
                    await self._could_not_accept(error)
                    continue
                task = asyncio.create_task(self._serve(accepted))
                self._open[task] = None
                task.add_done_callback(self._ended)
        finally:
            sweeping.cancel()

    def abort(self) -> None:
        """Cut every connection at once; what was not sent is lost."""
        for connection in self._open.values():
            if connection is not None:
                connection.abort()

    async def close(self, grace: float) -> None:
        """Close those that are idle, wait ``grace`` seconds for the others, and cut what is left."""
        await self._context.terminated.set()
        if self._open:
            await asyncio.wait(self._open, timeout=grace)
        self.abort()

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        _watch_over(accepted)
        reader = asyncio.StreamReader(STREAM_BUFFER, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:
            accepted.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = Connection(self._app, self._config, self._context, reader, writer)
        task = there(asyncio.current_task())
        self._open[task] = connection
        await connection

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._one_less.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._complain("a connection failed: %s", error)

    async def _make_room(self) -> None:
        while len(self._open) >= self._limit:
            self._one_less.clear()
            if not self._drop_one():
                self._complain("%d connections are open and all are busy; new ones wait", len(self._open))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ACCEPT_RETRY_S):
                    await self._one_less.wait()

    def _drop_one(self) -> bool:
        """Cut the connection whose client has been silent longest; False where something is done for all of them."""
        silent = [
            (since, each)
            for each in self._open.values()
            if each is not None and (since := each.silent_since) is not None
        ]
        if not silent:
            return False
        min(silent, key=lambda pair: pair[0])[1].abort()
        return True

    async def _could_not_accept(self, error: OSError) -> None:
        """The client left before it was taken, or the process is out of files: later there may be some."""
        if error.errno in _OUT_OF_FILES:
            self._complain("connections cannot be taken: %s", error)
            self._drop_one()
        elif error.errno not in (errno.ECONNABORTED, errno.EPROTO, errno.ECONNRESET):
            self._complain("a connection could not be taken: %s", error)
        await asyncio.sleep(ACCEPT_RETRY_S)

    def _complain(self, words: str, *values: object) -> None:
        """A line in the log, at most one a minute: who causes one causes thousands."""
        now = time.monotonic()
        if self._complained is None or now - self._complained >= COMPLAIN_EVERY_S:
            self._complained = now
            log.warning(words, *values)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for connection in self._open.values():
                if connection is not None:
                    connection.abort_if_stalled(now)


def _watch_over(accepted: socket.socket) -> None:
    """Have the system ask, on a silent connection, whether the other machine is still there."""
    options = [(socket.SOL_SOCKET, "SO_KEEPALIVE", 1), (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 60)]
    with contextlib.suppress(OSError):
        accepted.setblocking(False)
        for level, name, value in options:
            if (number := getattr(socket, name, None)) is not None:
                accepted.setsockopt(level, number, value)
