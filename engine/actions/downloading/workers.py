"""Downloads under way: a few at a time, each on a thread of its own, the others in line; and how far they are.

The threads are daemons: a socket that hangs must not hold up the end of the program. What they leave is gone on with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.actions.downloading.transfer import Cancellation

log = logging.getLogger(__name__)

Work = Callable[[Cancellation], None]
"""Carries a download out from beginning to end, errors included; raises nothing it knows of."""


@dataclass(frozen=True)
class DownloadState:
    """How far a download is. ``speed_bps`` is None until it is known."""

    downloaded_bytes: int
    total_bytes: int
    speed_bps: float | None = None

    @property
    def percent(self) -> float:
        """0–100; 100 only when everything is here."""
        if self.total_bytes <= 0:
            return 0.0
        return round(min(100.0, 100.0 * self.downloaded_bytes / self.total_bytes), 1)


@dataclass
class _Job:
    key: str
    work: Work
    state: DownloadState
    cancellation: Cancellation = field(default_factory=Cancellation)
    ended: threading.Event = field(default_factory=threading.Event)


class Workers:
    """Runs downloads, each known by a key. All methods may be called from any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._waiting: list[_Job] = []
        self._running = 0
        self._stopping = False

    def start(self, key: str, work: Work, total_bytes: int) -> None:
        """Run ``work``, now or when there is room. The caller has made sure that none is known by that key."""
        job = _Job(key, work, DownloadState(0, total_bytes))
        with self._lock:
            self._jobs[key] = job
            if self._running >= self._limit:
                self._waiting.append(job)
                return
            self._running += 1
        self._launch(job)

    def report(self, key: str, state: DownloadState) -> None:
        """From the work: how far it is."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None:
                job.state = state

    def state(self, key: str) -> DownloadState | None:
        """How far the download of that key is; None when there is none."""
        with self._lock:
            job = self._jobs.get(key)
            return None if job is None else job.state

    def cancel(self, key: str) -> bool:
        """A person wants that download ended; False when there is none. It ends at its next chunk."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                return False
            job.cancellation.cancel(by_user=True)
            if job not in self._waiting:
                return True
            self._waiting.remove(job)
            self._running += 1  # so that its work, which only tidies up now, is counted off like the others
        self._launch(job)
        return True

    def wait(self, key: str, timeout: float) -> bool:
        """Until the download of that key has ended; False when it has not within ``timeout`` seconds."""
        with self._lock:
            job = self._jobs.get(key)
        return job is None or job.ended.wait(timeout)

    def stop(self, timeout: float) -> bool:
        """The program ends: end everything. False when something had not ended within ``timeout`` seconds."""
        with self._lock:
            self._stopping = True
            for job in self._waiting:
                self._jobs.pop(job.key, None)
                job.ended.set()
            self._waiting.clear()
            jobs = list(self._jobs.values())
        for job in jobs:
            job.cancellation.cancel(by_user=False)
        ended = [job.ended.wait(timeout / max(1, len(jobs))) for job in jobs]
        return all(ended)

    def _launch(self, job: _Job) -> None:
        threading.Thread(target=self._run, args=(job,), name=f"download-{job.key}"[:60], daemon=True).start()

    def _run(self, job: _Job) -> None:
        following: _Job | None = None
        try:
            job.work(job.cancellation)
        except Exception:
            log.exception("the download %s failed", job.key)
        finally:
            with self._lock:
                self._jobs.pop(job.key, None)
                if self._waiting and not self._stopping:
                    following = self._waiting.pop(0)
                else:
                    self._running -= 1
            job.ended.set()
        if following is not None:
            self._launch(following)
