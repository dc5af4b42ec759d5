"""Who is let in: how many requests may wait, how long that may take, and how much text may be held at once.

A lane or a reading that begins is counted with all it may come to hold (its prompt and its cap), and a prompt that is
being read with the store it is read into, so that no answer is ended midway for want of room. What does not fit beside
those that run waits; when nobody runs, anything may begin.
Knows numbers only: the queue and the lanes belong to the scheduler, whose lock guards what is here.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from engine.config import EngineSettings
from engine.counting import MB, plural, so_many
from engine.errors import MillmError, QueueFull
from engine.models.backends.backend import KvNeed

if TYPE_CHECKING:
    from engine.models.backends.backend import Backend


@dataclass(frozen=True)
class QueueStats:
    """The scheduler's figures at one moment.

    ``in_flight`` counts running lanes and readings, ``queue_waiting`` requests without a lane (those whose model is
    being loaded too), ``queue_pending`` waiting and running requests. ``estimated_wait_seconds`` is None until three
    requests have finished.
    """

    in_flight: int
    queue_waiting: int
    queue_pending: int
    max_lanes: int
    max_pending: int
    estimated_wait_seconds: float | None


log = logging.getLogger(__name__)

AUTOMATIC_SHARE = 0.5
"""Of the memory that is free once a model is loaded: the rest is for passes, SAEs and other programs."""


class Admission:
    """The bounds of the queue and of the text held.

    Attributes:
        loading: Requests that wait for their model.
        closed: Why nobody is let in now, if so.
        most_tokens: Tokens that may be held at once, spare room included.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._hold_times: deque[float] = deque(maxlen=settings.QUEUE_DURATION_WINDOW)
        self.most_tokens = 0
        self.loading = 0
        self.closed: MillmError | None = None

    # --- places in the queue ----------------------------------------------------------------------------------------

    def free_lanes(self, in_flight: int) -> int:
        """Lanes nobody has."""
        return max(0, self._settings.MAX_LANES - in_flight)

    def check_open(self, waiting: int, in_flight: int) -> None:
        """Raise the error under which the queue is closed, or :class:`QueueFull`."""
        if self.closed is not None:
            raise self.closed
        if waiting >= self.free_lanes(in_flight):
            self.check_places(waiting, in_flight)

    def check_places(self, waiting: int, in_flight: int) -> None:
        """Raise :class:`QueueFull` unless one more may wait: behind the lanes, or for its model."""
        behind = max(0, waiting - self.free_lanes(in_flight)) + self.loading
        if behind >= self._settings.MAX_PENDING_REQUESTS:
            raise QueueFull(
                f"The queue is full: {so_many(behind, 'request')} {plural(behind, 'waits', 'wait')}, "
                f"{so_many(in_flight, 'answer')} {plural(in_flight, 'is', 'are')} being written.",
                details={"waiting": behind, "max_pending": self._settings.MAX_PENDING_REQUESTS},
                remedy="Send the request again later, or raise MAX_PENDING_REQUESTS.",
                retry_after=self._retry_after(waiting, in_flight),
            )

    def finished_after(self, seconds: float) -> None:
        """A request has ended, ``seconds`` after it left the queue."""
        self._hold_times.append(seconds)

    def estimate(self, waiting: int, in_flight: int) -> float | None:
        """Seconds until a request sent now would begin; None until three have finished."""
        if len(self._hold_times) < 3:
            return None
        return median(self._hold_times) * (waiting + in_flight) / self._settings.MAX_LANES

    def _retry_after(self, waiting: int, in_flight: int) -> int:
        estimate = self.estimate(waiting, in_flight)
        if estimate is None:
            return self._settings.RETRY_AFTER_QUEUE_DEFAULT_S
        return min(self._settings.RETRY_AFTER_MAX_S, max(1, math.ceil(estimate)))

    # --- room for text ----------------------------------------------------------------------------------------------

    def measure(self, backend: Backend | None) -> None:
        """Settle how many tokens may be held, now that ``backend`` is loaded.

        llama.cpp's context has a fixed number of cells. Elsewhere it is ``KV_MEMORY_MB``, or half of the memory that is
        free now, and one full window at least: a request that fits the model must be answered.
        """
        if backend is None:
            self.most_tokens = 0
            return
        if backend.kv_cells is not None:
            self.most_tokens = backend.kv_cells
            return
        # Imported here: this module is loaded before the window is painted, and torch takes seconds.
        from engine.models.hardware.devices import available_memory

        stated = self._settings.KV_MEMORY_MB * MB
        room = stated or int(available_memory(backend.device) * AUTOMATIC_SHARE)
        window = backend.kv_tokens([KvNeed(backend.info.context_length)])
        self.most_tokens = max(room // backend.kv_bytes_per_token, window)
        log.info(
            "running answers may hold %d tokens together, %d MB",
            self.most_tokens,
            self.most_tokens * backend.kv_bytes_per_token // MB,
        )

    def has_room(self, backend: Backend, held: Sequence[KvNeed], more: Sequence[KvNeed]) -> bool:
        """Whether ``more`` may begin beside ``held``."""
        return backend.kv_tokens([*held, *more]) <= self.most_tokens
