"""How fast the scheduler's rounds go: what the last one did, and tokens a second over the rounds of late.

A round is timed whole, since on a GPU a pass has only ended when somebody looks at what it gave. So the rates are those
of answers as they come: a round that reads and writes counts for both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ROUNDS = 64
"""Rounds that a rate is taken over."""


@dataclass(frozen=True)
class Pace:
    """The figures at one moment; None for what was not measured since the model was loaded.

    Attributes:
        round_seconds: What the last round with work took.
        prefill_tokens, prefill_lanes: Prompt tokens read in it, and of how many answers.
        decode_lanes: Answers that got a token in it.
        decode_rate, prefill_rate: Tokens a second, over the last :data:`ROUNDS` rounds that wrote or read any.
        kv_used, kv_total: Tokens that running answers hold, and that they may hold together.
    """

    round_seconds: float | None = None
    prefill_tokens: int | None = None
    prefill_lanes: int | None = None
    decode_lanes: int | None = None
    decode_rate: float | None = None
    prefill_rate: float | None = None
    kv_used: int | None = None
    kv_total: int | None = None


class PaceKeeper:
    """Measures rounds. The engine thread notes; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Another model is there: nothing has been measured of it."""
        with self._lock:
            self._last: tuple[float, int, int, int] | None = None
            self._wrote: deque[tuple[int, float]] = deque(maxlen=ROUNDS)
            self._read: deque[tuple[int, float]] = deque(maxlen=ROUNDS)
            self._tokens = self._lanes = self._decoded = 0

    @contextmanager
    def round(self) -> Iterator[None]:
        """Time what is done inside; one in which nothing is read or written leaves no trace."""
        self._tokens = self._lanes = self._decoded = 0
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        if not self._tokens and not self._decoded:
            return
        with self._lock:
            self._last = (seconds, self._tokens, self._lanes, self._decoded)
            if self._decoded:
                self._wrote.append((self._decoded, seconds))
            if self._tokens:
                self._read.append((self._tokens, seconds))

    def prefilled(self, tokens: int, lanes: int) -> None:
        """A pass has read ``tokens`` of the prompts of ``lanes`` answers."""
        self._tokens += tokens
        self._lanes += lanes

    def decoded(self, lanes: int) -> None:
        """A pass has given each of ``lanes`` answers a token."""
        self._decoded += lanes

    def now(self, kv_used: int | None, kv_total: int | None) -> Pace:
        """The figures, with the two of the memory that the caller knows."""
        with self._lock:
            last = self._last
            rates = _rate(self._wrote), _rate(self._read)
        if last is None:
            return Pace(kv_used=kv_used, kv_total=kv_total)
        seconds, tokens, lanes, decoded = last
        return Pace(seconds, tokens, lanes, decoded, *rates, kv_used, kv_total)


def _rate(rounds: deque[tuple[int, float]]) -> float | None:
    seconds = sum(each for _, each in rounds)
    return sum(tokens for tokens, _ in rounds) / seconds if seconds > 0 else None
