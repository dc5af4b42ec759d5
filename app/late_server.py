"""The API server, with its libraries imported when it is first started: the window must not wait for them to paint."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.settings import Settings
from engine.engine import Engine
from engine.events import ServerStateChanged

if TYPE_CHECKING:
    from server.thread import ServerThread


class LateServer:
    """Behaves like :class:`server.thread.ServerThread`; all methods may be called from any thread.

    Args:
        insecure: Listen beyond this machine without an API key.
    """

    def __init__(self, engine: Engine, settings: Settings, *, insecure: bool) -> None:
        self._engine = engine
        self._settings = settings
        self._insecure = insecure
        self._lock = threading.Lock()
        self._server: ServerThread | None = None
        self._starting = False
        self._closed = False

    @property
    def state(self) -> str:
        """Starting, running, stopped or error (in lower case)."""
        if (server := self._server) is not None:
            return server.state
        return "starting" if self._starting else "stopped"

    @property
    def address(self) -> str | None:
        """The base URL for clients while it runs."""
        return None if self._server is None else self._server.address

    @property
    def error(self) -> str | None:
        """Why it is not running, after a failed start."""
        return None if self._server is None else self._server.error

    def start(self, port: int | None = None) -> None:
        """Start on ``port``. The first call imports the libraries and takes a moment: not for the GUI thread."""
        with self._lock:
            if self._closed:
                return
            if self._server is None:
                self._starting = True
                self._engine.events.publish(ServerStateChanged("starting"))
                from server.thread import ServerThread

                self._server = ServerThread(self._engine, self._settings, insecure=self._insecure)
                self._starting = False
        self._server.start(port)

    def stop(self, timeout: float = 1.0) -> None:
        """End open streams, then the server; waits at most ``timeout`` seconds. It can be started again."""
        if (server := self._server) is not None:
            server.stop(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """As :meth:`stop`, for good: a start under way comes to nothing."""
        self._closed = True
        self.stop(timeout)
