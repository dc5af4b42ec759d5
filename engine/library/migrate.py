"""Creates a database or brings an older one up to date: inspected, copied, then changed all or nothing.

Alembic runs from code, without an ini file, on the scripts inside the package.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, NullPool, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from engine.counting import so_many
from engine.errors import DataDirectoryUnusable, LibraryUnusable
from engine.library.watch import RESCUED, beside_of, start_anew

log = logging.getLogger(__name__)

SCRIPTS = "engine.library:migrations"
"""Named by package, not by path: it is found wherever the package lies, a frozen bundle included."""

_MAGIC = b"SQLite format 3\0"
_alembic_lock = threading.Lock()
"""Alembic keeps the run under way in module globals, so one run at a time in a process."""


def known_revisions() -> list[str]:
    """Every revision this program knows, oldest first; the last one is the present schema."""
    script = ScriptDirectory.from_config(_config())
    return [step.revision for step in script.walk_revisions()][::-1]


def bring_up_to_date(path: Path) -> None:
    """Create the database at ``path`` or upgrade it; nothing is touched when it is current.

    An older database is first copied to ``<name>.bak-<revision>`` beside it. Raises :class:`LibraryUnusable` for a file
    that is not our database, is damaged, or comes from a newer version (the file stays as it is);
    :class:`DataDirectoryUnusable` when the copy cannot be written.
    """
    with _alembic_lock:
        known = known_revisions()
        found = read_revision(path)
        if found == known[-1]:
            return
        if found is not None and found not in known:
            raise LibraryUnusable(
                f"The library {path} was made by a newer version of this program (schema {found}; this one knows up to "
                f"{known[-1]}). It was left as it is.",
                details={"path": str(path), "revision": found, "newest_known": known[-1]},
                remedy="Install the newer version, or start with another data directory (--data-dir).",
            )
        kept = None if found is None else back_up(path, found)
        _upgrade(path, known[-1], kept)


def read_revision(path: Path) -> str | None:
    """The schema revision of the file at ``path``; None when there is no file or it is empty.

    Raises :class:`LibraryUnusable` for anything that is not a sound database of this program.
    """
    try:
        if not path.exists() or path.stat().st_size == 0:
            _refuse_lost(path)
            return None
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror or error}") from error
    if magic != _MAGIC:
        raise _unusable(path, "is not an SQLite database")
    try:
        with closing(sqlite3.connect(path)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return None
            if "alembic_version" not in tables:
                raise _unusable(path, "is a database of another program")
            rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if verdict != "ok":
                raise _unusable(path, f"is damaged: {' '.join(verdict.split())}")
    except sqlite3.Error as error:
        raise _unusable(path, f"is damaged or in use: {error}") from error
    if len(rows) != 1:
        raise _unusable(path, "does not say which version it has")
    return str(rows[0][0])


def back_up(path: Path, revision: str) -> Path:
    """Copy the database, its log included, to ``<name>.bak-<revision>`` and return that path.

    Written under a temporary name and renamed when complete. Raises :class:`LibraryUnusable` for a damaged database,
    :class:`DataDirectoryUnusable` when the copy cannot be written.
    """
    kept = path.with_name(f"{path.name}.bak-{revision}")
    partial = path.with_name(f"{kept.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(partial)) as target:
            verdict = source.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise _unusable(path, f"is damaged: {verdict}")
            source.backup(target)
        os.replace(partial, kept)
    except sqlite3.DatabaseError as error:
        partial.unlink(missing_ok=True)
        raise _unusable(path, f"could not be copied before its upgrade: {error}") from error
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The library {path} needs an upgrade, but its copy {kept} could not be written: {error.strerror}.",
            details={"path": str(path)},
            remedy="Make room on the disk and check that the folder may be written.",
        ) from error
    return kept


def upgrade_connection(connection: Connection, revision: str = "head") -> None:
    """Run the steps up to ``revision`` inside the transaction that is open on ``connection``; the caller commits."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _upgrade(path: Path, revision: str, kept: Path | None) -> None:
    # Its own connection, with foreign keys off: copying a table in batch mode drops the old one, and with them on that
    # would delete every row that refers to it. They are checked as a whole before the commit instead.
    engine = create_engine(
        URL.create("sqlite", database=str(path)), poolclass=NullPool, connect_args={"isolation_level": None}
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            upgrade_connection(connection, revision)
            orphans = connection.execute(text("PRAGMA foreign_key_check")).fetchall()
            if orphans:
                lost = so_many(len(orphans), "row")
                raise _unusable(path, f"has {lost} referring to missing ones, so it was not upgraded")
    except SQLAlchemyError as error:
        log.info("upgrading %s failed", path, exc_info=True)
        cause = str(getattr(error, "orig", None) or error)
        if kept is None:
            raise _unusable(path, f"could not be created: {cause}") from error
        raise LibraryUnusable(
            f"The library {path} could not be upgraded: {cause}. It was left as it was.",
            details={"path": str(path), "backup": str(kept)},
            remedy=f"A copy lies at {kept}. The version that made it can still open it.",
        ) from error
    finally:
        engine.dispose()
    log.info("the library %s is at revision %s", path, revision)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    return config


def _unusable(path: Path, why: str) -> LibraryUnusable:
    return LibraryUnusable(
        f"The library {path} {why}.",
        details={"path": str(path)},
        remedy=start_anew(path),
    )


def _refuse_lost(path: Path) -> None:
    """Raise where what lies beside says that there was a library: an empty one must not take its place unasked."""
    log_file = beside_of(path)[0]
    saved = sorted(
        each.name for each in path.parent.glob(f"{path.name}{RESCUED}*") if not each.name.endswith("-journal")
    )
    if log_file.is_file() and log_file.stat().st_size > 0:
        what = f"its log {log_file.name}"
    elif saved:
        what = f"{saved[-1]}, saved from it when it was lost,"
    else:
        return
    back = f"give {saved[-1]} its name" if saved else "put it back beside that"
    raise LibraryUnusable(
        f"The library {path} is missing or empty, and {what} is there.",
        details={"path": str(path)},
        remedy=f"Put the library back: {back}. To start with an empty one, move what is left of it elsewhere.",
    )
