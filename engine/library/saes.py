"""SAEs on disk."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Float, Integer, String, Text, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from engine.errors import InvalidParameter, shortened
from engine.library.errors import SaeAlreadyExists, SaeNotFound
from engine.library.names import ID_LIMIT
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now, word_column
from engine.library.sessions import Transactions
from engine.library.values import check_verbatim, check_whole, columns, is_storable, refuse_unknown, values_of


class SaeStatus(StrEnum):
    """Where an SAE stands; ``downloading`` and ``attached`` are never true after a restart."""

    DOWNLOADING = "downloading"
    CACHED = "cached"
    ATTACHED = "attached"
    ERROR = "error"


class SaeSource(StrEnum):
    """Where an SAE came from."""

    LOCAL = "local"
    HUGGINGFACE = "huggingface"
    DEMO = "demo"


@dataclass(frozen=True)
class SaeRecord:
    """One SAE on disk. What its files say is None until they are here; measured figures until they are measured.

    ``format`` and ``architecture`` are the words of the SAE library; ``config`` is its whole description as JSON
    values. ``width`` is a label (``16k``), ``trained_layer`` counts from 0, shares are 0 to 1. ``average_l0`` is what
    the path says, ``source_l0`` what the files say, ``measured_l0`` what was measured; ``measured_at`` is None where
    that came with the SAE. ``copied``: the files in ``local_path`` are ours and go with the row. ``files_sha256``
    recognises the same files under another path.
    """

    id: str
    name: str
    repository_id: str | None = field(default=None, kw_only=True)
    revision: str | None = field(default=None, kw_only=True)
    source: SaeSource
    format: str | None = None
    architecture: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    k: int | None = None
    trained_on: str | None = None
    trained_layer: int | None = None
    hook_name: str | None = None
    width: str | None = None
    average_l0: float | None = None
    source_l0: float | None = None
    source_variance_explained: float | None = None
    measured_l0: float | None = None
    measured_variance_explained: float | None = None
    measured_at: datetime | None = None
    dead_share: float | None = None
    file_size_bytes: int | None = None
    local_path: str | None = None
    copied: bool = False
    files_sha256: str | None = None
    dtype: str | None = None
    normalize_activations: str | None = None
    apply_b_dec_to_input: bool | None = None
    assumed: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    status: SaeStatus = SaeStatus.CACHED
    error_message: str | None = None
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)


class SaeRow(Base):
    """Columns as in :class:`SaeRecord`."""

    __tablename__ = "saes"
    __table_args__ = (
        # The id names a folder and stands in URLs.
        CheckConstraint("length(id) BETWEEN 1 AND 100 AND id NOT GLOB '*[^-A-Za-z0-9._@]*'", name="id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LIMIT), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    repository_id: Mapped[str | None] = mapped_column(String(255))
    revision: Mapped[str | None] = mapped_column(String(100))
    source: Mapped[SaeSource] = mapped_column(word_column(SaeSource, "source"))
    format: Mapped[str | None] = mapped_column(String(32))
    architecture: Mapped[str | None] = mapped_column(String(32))
    d_in: Mapped[int | None] = mapped_column(Integer)
    d_sae: Mapped[int | None] = mapped_column(Integer)
    k: Mapped[int | None] = mapped_column(Integer)
    trained_on: Mapped[str | None] = mapped_column(Text)
    trained_layer: Mapped[int | None] = mapped_column(Integer)
    hook_name: Mapped[str | None] = mapped_column(Text)
    width: Mapped[str | None] = mapped_column(String(32))
    average_l0: Mapped[float | None] = mapped_column(Float)
    source_l0: Mapped[float | None] = mapped_column(Float)
    source_variance_explained: Mapped[float | None] = mapped_column(Float)
    measured_l0: Mapped[float | None] = mapped_column(Float)
    measured_variance_explained: Mapped[float | None] = mapped_column(Float)
    measured_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    dead_share: Mapped[float | None] = mapped_column(Float)
    file_size_bytes: Mapped[int | None] = mapped_column(Integer)
    local_path: Mapped[str | None] = mapped_column(Text)
    copied: Mapped[bool] = mapped_column(Boolean(name="copied", create_constraint=True))
    # Not unique: two revisions on a hub may hold the same bytes and are two SAEs all the same.
    files_sha256: Mapped[str | None] = mapped_column(String(64), index=True)
    dtype: Mapped[str | None] = mapped_column(String(32))
    normalize_activations: Mapped[str | None] = mapped_column(String(64))
    apply_b_dec_to_input: Mapped[bool | None] = mapped_column(
        Boolean(name="apply_b_dec_to_input", create_constraint=True)
    )
    assumed: Mapped[list[str]] = mapped_column(JsonColumn)
    config: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    status: Mapped[SaeStatus] = mapped_column(word_column(SaeStatus, "status"))
    error_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


INTERRUPTED = "The download was interrupted when the program ended."

_ID = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_NAMES = frozenset(each.name for each in fields(SaeRecord))
_CHANGEABLE = _NAMES - {"id", "created_at", "updated_at"}
_GIVEN = _NAMES - {"error_message", "created_at", "updated_at"}
"""What an import or a download knows of an SAE before it has a row."""
_COUNTS = ("d_in", "d_sae", "k", "trained_layer", "file_size_bytes")

SaeRecords = list[SaeRecord]


class SaeRepository:
    """Reads and writes SAEs. A missing row is None when asked for and :class:`SaeNotFound` when changed."""

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def add(self, new: SaeRecord, *, replace_failed: bool = False) -> SaeRecord:
        """Store an SAE. With ``replace_failed`` a row of that id in ``error`` gives way, its labels included.

        Raises :class:`SaeAlreadyExists` for an id that is taken, :class:`InvalidParameter` for one that is not allowed.
        """
        values = _values(new)
        with self._sessions.write() as session:
            return _insert(session, values, replace_failed)

    def add_or_find(self, new: SaeRecord, *, replace_failed: bool = False) -> tuple[SaeRecord, bool]:
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


def _values(new: SaeRecord) -> dict[str, Any]:
    # ``.`` and ``..`` match the pattern, but ids name folders.
    if not _ID.fullmatch(new.id) or new.id in (".", ".."):
        raise InvalidParameter(
            f"The SAE id {new.id[:120]!r} is not allowed.",
            param="sae_id",
            remedy="Use 1 to 100 letters, digits, dots, underscores, @ or hyphens.",
        )
    return _checked(values_of(new, _GIVEN))


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
    row = SaeRow(**values, created_at=now, updated_at=now)
    session.add(row)
    session.flush()
    return _record(row)


def _change(session: Session, sae_id: str, values: Mapping[str, Any]) -> SaeRecord:
    row = require_sae(session, sae_id)
    for key, value in values.items():
        setattr(row, key, value)
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
    return SaeRecord(**values_of(row, _NAMES) | {"assumed": tuple(row.assumed), "config": dict(row.config)})
