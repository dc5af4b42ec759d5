"""How the library talks to SQLite: one engine, reads side by side from any thread, writes one after another.

Write-ahead logging lets readers go on while one writer commits. ``synchronous=FULL``: a commit that returned is on
disk also after a power cut, not only after a killed process; the library writes seldom, so the extra sync is not felt.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from engine.errors import LibraryFull, LibraryLost, LibraryUnusable
from engine.library.watch import FileWatch, Trouble, connect

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""How long SQLite waits for another process's lock before it gives up."""

CLOSE_SECONDS = 1.0
"""How long :meth:`Sessions.close` waits for a write under way; quitting has two seconds in all."""


_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT}
)
"""Failures that say nothing about the file itself, by SQLite's primary result codes."""


def fold(text: str | None) -> str | None:
    """Text as the search compares it: without case, for every alphabet (SQLite's own LIKE knows ASCII only)."""
    return None if text is None else text.casefold()


def _set_up(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
    connection.execute("PRAGMA synchronous=FULL")
    connection.create_function("millm_fold", 1, fold, deterministic=True)


def _begin(connection: Connection) -> None:
    # Python's sqlite3 opens transactions late and only for some statements; ours say themselves when and how.
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))


class Transactions(Protocol):
    """Where a repository reads and writes."""

    def read(self) -> AbstractContextManager[Session]:
        """One consistent view for several queries."""
        ...

    def write(self) -> AbstractContextManager[Session]:
        """One step that is done whole or not at all."""
        ...


class OneTransaction:
    """The transactions of a larger one: every read sees what was written before, and all writes stand or fall together.

    A write that raised may have left half of itself: let the error out, so that the larger transaction is undone.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @contextmanager
    def read(self) -> Iterator[Session]:
        yield self._session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """The one session; what was changed is sent to the database at the end."""
        yield self._session
        self._session.flush()


class Sessions:
    """Hands out short read and write transactions on one database file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watch: FileWatch | None = None
        self.on_trouble: Callable[[LibraryUnusable | None], None] = lambda trouble: None
        """Called with what was found to be wrong with the file, and with None when it is well again."""
        self._told: str | None = None
        self.refused: str | None = None
        """Why the last write was refused; None once one succeeded."""
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=-1,
            creator=self._connect,
        )
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)
        self._reader: Engine = self._engine.execution_options(sqlite_begin="BEGIN")
        # IMMEDIATE takes the write lock at once: a transaction that reads first can then never fail half-way for a
        # lock.
        self._writer: Engine = self._engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
        self._write_lock = threading.Lock()
        self._closed = False

    def use_write_ahead_log(self) -> None:
        """Switch the file to write-ahead logging; it stays so. A file system that cannot do it is logged, not
        refused.
        """
        with self._translated():
            raw = self._engine.raw_connection()
            try:
                mode = raw.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
            finally:
                raw.close()
            self._watch = FileWatch(self._path)
        if mode != "wal":
            log.warning("the file system under %s cannot do write-ahead logging; using %s", self._path, mode)

    def trouble(self) -> LibraryLost | None:
        """What is wrong with the file now, or None; whoever listens hears of a change."""
        return self._tell(None if self._watch is None else self._watch.look())

    def _tell(self, found: Trouble | None) -> LibraryLost | None:
        error = None
        if found is not None:
            error = LibraryLost(found.what, details={"path": str(self._path)}, remedy=found.remedy)
        what = None if found is None else found.what
        if what != self._told:
            self._told = what
            if error is not None:
                log.error("%s", error.one_line())
            self.on_trouble(error)
        return error

    def _refuse_lost(self) -> None:
        error = self.trouble()
        if error is not None:
            raise error

    def _connect(self) -> sqlite3.Connection:
        """A connection to the file that was opened, and to no other that has its name now."""
        self._refuse_lost()
        return connect(self._path, BUSY_SECONDS)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent view for several queries. Raises :class:`LibraryUnusable` when the file cannot be read."""
        self._refuse_closed()
        with self._translated(), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end and rolled back on any error; never nest it.

        Raises :class:`LibraryUnusable` when the file cannot be written, :class:`LibraryLost` when it is not the file
        any more that the next start will open: what this returned from is on disk, and stays there.
        """
        with self._write_lock:
            self._refuse_closed()
            self._refuse_lost()
            with (
                self._translated(writing=True),
                Session(self._writer, expire_on_commit=False) as session,
                session.begin(),
            ):
                yield session
            self._refuse_lost()
            self.refused = None

    def close(self) -> None:
        """Wait briefly for a write under way, then close every connection; later use raises. Idempotent."""
        held = self._write_lock.acquire(timeout=CLOSE_SECONDS)
        try:
            if self._closed:
                return
            self._closed = True
            # The last connection to go folds the log back into the file.
            self._engine.dispose()
            if self._watch is not None:
                self._watch.close()
        finally:
            if held:
                self._write_lock.release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LibraryUnusable(
                f"The library {self._path} is closed: the program is ending.", remedy="Start the program again."
            )

    @contextmanager
    def _translated(self, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            # For the log only: the caller decides how loud the error itself is.
            log.info("the library %s failed", self._path, exc_info=True)
            code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
            if code not in _PASSING and self._watch is not None and (lost := self._tell(self._watch.examine())):
                raise lost from error
            unusable = LibraryUnusable(
                f"The library {self._path} could not be used: {error.orig}.",
                details={"path": str(self._path)},
                remedy="Check that the folder may be written and its disk is well, then try again.",
            )
            if code == sqlite3.SQLITE_FULL:
                unusable = LibraryFull(
                    f"The disk of the library {self._path} is full, so nothing more can be kept.",
                    details={"path": str(self._path)},
                    remedy="Free some space, then try again.",
                )
            if writing:
                self.refused = unusable.message
            raise unusable from error
