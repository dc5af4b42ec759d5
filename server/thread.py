"""The server's own thread: a loop, a socket and Hypercorn, started and stopped from anywhere.

It brings in the web framework itself, when it is first started: a window must not wait for that to paint.

Nothing here touches signals, which only the main thread may have. Stopping ends the requests under way first (see
``server/in_flight.py``), then Hypercorn, then the loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from typing import TYPE_CHECKING

from engine.checked import there
from engine.engine import Engine
from engine.errors import MillmError, PortInUse, UnsafeBinding
from engine.events import RequestRecorded, ServerStateChanged
from server.aliases import AliasDesk
from server.config import LIVE, SHUTDOWN_GRACE_S, ServerSettings, api_key_of, is_loopback
from server.request_log import RequestLog

if TYPE_CHECKING:
    from quart import Quart

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 0.5
REQUEST_GRACE_S = 0.3
"""How long routes may take to say goodbye when the server stops."""


class ServerThread:
    """The API server of one engine.

    Args:
        insecure: Listen beyond this machine without an API key.
    """

    def __init__(self, engine: Engine, settings: ServerSettings, *, insecure: bool = False) -> None:
        self._engine = engine
        self._settings = settings
        self._insecure = insecure
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._state = "stopped"
        self._address: str | None = None
        self._error: str | None = None
        self._closed = False
        self._aliases = AliasDesk(settings.MODEL_ALIASES)
        self._log = RequestLog(engine.events.publish)

    @property
    def state(self) -> str:
        """Starting, running, stopped or error (in lower case)."""
        with self._lock:
            return self._state

    @property
    def address(self) -> str | None:
        """The base URL for clients, like ``http://127.0.0.1:8000/v1``, while it runs."""
        with self._lock:
            return self._address

    @property
    def error(self) -> str | None:
        """Why it is not running, after a failed start."""
        with self._lock:
            return self._error

    @property
    def shared(self) -> bool:
        """Whether other machines can reach it while it runs."""
        with self._lock:
            run = self._run if self._state == "running" else None
            return run is not None and not is_loopback(run.host)

    @property
    def outdated(self) -> bool:
        """Whether it runs with other settings than those it would be started with now."""
        with self._lock:
            run = self._run if self._state in ("starting", "running") else None
            return run is not None and not run.follows(self._settings)

    def requests(self) -> tuple[RequestRecorded, ...]:
        """The requests of late, the oldest first; they outlive a restart."""
        return self._log.entries()

    def clear_requests(self) -> None:
        """Forget the requests that have ended."""
        self._log.clear()

    def configure(self, settings: ServerSettings) -> None:
        """Use ``settings`` from the next start on, and what is in :data:`LIVE` from now on."""
        self._aliases.use(settings.MODEL_ALIASES)
        with self._lock:
            self._settings = settings

    def restart(self, timeout: float = 10.0) -> None:
        """Stop, wait for the end, and start with the settings in force now; returns when that start has begun.

        On the port it was started on where that was given by hand and ``PORT`` is as it was then. Raises
        ``TimeoutError`` when it had not ended after ``timeout`` seconds.
        """
        with self._lock:
            run = self._run
        self.stop(timeout)
        if run is not None and run.thread.is_alive():
            raise TimeoutError(f"the server had not ended after {timeout:g} s")
        with self._lock:
            port = None if run is None else run.port_with(self._settings)
        self.start(port)

    def start(self, port: int | None = None) -> None:
        """Start on ``port`` (the setting's where None, any free one where 0) and return at once.

        How it went is told by :meth:`wait_ready` and by :class:`ServerStateChanged`. Starting a running server does
        nothing.
        """
        with self._lock:
            if self._closed or (self._run is not None and self._state in ("starting", "running")):
                return
            run = _Run(self, self._engine, self._settings, port, self._insecure)
            self._run = run
        self._change(run, "starting")
        run.thread.start()

    def wait_ready(self, timeout: float) -> str:
        """The address, once connections are taken.

        Raises what kept it from starting (:class:`PortInUse`, :class:`UnsafeBinding` and the like), ``TimeoutError``
        when it is still starting after ``timeout`` seconds, ``RuntimeError`` when it was never started.
        """
        with self._lock:
            run = self._run
        if run is None:
            raise RuntimeError("the server was not started")
        if not run.settled.wait(timeout):
            raise TimeoutError(f"the server was not ready after {timeout:g} s")
        if run.failure is not None:
            raise run.failure
        return there(run.address)

    def stop(self, timeout: float = 1.0) -> None:
        """End open streams, then the server; waits at most ``timeout`` seconds. Harmless when it does not run."""
        with self._lock:
            run = self._run
        if run is None:
            return
        run.request_stop()
        if run.thread.ident is not None and threading.current_thread() is not run.thread:
            run.thread.join(timeout)
            if run.thread.is_alive():
                log.warning("the server's thread was still ending after %g s", timeout)

    def close(self, timeout: float = 1.0) -> None:
        """As :meth:`stop`, for good: a start under way comes to nothing, and there is no other."""
        with self._lock:
            self._closed = True
        self.stop(timeout)

    def _change(self, run: _Run, state: str, *, address: str | None = None, error: str | None = None) -> None:
        """Note and announce a new state; a run that was replaced has nothing to say."""
        with self._lock:
            if self._run is not run:
                return
            self._state, self._address, self._error = state, address, error
        self._engine.events.publish(ServerStateChanged(state, address, error))


