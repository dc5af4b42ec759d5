"""Whether the database under our connections is still the file that the next start will open, and whole.

SQLite goes on writing into a file that was deleted, renamed or replaced, and into a log whose file is gone, without a
word: each commit succeeds and nothing of it is there afterwards. In write-ahead mode it also does not look at the pages
it does not need. So each write is confirmed only after a look at the files' identity (device and inode, as SQLite's own
SQLITE_FCNTL_HAS_MOVED has it), at the length and the first bytes, and, where somebody has written to the file since the
last look, at the whole of it. Source: https://sqlite.org/howtocorrupt.html, sections 2.2 to 2.5 and 4.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

MAGIC = b"SQLite format 3\0"
RESCUED = ".rescued-"
"""Between the library's name and the time, in the name of a copy that was saved from a lost one."""

Identity = tuple[int, int]


@dataclass(frozen=True)
class Trouble:
    """What is wrong with the file, and what to do about it, both as sentences."""

    what: str
    remedy: str


class FileWatch:
    """Looks at one open database. All methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # Both stay open as long as the connections: the first keeps the log from being folded in and made anew, and
        # closing the second would drop the locks that SQLite holds on the file.
        self._keeper = connect(path)
        self._keeper.execute("SELECT count(*) FROM sqlite_master").fetchone()
        self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._own = _identity(path)
        beside = {place: _identity(place) for place in beside_of(path)}
        self._beside = {place: found for place, found in beside.items() if found is not None}
        state = os.fstat(self._handle)
        self._size, self._changed = state.st_size, state.st_mtime_ns
        self._damage: Trouble | None = None
        self._saved: Path | None = None
        self._closed = False

    def look(self) -> Trouble | None:
        """What is wrong now, or None. Costs some calls to the system, and a reading of the file once it has changed."""
        with self._lock:
            if self._closed:
                return None
            return self._damage or self._moved() or self._changed_by_others()

    def examine(self) -> Trouble | None:
        """As :meth:`look`, with a reading of the whole file; for after a write that failed."""
        with self._lock:
            if self._closed:
                return None
            return self._damage or self._moved() or self._quick_check()

    def close(self) -> None:
        """After the other connections: the last one folds the log into the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._keeper.close()
                os.close(self._handle)

    # --- what there is to see ---------------------------------------------------------------------------------------

    def _moved(self) -> Trouble | None:
        there = _identity(self._path)
        if there != self._own:
            how = (
                "is not there any more: it was deleted, or its folder was renamed or taken away"
                if there is None
                else "was replaced by another file"
            )
            # First, so that a file that was only renamed is whole without its log.
            folded = self._fold_in()
            saved = self._save() if self._path.parent.is_dir() else None
            if folded and saved is not None:
                self._forget_log()
            put_back = "Put it back where it was"
            if saved is not None:
                put_back = f"All that was in it was saved as {saved}: end the program and give that file the name back"
            return Trouble(
                f"The library {self._path} {how}. Nothing is kept until that is put right.",
                f"{put_back}, and start the program again.",
            )
        for place, own in self._beside.items():
            if _identity(place) != own:
                self._fold_in()
                return Trouble(
                    f"{place}, which belongs to the library, was deleted or replaced. Nothing is kept until that is "
                    "put right.",
                    "End the program and start it again; files beside the library whose names begin with its own are "
                    "part of it.",
                )
        return None

    def _changed_by_others(self) -> Trouble | None:
        state = os.fstat(self._handle)
        shrunk, touched = state.st_size < self._size, state.st_mtime_ns != self._changed
        if not shrunk and not touched:
            return None
        # It grows, and its time changes, when SQLite folds the log in; that is seldom enough to read it whole then.
        if shrunk or _head(self._handle) != MAGIC:
            return self._damaged("it was overwritten or cut short by another program")
        found = self._quick_check()
        self._size, self._changed = state.st_size, state.st_mtime_ns
        return found

    def _quick_check(self) -> Trouble | None:
        verdict = quick_check(self._path)
        return None if verdict is None else self._damaged(verdict)

    def _damaged(self, how: str) -> Trouble:
        self._damage = Trouble(
            f"The library {self._path} is damaged ({how}). Nothing is kept until that is put right.",
            start_anew(self._path),
        )
        return self._damage

    # --- saving what can be saved -----------------------------------------------------------------------------------

    def _save(self) -> Path | None:
        """A copy of everything in the lost file, which lives as long as it is open; None where it cannot be made."""
        if self._saved is not None:
            return self._saved
        target = self._path.with_name(f"{self._path.name}{RESCUED}{time.strftime('%Y%m%d-%H%M%S')}")
        try:
            with closing(sqlite3.connect(target)) as copy:
                self._keeper.backup(copy)
        except (sqlite3.Error, OSError):
            log.warning("the lost library %s could not be saved", self._path, exc_info=True)
            with suppress(OSError):
                target.unlink()
            return None
        self._saved = target
        return target

    def _fold_in(self) -> bool:
        """What the log holds was confirmed: put it into the file while both are still open; whether all of it is."""
        try:
            busy, length, folded = self._keeper.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        except sqlite3.Error:
            return False
        return busy == 0 and length == folded

    def _forget_log(self) -> None:
        """Remove the log of a file that is not beside it any more: SQLite would play it into whatever file is put there
        (https://sqlite.org/howtocorrupt.html, section 1.4).
        """
        for place, own in self._beside.items():
            if _identity(place) == own:
                with suppress(OSError):
                    place.unlink()


def connect(path: Path, timeout: float = 5.0) -> sqlite3.Connection:
    """A connection to a file that is there; one that is not is never made. Raises sqlite3.Error.

    Usable from any thread; transactions are the caller's to begin and end.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


def quick_check(path: Path) -> str | None:
    """What is wrong inside the database, as SQLite says it, or None. Reads all of it."""
    try:
        with closing(connect(path)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        return str(error)
    return None if verdict == "ok" else " ".join(verdict.split())


def beside_of(path: Path) -> tuple[Path, Path]:
    """The log and its index, which belong to the database as long as they are there."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def start_anew(path: Path) -> str:
    """What a person can do about a library that cannot be used."""
    copies = sorted(each.name for each in path.parent.glob(f"{path.name}.*") if _is_copy(path, each))
    back = f" To go back, give one of its copies beside it that name: {', '.join(copies)}." if copies else ""
    return (
        f"To start with an empty library, end the program and move {path.name} and, where they are there, "
        f"{path.name}-wal and {path.name}-shm into another folder, and keep them.{back}"
    )


def _is_copy(path: Path, other: Path) -> bool:
    ending = other.name.removeprefix(path.name)
    return ending.startswith((".bak-", RESCUED)) and not ending.endswith(("-wal", "-shm", "-journal", ".partial"))


def _identity(path: Path) -> Identity | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _head(handle: int) -> bytes:
    # Not pread, which Windows lacks; nobody else uses this handle.
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, len(MAGIC))
