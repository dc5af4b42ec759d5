"""Files of one repository into one folder: resumed after a cut, verified byte for byte, cancellable between chunks.

A file grows under the name ``NAME.part`` and gets its own when its length and checksum are right, so a process that is
killed leaves only what can be gone on with. Large files are checked by their SHA-256, small ones by git's blob SHA-1.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine.counting import in_mb, so_many
from engine.errors import (
    ChecksumMismatch,
    DataDirectoryUnusable,
    DownloadCancelled,
    DownloadFailed,
    HubUnavailable,
    InsufficientDisk,
    MillmError,
)
from engine.models.hub.client import HubClient, HubFile, Repository

log = logging.getLogger(__name__)

PART = ".part"
ATTEMPTS = 3
"""Failures in a row without ``PROGRESS_BYTES`` between them after which a file is given up."""

PROGRESS_BYTES = 8_000_000
BACKOFF_BASE_S = 2.0
BACKOFF_MAX_S = 30.0
SPEED_WINDOW_S = 5.0
SPARE_BYTES = 50_000_000
"""Room left on the disk for the library and the logs."""

CANCELLED = "Download cancelled by user"

Progress = Callable[[int, int, float | None], None]
"""Called with the bytes that are here, all bytes, and the bytes a second of late (None: not known yet)."""


def backoff_seconds(failures: int) -> float:
    """Seconds to wait after that many failures in a row: 2, 4, 8 … 30."""
    return float(min(BACKOFF_BASE_S * 2 ** (failures - 1), BACKOFF_MAX_S))


@dataclass
class Cancellation:
    """Ends a transfer: because a person asked (``by_user``), or because the program closes."""

    event: threading.Event = field(default_factory=threading.Event)
    by_user: bool = False

    def cancel(self, *, by_user: bool) -> None:
        """End it at the next chunk, or at once while it waits."""
        self.by_user = by_user
        self.event.set()

    def check(self) -> None:
        """Raise :class:`DownloadCancelled` once it was asked for."""
        if self.event.is_set():
            raise DownloadCancelled(CANCELLED if self.by_user else "The download ended with the program.")

    def wait(self, seconds: float) -> None:
        """Wait, or raise as :meth:`check` as soon as it is asked for."""
        self.event.wait(seconds)
        self.check()


Wait = Callable[[Cancellation, float], None]
"""Waits between attempts; tests put in one that does not."""


class Speed:
    """Bytes a second over the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, total: int) -> float | None:
        """Note that ``total`` bytes are here now; the speed, or None while there is nothing to go by."""
        now = self._clock()
        self._seen.append((now, total))
        while len(self._seen) > 2 and now - self._seen[0][0] > SPEED_WINDOW_S:
            self._seen.popleft()
        first, base = self._seen[0]
        return (total - base) / (now - first) if now > first else None


