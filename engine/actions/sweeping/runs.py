"""The sweeps of this session: one runs at a time on a thread of its own, and the last ones are kept in memory.

The window and the API start, follow and end them here, so each shows what the other began.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from engine.actions.sweeping.settings import (
    CellResult,
    ColumnMeans,
    SweepBase,
    SweepOutcome,
    SweepSettings,
    means,
)
from engine.errors import GenerationFailed, MillmError, NotFound, NothingToCancel
from engine.events import EventBus, SweepComplete, SweepProgress, SweepsChanged


class SweepRunning(MillmError):
    """A sweep is under way, and one runs at a time."""

    code = "sweep_running"


log = logging.getLogger(__name__)

MOST_KEPT = 8
"""Sweeps kept in memory; the oldest ended one is forgotten first."""

HANDOVER_S = 20.0
"""How long a new sweep waits for one that was cancelled to let go of its lanes."""

OnCell = Callable[[CellResult], None]


class Sweep(Protocol):
    """A sweep that is ready to run; ``facts`` say what it runs on."""

    facts: Mapping[str, str]

    def outcome(self) -> SweepOutcome:
        """Run it to its end; see :meth:`engine.actions.sweeping.SweepActions.run`."""
        ...


Prepare = Callable[[OnCell, threading.Event], Sweep]
"""Makes a sweep ready, given who is told of its cells and what ends it early."""


class SweepState(StrEnum):
    """Where a sweep stands."""

    RUNNING = "running"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class SweepRun:
    """A sweep as far as it has come.

    Attributes:
        cells: Answers so far, in the order they came.
        facts: What it runs on; name → text.
        error: Why it ended before it was complete; None unless it failed.
    """

    id: str
    state: SweepState
    settings: SweepSettings
    base: SweepBase
    cells: tuple[CellResult, ...]
    facts: Mapping[str, str]
    started_at: datetime
    ended_at: datetime | None = None
    error: MillmError | None = None

    @property
    def failed(self) -> int:
        """Cells without an answer."""
        return sum(cell.error is not None for cell in self.cells)

    def means(self) -> tuple[ColumnMeans, ...]:
        """The means of each column that has an answer."""
        return means(self.cells, self.settings.intensities)

    def outcome(self) -> SweepOutcome:
        """The sweep as it is exported."""
        complete = self.state is SweepState.COMPLETE
        return SweepOutcome(self.settings, self.base, self.cells, self.facts, complete)


@dataclass
class _Job:
    """A sweep's own state, guarded by the book's lock."""

    id: str
    settings: SweepSettings
    base: SweepBase
    started_at: datetime
    facts: Mapping[str, str] = field(default_factory=dict)
    cells: list[CellResult] = field(default_factory=list)
    state: SweepState = SweepState.RUNNING
    ended_at: datetime | None = None
    error: MillmError | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def seen(self) -> SweepRun:
        return SweepRun(
            self.id,
            self.state,
            self.settings,
            self.base,
            tuple(self.cells),
            self.facts,
            self.started_at,
            self.ended_at,
            self.error,
        )


class SweepBook:
    """Starts sweeps and remembers them. All methods may be called from any thread but the engine's."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._closed = False

    def start(self, settings: SweepSettings, base: SweepBase, prepare: Prepare) -> SweepRun:
        """Begin a sweep. Waits for one that was cancelled to end.

        Raises :class:`SweepRunning` while another one runs, and whatever ``prepare`` raises.
        """
        leaving = self._leaving()
        if leaving is not None:
            leaving.ended.wait(HANDOVER_S)
        job = _Job(secrets.token_hex(8), settings, base, datetime.now(UTC))
        sweep = prepare(lambda cell: self._take(job, cell), job.stop)
        job.facts = sweep.facts
        with self._lock:
            for other in self._jobs.values():
                if not other.ended.is_set():
                    raise SweepRunning(
                        f"A sweep of {other.base.name} is under way: {len(other.cells)} of {other.settings.cells} "
                        "answers are there. One runs at a time.",
                        details={"sweep_id": other.id, "done": len(other.cells), "total": other.settings.cells},
                        remedy="Wait until it has ended, or cancel it.",
                    )
            while len(self._jobs) >= MOST_KEPT:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[job.id] = job
            begun = job.seen()
            if self._closed:
                job.stop.set()
        self._events.publish(SweepsChanged())
        self._tell(job, 0)
        threading.Thread(target=self._carry_out, args=(job, sweep), name=f"sweep-{job.id}", daemon=True).start()
        return begun

    def list(self) -> tuple[SweepRun, ...]:
        """Every sweep that is kept, newest first."""
        with self._lock:
            return tuple(job.seen() for job in reversed(self._jobs.values()))

    def get(self, sweep_id: str) -> SweepRun:
        """One sweep. Raises :class:`NotFound`."""
        with self._lock:
            return self._require(sweep_id).seen()

    def cancel(self, sweep_id: str) -> SweepRun:
        """End a sweep; what is written stays. It lets go of its lanes within a token.

        Raises :class:`NotFound`, and :class:`NothingToCancel` for one that has ended.
        """
        with self._lock:
            job = self._require(sweep_id)
            if job.state is not SweepState.RUNNING:
                raise NothingToCancel(
                    f"The sweep {sweep_id!r} is not running: it is {job.state.value}.",
                    details={"sweep_id": sweep_id, "state": job.state.value},
                )
            job.stop.set()
            return job.seen()

    def remove(self, sweep_id: str) -> SweepRun:
        """Forget a sweep; one that runs is ended first. Raises :class:`NotFound`."""
        with self._lock:
            job = self._require(sweep_id)
            job.stop.set()
        # Not forgotten before: a sweep that nobody can see must hold no lane.
        job.ended.wait(HANDOVER_S)
        with self._lock:
            self._jobs.pop(job.id, None)
            gone = job.seen()
        self._events.publish(SweepsChanged())
        return gone

    def stop(self) -> None:
        """The program ends: end what runs. Returns at once; see :meth:`wait`."""
        with self._lock:
            self._closed = True
            for job in self._jobs.values():
                job.stop.set()

    def wait(self, timeout: float) -> bool:
        """Until nothing runs any more; False when something did after ``timeout`` seconds."""
        with self._lock:
            jobs = list(self._jobs.values())
        return all(job.ended.wait(timeout) for job in jobs)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _require(self, sweep_id: str) -> _Job:
        job = self._jobs.get(sweep_id)
        if job is None:
            raise NotFound(
                f"There is no sweep with the id {sweep_id[:40]!r}.",
                param="sweep_id",
                remedy=f"Sweeps are kept while the program runs, and the last {MOST_KEPT} of them.",
            )
        return job

    def _leaving(self) -> _Job | None:
        """The sweep that was told to end and has not ended yet."""
        with self._lock:
            return next((job for job in self._jobs.values() if job.stop.is_set() and not job.ended.is_set()), None)

    def _carry_out(self, job: _Job, sweep: Sweep) -> None:
        """A sweep's thread, from its first cell to its last."""
        state = SweepState.FAILED
        error: MillmError | None = None
        try:
            outcome = sweep.outcome()
            state = SweepState.COMPLETE if outcome.complete else SweepState.CANCELLED
        except MillmError as failure:
            error = failure
        except Exception:
            log.exception("the sweep %s failed", job.id)
            error = GenerationFailed("The sweep failed. The log file has the full report.")
        with self._lock:
            job.state, job.error, job.ended_at = state, error, datetime.now(UTC)
            done = len(job.cells)
        # First ended, then told: who hears of the end may begin the next at once.
        job.ended.set()
        words = None if error is None else error.one_line()
        self._events.publish(SweepComplete(job.id, job.base.name, state.value, done, job.settings.cells, words))

    def _take(self, job: _Job, cell: CellResult) -> None:
        with self._lock:
            job.cells.append(cell)
            done = len(job.cells)
        self._tell(job, done)

    def _tell(self, job: _Job, done: int) -> None:
        self._events.publish(SweepProgress(job.id, job.base.name, done, job.settings.cells))
