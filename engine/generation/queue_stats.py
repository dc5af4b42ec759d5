"""What the queue says of itself, for health reports, headers and the window."""

from __future__ import annotations

from dataclasses import dataclass


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
