"""Records of what was tried: a comparison of two answers, a sweep of a dial, a contrast of two sets of texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Integer, Text, func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from engine.errors import InvalidParameter, NotFound
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now
from engine.library.sessions import Sessions, fold
from engine.library.values import may_exist, storable


class RecordKind(StrEnum):
    """What a record holds."""

    COMPARISON = "comparison"
    SWEEP = "sweep"
    CONTRAST = "contrast"


@dataclass(frozen=True)
class ExperimentRecord:
    """A record of what was tried.

    Of a comparison ``prompt`` is the last message of the person. ``settings`` is how it was sampled, with the system
    prompt and the messages before; ``steering`` the steered answer's report; ``evidence`` the phrase and rung that
    could be claimed, empty where none could; ``versions`` name → version; ``plain_details`` and ``steered_details`` the
    figures.

    Of another kind ``content`` is what was found, as :mod:`engine.actions.experiments` writes and reads it, and
    ``settings`` are those of the sweep or contrast. The texts are there to be searched: of a sweep the prompts, the
    answers of its plain column and the others; of a contrast the texts without (``plain``) and with it (``steered``).

    A new one has no ``id``, and its time is when it is kept.
    """

    id: int = field(default=0, kw_only=True)
    title: str
    model: str
    prompt: str
    plain: str
    steered: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steering: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    plain_details: Mapping[str, Any] = field(default_factory=dict)
    steered_details: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now, kw_only=True)
    kind: RecordKind = RecordKind.COMPARISON
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentSummary:
    """A record without its texts, for lists."""

    id: int
    title: str
    model: str
    created_at: datetime
    kind: RecordKind = RecordKind.COMPARISON


class ExperimentRow(Base):
    """A record; all of it is in the row, so that nothing done later changes what was seen."""

    __tablename__ = "experiments"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    prompt: Mapped[str] = mapped_column(Text)
    plain: Mapped[str] = mapped_column(Text)
    steered: Mapped[str] = mapped_column(Text)
    settings: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    steering: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    evidence: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    versions: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    plain_details: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    steered_details: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    kind: Mapped[str] = mapped_column(Text, server_default="comparison")
    content: Mapped[dict[str, Any]] = mapped_column(JsonColumn, server_default="{}")


TEXTS = ("title", "model", "prompt", "plain", "steered")
VALUES = ("settings", "steering", "evidence", "versions", "plain_details", "steered_details", "content")

Summaries = list[ExperimentSummary]


class ExperimentRepository:
    """Keeps records as they were seen; they are added, renamed and removed, never edited."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, new: ExperimentRecord) -> ExperimentRecord:
        """Save a record. Raises :class:`InvalidParameter` for details that are not JSON values."""
        texts = {name: storable(getattr(new, name)) for name in TEXTS}
        values = {name: _checked(name, getattr(new, name)) for name in VALUES}
        with self._sessions.write() as session:
            row = ExperimentRow(**texts, **values, kind=new.kind.value, created_at=utc_now())
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, experiment_id: int) -> ExperimentRecord | None:
        """The record with this id, or None."""
        with self._sessions.read() as session:
            row = _find(session, experiment_id)
            return None if row is None else _record(row)

    def list(self, search: str | None = None) -> Summaries:
        """Every record, newest first; with ``search``, those whose title, prompt or answers hold that text.

        The search knows no case, in any alphabet, and no wildcards; blank text finds everything.
        """
        row = ExperimentRow
        query = select(row.id, row.title, row.model, row.created_at, row.kind).order_by(
            row.created_at.desc(), row.id.desc()
        )
        wanted = fold(storable(search.strip())) if search else ""
        if wanted:
            places = (row.title, row.prompt, row.plain, row.steered)
            query = query.where(or_(*(func.instr(func.millm_fold(each), wanted) > 0 for each in places)))
        with self._sessions.read() as session:
            return [
                ExperimentSummary(number, title, model, created_at, RecordKind(kind))
                for number, title, model, created_at, kind in session.execute(query)
            ]

    def rename(self, experiment_id: int, title: str) -> ExperimentRecord:
        """Give a record another title. Raises :class:`NotFound`."""
        with self._sessions.write() as session:
            row = _require(session, experiment_id)
            row.title = storable(title)
            session.flush()
            return _record(row)

    def remove(self, experiment_id: int) -> ExperimentRecord:
        """Delete a record and return what it was, for :meth:`restore`. Raises :class:`NotFound`."""
        with self._sessions.write() as session:
            row = _require(session, experiment_id)
            record = _record(row)
            session.delete(row)
            return record

    def restore(self, record: ExperimentRecord) -> ExperimentRecord:
        """Bring a deleted record back under its old id, with its old time."""
        with self._sessions.write() as session:
            row = ExperimentRow(
                id=record.id,
                created_at=record.created_at,
                kind=record.kind.value,
                **{name: getattr(record, name) for name in TEXTS},
                **{name: dict(getattr(record, name)) for name in VALUES},
            )
            session.add(row)
            session.flush()
            return _record(row)


def _find(session: Session, experiment_id: int) -> ExperimentRow | None:
    return session.get(ExperimentRow, experiment_id) if may_exist(experiment_id) else None


def _require(session: Session, experiment_id: int) -> ExperimentRow:
    row = _find(session, experiment_id)
    if row is None:
        raise NotFound(
            f"There is no saved comparison with the id {experiment_id}.", remedy="It may have been deleted already."
        )
    return row


def _checked(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"'{name}' of a saved comparison must be JSON values: {error}.", param=name) from error
    return dict(value)


def _record(row: ExperimentRow) -> ExperimentRecord:
    fields: dict[str, Any] = {name: getattr(row, name) for name in TEXTS}
    fields |= {name: dict(getattr(row, name)) for name in VALUES}
    return ExperimentRecord(id=row.id, created_at=row.created_at, kind=RecordKind(row.kind), **fields)
