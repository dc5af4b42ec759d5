"""The one object that ends the program: streams and server, engine, window, files, in this order; two seconds at most.

The process then ends by a hard exit, so that what cannot be interrupted (a load inside a library) is left behind, once
the database is closed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)

SECONDS = 1.8
"""For everything together; the rest of the two seconds is the interpreter's."""

SERVER_SECONDS = 0.8
ENGINE_SECONDS = 0.8


class Server(Protocol):
    """The API server: ends open streams first, then itself, for good."""

    def close(self, timeout: float = ...) -> None:
        """Return when it has ended, after ``timeout`` seconds at the latest."""


class Stoppable(Protocol):
    """The engine: cancels requests and loads."""

    def stop(self, timeout: float = ...) -> bool:
        """Return False when something could not be interrupted."""


class Closable(Protocol):
    """The library."""

    def close(self) -> None:
        """Close the file; harmless when repeated."""


class Releasable(Protocol):
    """The claim on the data directory."""

    def release(self) -> None:
        """Give it back; harmless when repeated."""


@dataclass
class Quitter:
    """Knows what runs and ends it in order. Fill in the parts as they are made; quitting twice is harmless.

    Attributes:
        window: Ends what the window still does; called on the thread that quits, before the library is closed.
        hard_exit: Ends the process at once.
    """

    server: Server | None = None
    engine: Stoppable | None = None
    library: Closable | None = None
    instance: Releasable | None = None
    window: Callable[[], None] | None = None
    hard_exit: Callable[[int], object] = os._exit
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        self._once = threading.Lock()
        self._ended = threading.Event()
        self._clean = True

    def quit(self, status: int = 0) -> None:
        """End everything. Returns when it has ended; a watchdog ends the process if that takes too long."""
        if not self._once.acquire(blocking=False):
            self._ended.wait(self.seconds)
            return
        threading.Thread(target=self._watch, args=(status,), name="quit-watchdog", daemon=True).start()
        started = time.monotonic()
        if (server := self.server) is not None:
            self._step("the server", lambda: server.close(SERVER_SECONDS))
        if (engine := self.engine) is not None:
            self._step("the engine", lambda: self._stop_engine(engine))
        if (window := self.window) is not None:
            self._step("the window", window)
        self._close_files()
        log.info("ended in %.2f s", time.monotonic() - started)
        self._ended.set()

    def leave(self, status: int) -> int:
        """The last call of the program, after :meth:`quit`: ends the process with ``status``.

        Always the hard way. Everything that matters has ended by now; Python's own end would wait for threads that are
        stuck in a library and takes a second and more to take torch apart.
        """
        stuck = [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
        if not self._clean or stuck:
            log.info("left behind: %s", ", ".join(stuck) or "a pass of the engine")
        _flush()
        self.hard_exit(status)
        return status

    def _stop_engine(self, engine: Stoppable) -> None:
        self._clean = engine.stop(ENGINE_SECONDS)
        if not self._clean:
            log.warning("the engine could not be interrupted in time and is left behind")

    def _close_files(self) -> None:
        if (library := self.library) is not None:
            self._step("the library", library.close)
        if (instance := self.instance) is not None:
            self._step("the data directory's claim", instance.release)

    def _step(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception:
            # One part that fails to end must not keep the others from ending.
            log.exception("ending %s failed", what)
            self._clean = False

    def _watch(self, status: int) -> None:
        if self._ended.wait(self.seconds):
            return
        log.warning("quitting took longer than %.1f s; leaving now", self.seconds)
        closing = threading.Thread(target=self._close_files, daemon=True)
        closing.start()
        closing.join(0.15)
        _flush()
        self.hard_exit(status)


def _flush() -> None:
    """What a hard exit would lose."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # a pipe whose reader is gone, or a windowed program without a terminal
