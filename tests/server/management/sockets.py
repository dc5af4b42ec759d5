"""A WebSocket client made of a bare socket: what it reads and when it leaves is the test's choice."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, RejectConnection, RejectData, Request, TextMessage

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """The server answered the handshake with something else than a connection."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.body = body

    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value


class EventSocket:
    """A connection to ``path`` on 127.0.0.1:``port``. Raises :class:`Refused` when it is not taken.

    Without ``machine`` the figures of the machine, which come between the others every two seconds, are passed over.
    """

    def __init__(
        self,
        port: int,
        path: str = "/api/events",
        *,
        host: str = "127.0.0.1",
        headers: dict[str, str] | None = None,
        receive_buffer: int | None = None,
        machine: bool = False,
    ) -> None:
        self._unwanted = frozenset() if machine else frozenset({"system:metrics"})
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(60)
        self._socket.connect(("127.0.0.1", port))
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._texts: list[str] = []
        self._partial = ""
        self.close_code: int | None = None
        extra: Headers = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        self._socket.sendall(self._connection.send(Request(host=host, target=path, extra_headers=extra)))
        try:
            self._shake_hands()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> EventSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def next(self) -> dict[str, Any]:
        """The next message."""
        while True:
            while not self._texts:
                assert self.close_code is None, f"the server closed the connection with {self.close_code}"
                self._read()
            message: dict[str, Any] = json.loads(self._texts.pop(0))
            assert message.keys() == {"event", "data"}
            if message["event"] not in self._unwanted:
                return message

    def wait_for(self, event: str, **data: Any) -> dict[str, Any]:
        """The data of the next message of that name whose data has these values; others are passed over."""
        while True:
            message = self.next()
            found: dict[str, Any] = message["data"]
            if message["event"] == event and all(found.get(name) == value for name, value in data.items()):
                return found

    def wait_closed(self) -> int:
        """Read until the server closes the connection; returns its code."""
        while self.close_code is None:
            self._read()
        return self.close_code

    def say(self, text: str) -> None:
        """Send a message."""
        self._socket.sendall(self._connection.send(TextMessage(data=text)))

    def close(self) -> None:
        """Say goodbye as the protocol has it, and wait for the answer."""
        self._socket.sendall(self._connection.send(CloseConnection(code=1000)))
        self.wait_closed()
        self._socket.close()

    def leave(self) -> None:
        """Close the connection without another word."""
        self._socket.close()

    def _shake_hands(self) -> None:
        status, body = 0, b""
        while True:
            data = self._socket.recv(65536)
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                match event:
                    case AcceptConnection():
                        return
                    case RejectConnection():
                        status = event.status_code
                        if not event.has_body:
                            raise Refused(status, b"")
                    case RejectData():
                        body += event.data
                        if event.body_finished:
                            raise Refused(status, body)
            assert data, "the server closed the connection during the handshake"

    def _read(self) -> None:
        data = self._socket.recv(65536)
        self._connection.receive_data(data or None)
        for event in self._connection.events():
            match event:
                case TextMessage():
                    self._partial += event.data
                    if event.message_finished:
                        self._texts.append(self._partial)
                        self._partial = ""
                case CloseConnection():
                    self.close_code = event.code
                    if self._connection.state is ConnectionState.REMOTE_CLOSING:
                        self._socket.sendall(self._connection.send(event.response()))
                    return
