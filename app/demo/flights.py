"""One run at a time of what must not be done twice, whoever asks, and a progress that moves.

Who comes second waits with the first and hears how it goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

from engine.moving import Progress as Progress
from engine.moving import moving as moving
from engine.single_flight import SingleFlight

T = TypeVar("T")


def say_nothing(_percent: float, _phrase: str) -> None:
    """A progress nobody wants to hear."""


class _Audience:
    """Those who hear how a run goes."""

    def __init__(self) -> None:
        self.members = 0
        self._lock = threading.Lock()
        self._listeners: list[Progress] = []
        self._last: tuple[float, str] | None = None

    def join(self, progress: Progress) -> None:
        """Hear from now on how it goes, and at once how far it is."""
        with self._lock:
            self._listeners.append(progress)
            last = self._last
        if last is not None:
            progress(*last)

    def begin(self) -> None:
        with self._lock:
            self._last = None

    def say(self, percent: float, phrase: str) -> None:
        """Tell everybody; never less than was told before."""
        with self._lock:
            if self._last is not None:
                percent = max(percent, self._last[0])
            self._last = (percent, phrase)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(percent, phrase)


class Flights:
    """Runs by key, in this process; between processes the data directory's lock stands. Thread-safe."""

    def __init__(self) -> None:
        self._flights = SingleFlight()
        self._lock = threading.Lock()
        self._audiences: dict[Hashable, _Audience] = {}

    def run(self, key: Hashable, task: Callable[[Progress], T], progress: Progress = say_nothing) -> T:
        """Do ``task``, or wait for the one of that key that is under way; both get its outcome, an error included."""
        with self._lock:
            audience = self._audiences.setdefault(key, _Audience())
            audience.members += 1
        try:
            audience.join(progress)

            def work() -> T:
                audience.begin()
                return task(audience.say)

            return self._flights.run(key, work)
        finally:
            with self._lock:
                audience.members -= 1
                if not audience.members:
                    del self._audiences[key]


FLIGHTS = Flights()
"""The process's own."""
