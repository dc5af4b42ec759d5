"""The way of deltas from the engine thread to the server's loop, for all requests of one loop together.

A step of the engine ends with a delta for each of its lanes. Waking the loop for each of them would take a system call
and a change of threads each time, in the midst of the engine's own work; so the loop is woken once and then looks for
more until there is none.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import ClassVar

from engine.public.generation import Delta

Take = Callable[[Delta], None]


class Post:
    """One for each loop; see :meth:`of`."""

    _posts: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Post]] = weakref.WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Take, Delta]] = []
        self._awake = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Post:
        """The post of ``loop``. To be called on it."""
        found = cls._posts.get(loop)
        if found is None:
            found = cls._posts[loop] = cls(loop)
        return found

    def put(self, take: Take, delta: Delta) -> None:
        """Have ``take`` called with ``delta`` on the loop, in the order in which things are put. From any thread.

        Raises RuntimeError when the loop is closed.
        """
        with self._lock:
            self._waiting.append((take, delta))
            if self._awake:
                return
            self._awake = True
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError("the loop is gone")
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            with self._lock:
                self._waiting.clear()
                self._awake = False
            raise

    def _deliver(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._awake = bool(waiting)
        for take, delta in waiting:
            take(delta)
        if waiting and (loop := self._loop()) is not None:
            # What comes while these are on their way to their clients needs nobody to wake the loop.
            loop.call_soon(self._deliver)
