"""The engine thread: the one thread that owns the model.

Every forward (prefill, decode, scoring, probes) runs here, either as a tick of the scheduler or as a job. So no lock
guards the weights, and a job that must see no other pass simply runs between two ticks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class EngineThread:
    """Runs jobs and ticks, sleeping when there is neither.

    Args:
        tick: Does one piece of work and returns True while there is more; called again and again on this thread.
        rest: Called on this thread once there has been nothing to do for ``rest_after`` seconds, and then not again
            before there was. Negative: never.
    """

    def __init__(
        self, tick: Callable[[], bool], rest: Callable[[], None] = lambda: None, rest_after: float = -1.0
    ) -> None:
        self._tick = tick
        self._rest = rest
        self._rest_after = rest_after
        self._wakeup = threading.Condition()
        self._jobs: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._poked = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the work in hand; jobs not begun are cancelled. True when the thread has ended within ``timeout``
        s.
        """
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def wake(self) -> None:
        """There may be something to do."""
        with self._wakeup:
            self._poked = True
            self._wakeup.notify()

    def run(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job`` on the engine thread before the next tick; its result or error comes through the future."""
        future: Future[T] = Future()

        def carry_out() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        with self._wakeup:
            if self._stopping:
                future.cancel()
                return future
            self._jobs.append((future, carry_out))
            self._wakeup.notify()
        return future

    def _run(self) -> None:
        more, rested = False, True
        while True:
            with self._wakeup:
                idle = False
                while not (more or self._poked or self._jobs or self._stopping or idle):
                    patience = None if rested or self._rest_after < 0 else self._rest_after
                    idle = not self._wakeup.wait(patience)
                idle = idle and not (self._poked or self._jobs or self._stopping)
                self._poked = False
                jobs = list(self._jobs)
                self._jobs.clear()
                stopping = self._stopping
            for future, job in jobs:
                if stopping:
                    # Whoever waits for the result must not wait for ever.
                    future.cancel()
                else:
                    job()
            if stopping:
                return
            rested = idle
            try:
                if idle:
                    self._rest()
                else:
                    more = self._tick()
            except Exception:
                # A tick answers for its own requests; whatever gets here is a bug, and the thread must outlive it.
                log.exception("a tick of the engine failed")
                more = False
