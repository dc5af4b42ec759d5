"""A client made of a bare socket, for what well-behaved clients do not do: leave at a chosen moment, read nothing."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any

from tests.contract.conftest import Live


class RawRequest:
    """One POST whose answer is read only as far as the test wants."""

    def __init__(self, live: Live, path: str, body: dict[str, Any], *, receive_buffer: int | None = None) -> None:
        payload = json.dumps(body).encode()
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(60)
        self._socket.connect(("127.0.0.1", live.port))
        self._socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )

    def __enter__(self) -> RawRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def read_until(self, needle: bytes) -> bytes:
        """Everything up to and including the first ``needle``."""
        data = b""
        while needle not in data:
            piece = self._socket.recv(4096)
            assert piece, f"the server closed the connection after {data[-300:]!r}"
            data += piece
        return data

    def read_all(self) -> bytes:
        """Everything until the server closes the connection."""
        data = b""
        while piece := self._socket.recv(65536):
            data += piece
        return data

    def leave(self) -> None:
        """Close the connection without another word."""
        self._socket.close()
