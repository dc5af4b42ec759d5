"""Records: saved comparisons, sweeps and contrasts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from engine.errors import InvalidParameter, NotFound
from engine.library.records import ExperimentRecord, ExperimentSummary, NewExperiment, RecordKind
from engine.library.repositories import may_exist, storable
from engine.library.sessions import Sessions, fold
from engine.library.tables import ExperimentRow, utc_now

TEXTS = ("title", "model", "prompt", "plain", "steered")
VALUES = ("settings", "steering", "evidence", "versions", "plain_details", "steered_details", "content")

Summaries = list[ExperimentSummary]


class ExperimentRepository:
    """Keeps records as they were seen; they are added, renamed and removed, never edited."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, new: NewExperiment) -> ExperimentRecord:
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
