"""One long action at a time for each thing it is done to: whoever asks for the same again waits for it and shares what
came of it.

Which actions are the same is said by a key that holds everything their outcome depends on: a second click, or the
other face, gets the first one's result instead of a race with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Flight:
    """One run. ``after`` is the one that those who joined share where this one's end is not theirs."""

    def __init__(self) -> None:
        self.outcome: Future[Any] = Future()
        self.joined = 0
        self.after: _Flight | None = None


class SingleFlight:
    """Actions under way, each known by its key. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, _Flight] = {}

    def run(self, key: Hashable, work: Callable[[], T], *, not_shared: tuple[type[BaseException], ...] = ()) -> T:
        """What ``work`` returns or raises, or what the run of that key under way does; blocks until it is over.

        Args:
            not_shared: What ends one caller's run and says nothing about another's wish, such as a cancellation by
                whoever began it: those who joined begin anew, one of them for all.
        """
        mine = _Flight()
        with self._lock:
            joined = self._under_way.setdefault(key, mine)
            joined.joined += joined is not mine
        while joined is not mine:
            try:
                result: T = joined.outcome.result()
            except not_shared:
                joined, mine = self._next(key, joined)
            else:
                return result
        return self._carry_out(key, mine, work)

    def running(self, key: Hashable) -> bool:
        """Whether an action of that key is under way."""
        with self._lock:
            return key in self._under_way

    def waiting(self, key: Hashable) -> int:
        """Callers who joined the action of that key that is under way."""
        with self._lock:
            flight = self._under_way.get(key)
            return 0 if flight is None else flight.joined

    def _next(self, key: Hashable, ended: _Flight) -> tuple[_Flight, _Flight]:
        """The run that follows ``ended`` for all who joined it, also for one that hears of its end after that run's
        own; and the caller's, the same where it is the one to carry it out.
        """
        mine = _Flight()
        with self._lock:
            if ended.after is None:
                ended.after = self._under_way.setdefault(key, mine)
            ended.after.joined += ended.after is not mine
            return ended.after, mine

    def _carry_out(self, key: Hashable, mine: _Flight, work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            self._land(key)
            mine.outcome.set_exception(error)
            raise
        self._land(key)
        mine.outcome.set_result(result)
        return result

    def _land(self, key: Hashable) -> None:
        # Before the result is told: whoever hears of it and asks again begins anew.
        with self._lock:
            del self._under_way[key]
