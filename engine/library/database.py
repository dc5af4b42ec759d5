"""The library: one SQLite file with models, SAEs, profiles, circuits, conversations and what is remembered.

Open it once per process and share it: every method may be called from any thread.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sqlalchemy.exc import SQLAlchemyError

from engine.errors import DataDirectoryUnusable, LibraryLost, LibraryUnusable
from engine.library.attach_sets import AttachSetRepository
from engine.library.circuits import CircuitRepository
from engine.library.claims import ClaimRepository
from engine.library.conversations import ConversationRepository
from engine.library.experiments import ExperimentRepository
from engine.library.labels import LabelRepository
from engine.library.migrate import bring_up_to_date
from engine.library.models import ModelRepository
from engine.library.profiles import ProfileRepository
from engine.library.saes import SaeRepository
from engine.library.sessions import OneTransaction, Sessions
from engine.library.state import StateRepository

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LibraryStep:
    """What steers, as one transaction. Its repositories are used inside the block that opened it, and no others."""

    saes: SaeRepository
    profiles: ProfileRepository
    circuits: CircuitRepository
    claims: ClaimRepository


class Library:
    """The open database, as one repository per aggregate. Made by :meth:`open`."""

    def __init__(self, path: Path, sessions: Sessions) -> None:
        self.path = path
        self._sessions = sessions
        self.models = ModelRepository(sessions)
        self.saes = SaeRepository(sessions)
        self.labels = LabelRepository(sessions)
        self.attach_sets = AttachSetRepository(sessions)
        self.profiles = ProfileRepository(sessions)
        self.circuits = CircuitRepository(sessions)
        self.claims = ClaimRepository(sessions)
        self.conversations = ConversationRepository(sessions)
        self.experiments = ExperimentRepository(sessions)
        self.state = StateRepository(sessions)

    @classmethod
    def open(cls, path: Path) -> Library:
        """Open the database at ``path``, creating it and its folder, or upgrading an older one after copying it.

        Raises :class:`DataDirectoryUnusable` when the folder or file cannot be written, :class:`LibraryUnusable` when
        the file is not our database, is damaged, or was made by a newer version; the file is then left untouched.
        """
        path = Path(os.path.abspath(path))
        is_new = not path.exists()
        _require_writable(path)
        try:
            bring_up_to_date(path)
        except LibraryUnusable:
            if is_new:
                # Refused as missing: what was made a moment ago must not look like a library at the next start.
                with suppress(OSError):
                    path.unlink()
            raise
        sessions = Sessions(path)
        try:
            sessions.use_write_ahead_log()
        except BaseException:
            sessions.close()
            raise
        return cls(path, sessions)

    def trouble(self) -> LibraryLost | None:
        """What is wrong with the file now, or None: deleted, replaced or damaged since it was opened. No write is
        confirmed meanwhile. Cheap, but not for a window's thread.
        """
        return self._sessions.trouble()

    @property
    def refused(self) -> str | None:
        """Why the last write was refused by the disk; None once one succeeded."""
        return self._sessions.refused

    def listen(self, on_trouble: Callable[[LibraryUnusable | None], None]) -> None:
        """Have ``on_trouble`` called, on whichever thread finds it, when :meth:`trouble` changes."""
        self._sessions.on_trouble = on_trouble

    @contextmanager
    def step(self) -> Iterator[LibraryStep]:
        """Several changes to profiles, circuits and claims as one: all of them are on disk, or none.

        Other repositories wait until it is over, so write through the step alone, and wait for nothing inside it.
        """
        with self._sessions.write() as session:
            one = OneTransaction(session)
            yield LibraryStep(SaeRepository(one), ProfileRepository(one), CircuitRepository(one), ClaimRepository(one))

    def reset_after_restart(self) -> tuple[str, ...]:
        """Put right what no start can be true of: nothing is loaded, attached, active, claimed or being downloaded.

        Each part is a step of its own, so that one that fails leaves the others done. Returns the parts that failed,
        which are logged; empty when all is well.
        """
        parts = {
            "models": self.models.reset_after_restart,
            "saes": self.saes.reset_after_restart,
            "profiles": self.profiles.reset_after_restart,
            "circuits": self.circuits.reset_after_restart,
            "claims": self.claims.reset_after_restart,
        }
        failed = []
        for part, reset in parts.items():
            try:
                reset()
            except (LibraryUnusable, SQLAlchemyError):
                log.exception("the %s in the library %s could not be put right after a restart", part, self.path)
                failed.append(part)
        return tuple(failed)

    def close(self) -> None:
        """Close the file after a write under way; later use raises :class:`LibraryUnusable`. Idempotent."""
        self._sessions.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _require_writable(path: Path) -> None:
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Asking for permission bits is wrong on network shares, on Windows and for root; writing is the honest
        # question.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The data directory {folder} cannot be written: {error.strerror or error}.",
            details={"path": str(folder)},
            remedy="Choose another one with --data-dir or MILLM_DATA_DIR, or change its permissions.",
        ) from error
    if path.is_dir():
        raise LibraryUnusable(
            f"The library {path} is a folder, not a file.",
            details={"path": str(path)},
            remedy="Move that folder away, or choose another data directory with --data-dir.",
        )
    try:
        # Made here and not by SQLite, so that nobody else can read it from its first byte on: chats are kept in it. The
        # log beside it gets the rights of the file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The library {path} cannot be written: {error.strerror or error}.",
            details={"path": str(path)},
            remedy="Make the file writable, or choose another data directory with --data-dir.",
        ) from error
