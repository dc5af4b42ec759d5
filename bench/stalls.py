"""Watches an event loop for stalls, and says what each was: the thread's own work, or waiting, and for what."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer

TURN_MS = 5
"""How often the loop is asked for a turn."""


@dataclass(frozen=True)
class Stall:
    """The time between two turns of the loop, less what was asked for; all in ms.

    Attributes:
        own: Time the thread itself computed.
        queued: Time it could have run and had no core: other threads and programs. 0 where the system does not say.
        waited: The rest: another thread held the interpreter, or a lock or file was waited for.
    """

    total: float = 0.0
    own: float = 0.0
    queued: float = 0.0

    @property
    def waited(self) -> float:
        """What is neither computing nor a missing core."""
        return max(0.0, self.total - self.own - self.queued)

    def as_dict(self) -> dict[str, float]:
        """Plain values, rounded to tenths."""
        parts = {"total": self.total, "own": self.own, "queued": self.queued, "waited": self.waited}
        return {name: round(value, 1) for name, value in parts.items()}


class Heart(QObject):
    """Beats in the event loop of the thread it is made on; :meth:`take` gives the longest stall since the last time."""

    def __init__(self) -> None:
        super().__init__()
        self._queued = _Queued()
        self._timer = QTimer(self)
        self._timer.setInterval(TURN_MS)
        self._timer.timeout.connect(self._beat)
        self._longest = Stall()
        self._last = self._read()
        self._timer.start()

    def take(self) -> Stall:
        """The longest stall since the last call, the one under way included."""
        self._beat()
        found, self._longest = self._longest, Stall()
        return found

    def _beat(self) -> None:
        now = self._read()
        total, own, queued = (1000 * (new - old) for new, old in zip(now, self._last, strict=True))
        self._last = now
        if total - TURN_MS > self._longest.total:
            self._longest = Stall(total - TURN_MS, own, queued)

    def _read(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.thread_time(), self._queued.seconds()


class _Queued:
    """Seconds this thread has been ready to run without a core so far; Linux alone tells, elsewhere 0."""

    def __init__(self) -> None:
        self._file = -1
        if sys.platform != "linux":
            return
        # Called so that the interpreter is kept: a read that let go of it would wait for it, and be part of the stall.
        self._read = ctypes.PyDLL(None).pread
        self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
        self._buffer = ctypes.create_string_buffer(80)
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def seconds(self) -> float:
        """The figure now."""
        if self._file < 0:
            return 0.0
        length = self._read(self._file, self._buffer, len(self._buffer), 0)
        parts = self._buffer.raw[: max(0, length)].split()
        return int(parts[1]) / 1e9 if len(parts) > 1 else 0.0
