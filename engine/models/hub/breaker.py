"""A circuit breaker: after several failures in a row a remote service is left alone for a while.

Closed lets every call through. Open lets none through until ``recovery_s`` seconds have passed. Then it is half open:
one call may try, and what becomes of it closes or opens the breaker again. It knows no network and raises nothing: the
caller asks :meth:`CircuitBreaker.allow` before a call and reports afterwards.

    if not breaker.allow():
        raise HubUnavailable(..., retry_after=breaker.retry_after())
    try:
        answer = fetch()
    except NetworkTrouble:
        breaker.failed()
        raise
    breaker.succeeded()

A call that ended otherwise (cancelled, or refused by the service for reasons of its own) reports
:meth:`CircuitBreaker.given_up` or :meth:`CircuitBreaker.succeeded`; every ``allow`` that said yes wants one report.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

HUB = "huggingface_hub"
"""Name of the breaker before the Hugging Face hub."""


class BreakerState(StrEnum):
    """Whether calls are let through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True)
class BreakerFigures:
    """What stands between us and a remote service; ``remaining_seconds`` is null unless it is open.

    Attributes:
        failures: Failures in a row.
        failure_threshold: Failures in a row that open it.
        recovery_seconds: How long it stays open.
        remaining_seconds: How long until a call may try again.
        times_opened: Since the start.
    """

    name: str
    state: BreakerState
    failures: int
    failure_threshold: int
    recovery_seconds: float
    remaining_seconds: float | None
    times_opened: int


class CircuitBreaker:
    """Counts failures in a row. Thread-safe.

    Args:
        threshold: Failures in a row that open it.
        recovery_s: Seconds it stays open.
        clock: Seconds that only grow; for tests.
    """

    def __init__(
        self, name: str, *, threshold: int = 5, recovery_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._threshold = threshold
        self._recovery_s = recovery_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened = 0
        self._open_until: float | None = None
        self._trying = False

    def allow(self) -> bool:
        """Whether a call may be made now. Half open, only the first to ask may."""
        with self._lock:
            state = self._state()
            if state is BreakerState.CLOSED:
                return True
            if state is BreakerState.OPEN or self._trying:
                return False
            self._trying = True
            return True

    def succeeded(self) -> None:
        """The service answered: failures are forgotten."""
        self.reset()

    def failed(self) -> None:
        """The service could not be reached or broke down."""
        with self._lock:
            self._failures += 1
            was_trying, self._trying = self._trying, False
            if was_trying or (self._open_until is None and self._failures >= self._threshold):
                self._opened += 1
                self._open_until = self._clock() + self._recovery_s

    def given_up(self) -> None:
        """The call ended without telling anything about the service."""
        with self._lock:
            self._trying = False

    def reset(self) -> None:
        """Let every call through again."""
        with self._lock:
            self._failures = 0
            self._open_until = None
            self._trying = False

    def retry_after(self) -> int:
        """Whole seconds after which to try again, at least 1."""
        remaining = self.figures().remaining_seconds
        return max(1, math.ceil(remaining or 0.0))

    def figures(self) -> BreakerFigures:
        with self._lock:
            state = self._state()
            remaining = None
            if state is BreakerState.OPEN and self._open_until is not None:
                remaining = self._open_until - self._clock()
            return BreakerFigures(
                self.name, state, self._failures, self._threshold, self._recovery_s, remaining, self._opened
            )

    def _state(self) -> BreakerState:
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock() < self._open_until else BreakerState.HALF_OPEN
