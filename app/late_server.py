"""The API server, with its libraries imported when it is first started: the window must not wait for them to paint."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.settings import Settings
from engine.engine import Engine
from engine.events import RequestRecorded, ServerStateChanged

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

    @property
    def shared(self) -> bool:
        """Whether other machines can reach it while it runs."""
        return self._server is not None and self._server.shared

    @property
    def outdated(self) -> bool:
        """Whether it runs with other settings than those it would be started with now."""
        return self._server is not None and self._server.outdated

    def requests(self) -> tuple[RequestRecorded, ...]:
        """The requests of late, the oldest first."""
        return () if self._server is None else self._server.requests()

    def clear_requests(self) -> None:
        """Forget the requests that have ended."""
        if (server := self._server) is not None:
            server.clear_requests()

    def configure(self, settings: Settings) -> None:
        """Use ``settings`` from the next start on."""
        # No lock: the first start holds it while it imports, and that start reads the settings after it.
        self._settings = settings
        if (server := self._server) is not None:
            server.configure(settings)

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
                self._server.configure(self._settings)
                self._starting = False
        self._server.start(port)

    def restart(self) -> None:
        """Stop it, wait for its end, and start it with the settings in force now. Not for the GUI thread."""
        if (server := self._server) is None:
            self.start()
        elif not self._closed:
            server.restart()

    def stop(self, timeout: float = 1.0) -> None:
        """End open streams, then the server; waits at most ``timeout`` seconds. It can be started again."""
        if (server := self._server) is not None:
            server.stop(timeout)

    def close(self, timeout: float = 1.0) -> None:
        """As :meth:`stop`, for good: a start under way comes to nothing."""
        self._closed = True
        self.stop(timeout)
