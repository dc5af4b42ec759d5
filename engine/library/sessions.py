"""How the library talks to SQLite: one engine, reads side by side from any thread, writes one after another.

Write-ahead logging lets readers go on while one writer commits. ``synchronous=FULL``: a commit that returned is on
disk also after a power cut, not only after a killed process; the library writes seldom, so the extra sync is not felt.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from engine.errors import LibraryUnusable

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""How long SQLite waits for another process's lock before it gives up."""

CLOSE_SECONDS = 1.0
"""How long :meth:`Sessions.close` waits for a write under way; quitting has two seconds in all."""


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
        """The one session."""
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
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=-1,
            connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS, "isolation_level": None},
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
        if mode != "wal":
            log.warning("the file system under %s cannot do write-ahead logging; using %s", self._path, mode)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent view for several queries. Raises :class:`LibraryUnusable` when the file cannot be read."""
        self._refuse_closed()
        with self._translated(), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end and rolled back on any error; never nest it.

        Raises :class:`LibraryUnusable` when the file cannot be written.
        """
        with self._write_lock:
            self._refuse_closed()
            with self._translated(), Session(self._writer, expire_on_commit=False) as session, session.begin():
                yield session

    def close(self) -> None:
        """Wait briefly for a write under way, then close every connection; later use raises. Idempotent."""
        held = self._write_lock.acquire(timeout=CLOSE_SECONDS)
        try:
            if self._closed:
                return
            self._closed = True
            # The last connection to go folds the log back into the file.
            self._engine.dispose()
        finally:
            if held:
                self._write_lock.release()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LibraryUnusable(
                f"The library {self._path} is closed: the program is ending.", remedy="Start the program again."
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            # For the log only: the caller decides how loud the error itself is.
            log.info("the library %s failed", self._path, exc_info=True)
            raise LibraryUnusable(
                f"The library {self._path} could not be used: {error.orig}.",
                details={"path": str(self._path)},
                remedy="Check that the disk has space and the folder may be written, then try again.",
            ) from error
