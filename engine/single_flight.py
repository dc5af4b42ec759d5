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


class SingleFlight:
    """Actions under way, each known by its key. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, Future[Any]] = {}

    def run(self, key: Hashable, work: Callable[[], T], *, not_shared: tuple[type[BaseException], ...] = ()) -> T:
        """What ``work`` returns or raises, or what the run of that key under way does; blocks until it is over.

        Args:
            not_shared: What ends one caller's run and says nothing about another's wish, such as a cancellation by
                whoever began it: those who joined begin anew, one of them for all.
        """
        while True:
            mine: Future[Any] = Future()
            with self._lock:
                there = self._under_way.setdefault(key, mine)
            if there is mine:
                return self._carry_out(key, mine, work)
            try:
                result: T = there.result()
            except not_shared:
                continue
            return result

    def running(self, key: Hashable) -> bool:
        """Whether an action of that key is under way."""
        with self._lock:
            return key in self._under_way

    def _carry_out(self, key: Hashable, mine: Future[Any], work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            self._land(key)
            mine.set_exception(error)
            raise
        self._land(key)
        mine.set_result(result)
        return result

    def _land(self, key: Hashable) -> None:
        # Before the result is told: whoever hears of it and asks again begins anew.
        with self._lock:
            del self._under_way[key]
