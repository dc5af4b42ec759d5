"""The SAEs' rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from engine.errors import InvalidParameter, shortened
from engine.library.errors import SaeAlreadyExists, SaeNotFound
from engine.library.records import NewSae, SaeRecord, SaeStatus
from engine.library.repositories import is_storable
from engine.library.repositories.values import check_verbatim, check_whole, columns, refuse_unknown
from engine.library.sessions import Transactions
from engine.library.tables import SaeRow, utc_now

INTERRUPTED = "The download was interrupted when the program ended."

_ID = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_CHANGEABLE = {field.name for field in fields(SaeRecord)} - {"id", "created_at", "updated_at"}
_COUNTS = ("d_in", "d_sae", "k", "trained_layer", "file_size_bytes")

SaeRecords = list[SaeRecord]


class SaeRepository:
    """Reads and writes SAEs. A missing row is None when asked for and :class:`SaeNotFound` when changed."""

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def add(self, new: NewSae, *, replace_failed: bool = False) -> SaeRecord:
        """Store an SAE. With ``replace_failed`` a row of that id in ``error`` gives way, its labels included.

        Raises :class:`SaeAlreadyExists` for an id that is taken, :class:`InvalidParameter` for one that is not allowed.
        """
        values = _values(new)
        with self._sessions.write() as session:
            return _insert(session, values, replace_failed)

    def add_or_find(self, new: NewSae, *, replace_failed: bool = False) -> tuple[SaeRecord, bool]:
        """As :meth:`add`, unless these very files (``files_sha256``) are in the library and usable: then that row.

        Returns the row and whether it is new. Of several imports of the same files at once, one makes the row.
        """
        values = _values(new)
        with self._sessions.write() as session:
            there = _same_files(session, new.files_sha256) if new.files_sha256 else None
            if there is not None:
                return _record(there), False
            return _insert(session, values, replace_failed), True

    def get(self, sae_id: str) -> SaeRecord | None:
        """The SAE with this id, case included, or None."""
        if not is_storable(sae_id):
            return None
        with self._sessions.read() as session:
            row = session.get(SaeRow, sae_id)
            return None if row is None else _record(row)

    def feature_count(self, sae_id: str) -> int | None:
        """How many features that SAE has; None for one that is not here."""
        record = self.get(sae_id)
        return None if record is None else record.d_sae

    def by_files_hash(self, files_sha256: str) -> SaeRecord | None:
        """The oldest usable SAE (``cached`` or ``attached``) made from exactly these files, or None."""
        if not is_storable(files_sha256):
            return None
        with self._sessions.read() as session:
            row = _same_files(session, files_sha256)
            return None if row is None else _record(row)

    def list(self) -> SaeRecords:
        """Every SAE, newest first."""
        with self._sessions.read() as session:
            query = select(SaeRow).order_by(SaeRow.created_at.desc(), SaeRow.id)
            return [_record(row) for row in session.scalars(query)]

    def set_status(self, sae_id: str, status: SaeStatus, *, error_message: str | None = None) -> SaeRecord:
        """Move an SAE to ``status`` and replace its error message."""
        return self.set_statuses([sae_id], status, error_message=error_message)[0]

    def set_statuses(
        self, sae_ids: Collection[str], status: SaeStatus, *, error_message: str | None = None
    ) -> SaeRecords:
        """Move several SAEs to ``status`` at once: all of them, or none when one is missing."""
        values = columns({"status": status, "error_message": error_message})
        with self._sessions.write() as session:
            return [_change(session, sae_id, values) for sae_id in sae_ids]

    def update(self, sae_id: str, **changes: object) -> SaeRecord:
        """Set fields of :class:`SaeRecord` by name; what was measured, and what became known by a download.

        Raises TypeError for a field that does not exist or is not the caller's to set.
        """
        refuse_unknown(changes, _CHANGEABLE, "an SAE")
        values = _checked(changes)
        with self._sessions.write() as session:
            return _change(session, sae_id, values)

    def remove(self, sae_id: str) -> SaeRecord:
        """Forget an SAE and its labels; returns it as it was. Its files stay."""
        with self._sessions.write() as session:
            row = require_sae(session, sae_id)
            record = _record(row)
            session.delete(row)
            return record

    def reset_after_restart(self) -> None:
        """Put right what no start can be true of: nothing is attached and nothing is being downloaded yet."""
        now = utc_now()
        with self._sessions.write() as session:
            session.execute(
                update(SaeRow)
                .where(SaeRow.status == SaeStatus.ATTACHED)
                .values(status=SaeStatus.CACHED, updated_at=now)
            )
            session.execute(
                update(SaeRow)
                .where(SaeRow.status == SaeStatus.DOWNLOADING)
                .values(status=SaeStatus.ERROR, error_message=INTERRUPTED, updated_at=now)
            )


def require_sae(session: Session, sae_id: str) -> SaeRow:
    """The row of that id. Raises :class:`SaeNotFound`."""
    row = session.get(SaeRow, sae_id) if is_storable(sae_id) else None
    if row is None:
        raise SaeNotFound(
            f"There is no SAE with the id {shortened(sae_id)}.",
            param="sae_id",
            details={"sae_id": sae_id},
            remedy="List the SAEs to see their ids.",
        )
    return row


def _values(new: NewSae) -> dict[str, Any]:
    # ``.`` and ``..`` match the pattern, but ids name folders.
    if not _ID.fullmatch(new.id) or new.id in (".", ".."):
        raise InvalidParameter(
            f"The SAE id {new.id[:120]!r} is not allowed.",
            param="sae_id",
            remedy="Use 1 to 100 letters, digits, dots, underscores, @ or hyphens.",
        )
    return _checked({field.name: getattr(new, field.name) for field in fields(new)})


def _checked(values: Mapping[str, object]) -> dict[str, Any]:
    for name in _COUNTS:
        if values.get(name) is not None:
            check_whole(values[name], name)
    if values.get("local_path") is not None:
        check_verbatim(values["local_path"], "local_path")
    return columns(values)


def _insert(session: Session, values: Mapping[str, Any], replace_failed: bool) -> SaeRecord:
    taken = session.get(SaeRow, values["id"])
    if taken is not None:
        if not (replace_failed and taken.status is SaeStatus.ERROR):
            raise SaeAlreadyExists(
                f"The library has an SAE with the id {taken.id!r} already.",
                param="sae_id",
                details={"existing_sae_id": taken.id},
                remedy="Use that one, or give this one another id.",
            )
        session.delete(taken)
        session.flush()
    now = utc_now()
    row = SaeRow(**values, error_message=None, created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    return _record(row)


def _change(session: Session, sae_id: str, values: Mapping[str, Any]) -> SaeRecord:
    row = require_sae(session, sae_id)
    for field, value in values.items():
        setattr(row, field, value)
    row.updated_at = utc_now()
    session.flush()
    return _record(row)


def _same_files(session: Session, files_sha256: str) -> SaeRow | None:
    return session.scalar(
        select(SaeRow)
        .where(SaeRow.files_sha256 == files_sha256, SaeRow.status.in_([SaeStatus.CACHED, SaeStatus.ATTACHED]))
        .order_by(SaeRow.created_at, SaeRow.id)
        .limit(1)
    )


def _record(row: SaeRow) -> SaeRecord:
    values = {field.name: getattr(row, field.name) for field in fields(SaeRecord)}
    return SaeRecord(**{**values, "assumed": tuple(row.assumed), "config": dict(row.config)})