class Transfer:
    """Fetches ``files`` of ``repository`` into ``folder``, which keeps what is there already. One use, one thread.

    Args:
        token: For gated repositories; held as long as this object.
        wait: How to wait between attempts.
    """

    def __init__(
        self,
        hub: HubClient,
        repository: Repository,
        files: Sequence[HubFile],
        folder: Path,
        *,
        progress: Progress,
        cancellation: Cancellation,
        token: str | None = None,
        wait: Wait = Cancellation.wait,
    ) -> None:
        self._hub = hub
        self._repository = repository
        self._files = files
        self._folder = folder
        self._progress = progress
        self._cancellation = cancellation
        self._token = token
        self._wait = wait
        self._total = sum(file.size for file in files)
        self._here = 0
        self._speed = Speed()

    def run(self) -> None:
        """Fetch everything.

        Raises :class:`DownloadCancelled`, :class:`DownloadFailed` or :class:`ChecksumMismatch` when the attempts are
        used up, :class:`InsufficientDisk`, :class:`DataDirectoryUnusable`, and what the hub refuses with.
        """
        self._cancellation.check()
        self.prepare()
        self._here = sum(min(_length(self._partial(file)), file.size) + self._whole(file) for file in self._files)
        self._report()
        for file in self._files:
            self._fetch(file)
        self._report()

    def prepare(self) -> None:
        """Make the folders. Raises :class:`InsufficientDisk` or :class:`DataDirectoryUnusable`."""
        self._make_folders()
        self._require_space()

    # --- one file ---------------------------------------------------------------------------------------------------

    def _fetch(self, file: HubFile) -> None:
        target, failures = self._folder / file.path, 0
        if self._whole(file):
            if file.size == _length(target) and self._verify(target, file) is None:
                return
            # Cut or changed since: it starts anew.
            self._forget(target)
        while True:
            before = _length(self._partial(file))
            try:
                self._receive(file)
                problem = self._verify(self._partial(file), file)
                if problem is None:
                    self._settle(file)
                    return
                failure: MillmError = ChecksumMismatch(
                    f"{file.path} of {self._repository.repo_id} is not the file that the hub announced: {problem}.",
                    details={"file": file.path, "repo_id": self._repository.repo_id},
                    remedy="It may have been changed on the way: try again, or from another network.",
                )
                # Nothing can be added to a file that is wrong already.
                self._forget(self._partial(file))
            except (HubUnavailable, DownloadFailed) as error:
                failure = error
            if _length(self._partial(file)) - before >= PROGRESS_BYTES:
                failures = 0
            failures += 1
            if failures >= ATTEMPTS:
                raise self._given_up(file, failure) from failure
            log.info("%s: attempt %d failed: %s", file.path, failures, failure.message)
            self._wait(self._cancellation, backoff_seconds(failures))
            self._cancellation.check()

    def _receive(self, file: HubFile) -> None:
        """Add to the partial file what it lacks. Raises :class:`DownloadFailed` where the stream ends too early."""
        partial = self._partial(file)
        start = _length(partial)
        if start > file.size:
            self._forget(partial)
            start = 0
        if file.size and start == file.size:
            return
        with self._hub.stream(self._repository, file.path, start=start, token=self._token) as (resumed, chunks):
            if start and not resumed:
                self._here -= start
                start = 0
            try:
                output = partial.open("ab" if start else "wb")
            except OSError as error:
                raise self._disk_trouble(error) from error
            with output:
                received = start
                for chunk in chunks:
                    received += len(chunk)
                    if received > file.size:
                        raise DownloadFailed(
                            f"{file.path} is longer than the {file.size} bytes that the hub announced.",
                            details={"file": file.path, "expected_bytes": file.size},
                        )
                    try:
                        output.write(chunk)
                    except OSError as error:
                        raise self._disk_trouble(error) from error
                    self._here += len(chunk)
                    self._report()
                    self._cancellation.check()
                try:
                    output.flush()
                    os.fsync(output.fileno())
                except OSError as error:
                    raise self._disk_trouble(error) from error
        if received != file.size:
            raise DownloadFailed(
                f"{file.path} broke off after {received} of {so_many(file.size, 'byte')}.",
                details={"file": file.path, "received_bytes": received, "expected_bytes": file.size},
            )

    def _verify(self, path: Path, file: HubFile) -> str | None:
        """What is wrong with the file at ``path``, or None."""
        digest = hashlib.sha256() if file.sha256 else hashlib.sha1(usedforsecurity=False)
        expected = file.sha256 or file.blob_id
        if not file.sha256:
            digest.update(b"blob %d\0" % file.size)
        try:
            length = path.stat().st_size
            if length != file.size:
                return f"it has {so_many(length, 'byte')} instead of {file.size}"
            if not expected:
                return None
            with path.open("rb") as opened:
                while block := opened.read(1 << 20):
                    self._cancellation.check()
                    digest.update(block)
        except OSError as error:
            raise self._disk_trouble(error) from error
        found = digest.hexdigest()
        return None if found == expected.lower() else f"its checksum is {found} instead of {expected}"

    def _settle(self, file: HubFile) -> None:
        try:
            os.replace(self._partial(file), self._folder / file.path)
        except OSError as error:
            raise self._disk_trouble(error) from error

    def _forget(self, path: Path) -> None:
        self._here -= min(_length(path), self._here)
        with suppress(FileNotFoundError):
            path.unlink()

    # --- all files --------------------------------------------------------------------------------------------------

    def _make_folders(self) -> None:
        try:
            for file in self._files:
                (self._folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._disk_trouble(error) from error

    def _require_space(self) -> None:
        lacking = sum(max(0, file.size - _length(self._partial(file)) - self._whole(file)) for file in self._files)
        free = shutil.disk_usage(self._folder).free
        if lacking + SPARE_BYTES > free:
            raise InsufficientDisk(
                f"The download takes {lacking / 1e6:.0f} MB more, and the disk of {self._folder} has {free / 1e6:.0f} "
                "MB free.",
                details={"needed_mb": in_mb(lacking, 1), "free_mb": in_mb(free, 1)},
                remedy="Free some space, or choose a smaller file.",
            )

    def _partial(self, file: HubFile) -> Path:
        path = self._folder / file.path
        return path.with_name(path.name + PART)

    def _whole(self, file: HubFile) -> int:
        return _length(self._folder / file.path)

    def _report(self) -> None:
        self._progress(self._here, self._total, self._speed.add(self._here))

    def _given_up(self, file: HubFile, failure: MillmError) -> MillmError:
        if isinstance(failure, ChecksumMismatch):
            return failure
        kept = _length(self._partial(file))
        more = f" {kept / 1e6:.0f} MB of it are kept." if kept >= 1_000_000 else ""
        return DownloadFailed(
            f"{file.path} of {self._repository.repo_id} could not be fetched in {ATTEMPTS} attempts: "
            f"{failure.message}{more}",
            details={**failure.details, "file": file.path, "repo_id": self._repository.repo_id},
            remedy="Check the network connection and start the download again; it goes on where it broke off.",
        )

    def _disk_trouble(self, error: OSError) -> MillmError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return InsufficientDisk(
                f"The disk of {self._folder} is full.",
                details={"path": str(self._folder)},
                remedy="Free some space and start the download again; it goes on where it broke off.",
            )
        return DataDirectoryUnusable(
            f"The download could not be written to {self._folder}: {error.strerror or error}.",
            details={"path": str(self._folder)},
            remedy="Check that the folder may be written and its disk is well.",
        )


def _length(path: Path) -> int:
    """Bytes of a file; 0 when it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