class _Run:
    """One start of the server, up to its end. ``settled`` is set when it runs or has failed.

    ``given_port`` is the one named for this start, None for the setting's.
    """

    def __init__(
        self, owner: ServerThread, engine: Engine, settings: ServerSettings, port: int | None, insecure: bool
    ) -> None:
        self.thread = threading.Thread(target=self._main, name="server", daemon=True)
        self.settled = threading.Event()
        self.address: str | None = None
        self.failure: MillmError | None = None
        self._owner = owner
        self._engine = engine
        self._settings = settings
        self.given_port = port
        self._port = settings.PORT if port is None else port
        self._insecure = insecure
        self._lock = threading.Lock()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._settings.HOST

    def follows(self, settings: ServerSettings) -> bool:
        """Whether a start with ``settings`` would give the same server."""
        names = ServerSettings.model_fields.keys() - LIVE
        return all(getattr(self._settings, name) == getattr(settings, name) for name in names)

    def port_with(self, settings: ServerSettings) -> int | None:
        """The port to name for a restart with ``settings``: the one given by hand, unless the setting has moved."""
        return self.given_port if settings.PORT == self._settings.PORT else None

    def request_stop(self) -> None:
        """Ask it to end, from any thread."""
        with self._lock:
            self._stopping = True
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)

    def _main(self) -> None:
        try:
            check_binding(self._settings, insecure=self._insecure)
            with bind(self._settings.HOST, self._port) as listener:
                self._serve(listener)
        except MillmError as error:
            self._fail(error)
        except Exception as error:
            log.exception("the server failed")
            self._fail(MillmError(f"The server failed: {type(error).__name__}: {error}"))
        else:
            self._owner._change(self, "stopped")
        finally:
            self.settled.set()

    def _fail(self, error: MillmError) -> None:
        self.failure = error
        self._owner._change(self, "error", error=error.one_line())
        self.settled.set()

    def _serve(self, listener: socket.socket) -> None:
        from server.app import context_of, create_app

        app = create_app(self._engine, self._settings, self._owner._log, self._owner._aliases)
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._until_stopped(app, listener))
        finally:
            with self._lock:
                self._loop = self._stop = None
            context_of(app).close()
            _finish(loop)

    async def _until_stopped(self, app: Quart, listener: socket.socket) -> None:
        from server.app import context_of
        from server.connections import Connections
        from server.http1 import Http1Config

        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        connections = Connections(app, Http1Config())
        with self._lock:
            self._loop, self._stop = loop, stop
            if self._stopping:
                stop.set()
        port = listener.getsockname()[1]
        self.address = f"http://{_for_url(self._settings.HOST)}:{port}/v1"

        await app.startup()
        taking = asyncio.create_task(connections.take(listener))
        try:
            self._owner._change(self, "running", address=self.address)
            self.settled.set()
            stopping = asyncio.create_task(stop.wait())
            # The first ends only when it fails.
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                taking.result()
            await context_of(app).exchanges.end_all(REQUEST_GRACE_S, connections.abort)
        finally:
            taking.cancel()
            await connections.close(SHUTDOWN_GRACE_S)
            await app.shutdown()


def check_binding(settings: ServerSettings, *, insecure: bool) -> None:
    """Refuse to listen beyond this machine without a key. Raises :class:`UnsafeBinding`."""
    if insecure or is_loopback(settings.HOST) or api_key_of(settings) is not None:
        return
    raise UnsafeBinding(
        f"Listening on {settings.HOST} would let anyone on the network use this server: no API key is set.",
        param="HOST",
        remedy="Set API_KEY, listen on 127.0.0.1, or pass --insecure.",
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket listening on ``host``:``port``. Raises :class:`PortInUse` naming the port, or a typed error."""
    if port and _somebody_answers(host, port):
        raise _port_in_use(host, port)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        exclusive = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
        if exclusive is not None:
            # On Windows SO_REUSEADDR would let two programs share the port.
            listener.setsockopt(socket.SOL_SOCKET, exclusive, 1)
        else:
            # On other systems it only skips the wait after an earlier run.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(128)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise _port_in_use(host, port) from error
        raise MillmError(
            f"The server cannot listen on {host} port {port}: {error}.",
            details={"host": host, "port": port},
            remedy="Choose another address or port.",
        ) from error
    return listener


def _somebody_answers(host: str, port: int) -> bool:
    """Whether a connection to where we want to listen is taken. A bind alone does not tell on every system."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    try:
        with socket.create_connection((target, port), PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def _port_in_use(host: str, port: int) -> PortInUse:
    return PortInUse(
        f"Port {port} on {host} is used by another program.",
        param="PORT",
        details={"host": host, "port": port},
        remedy="Choose another port, or 0 for any free one.",
    )


def _for_url(host: str) -> str:
    """``host`` as clients on this machine write it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return f"[{host}]" if ":" in host else host


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left on ``loop``, let it end, and close the loop. Threads of pools are not waited for."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=SHUTDOWN_GRACE_S))
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()
