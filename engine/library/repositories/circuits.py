"""The circuits' rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from engine.errors import InvalidParameter, shortened
from engine.library.errors import CircuitAlreadyExists
from engine.library.names import CIRCUIT_NAME_LIMIT, MAX_RENAMES
from engine.library.records import CircuitPage, CircuitRecord, NewCircuit, ServingMode
from engine.library.repositories import LARGEST_ID, is_storable
from engine.library.repositories.claims import release_claims, require_circuit
from engine.library.repositories.values import (
    check_text,
    check_verbatim,
    check_whole,
    columns,
    finite,
    free_name,
    fresh_id,
    refuse_unknown,
)
from engine.library.sessions import Transactions
from engine.library.tables import CircuitRow, ProfileRow, utc_now

NARRATIVE_LIMIT = 10_000
HIGHEST_RUNG = 3

_CHANGEABLE = {field.name for field in fields(NewCircuit)} - {"definition"} | {"slice_profile_id"}

CircuitRecords = list[CircuitRecord]


class CircuitRepository:
    """Reads and writes circuits. A missing row is None when asked for and :class:`CircuitNotFound` when changed.

    Only :meth:`set_active`, :meth:`deactivate` and :meth:`reset_after_restart` say which ones
    are active.
    """

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def add(self, new: NewCircuit, *, rename: bool = False) -> CircuitRecord:
        """Store a circuit under a fresh id; with ``rename`` a taken name gets " (2)", " (3)" … behind it.

        Raises :class:`CircuitAlreadyExists` for a name that is taken (with ``rename``: when fifty others are too),
        :class:`InvalidParameter` for values no circuit can have.
        """
        values = _checked({field.name: getattr(new, field.name) for field in fields(new)})
        with self._sessions.write() as session:
            wanted = values["name"]
            name = free_name(session, CircuitRow.name, wanted, limit=CIRCUIT_NAME_LIMIT)
            if name is None or (name != wanted and not rename):
                raise _taken(session, wanted, renamed=rename)
            now = utc_now()
            row = CircuitRow(
                **{**values, "name": name},
                id=fresh_id(session, CircuitRow, "circ_"),
                is_active=False,
                created_at=now,
                updated_at=now,
            )
            session.add(row)
            session.flush()
            return _record(row)

    def put_back(self, record: CircuitRecord) -> CircuitRecord:
        """Store a circuit that was removed as it was, its id included, but not active; a taken name gets a number.

        It forgets a profile of its slice that is not there. Raises :class:`CircuitAlreadyExists` when its id is there,
        or fifty names made from its own are.
        """
        values = _checked({field.name: getattr(record, field.name) for field in fields(NewCircuit)})
        with self._sessions.write() as session:
            name = free_name(session, CircuitRow.name, values["name"], limit=CIRCUIT_NAME_LIMIT)
            if name is None or session.get(CircuitRow, record.id) is not None:
                raise _taken(session, values["name"], renamed=name is None)
            slice_id = record.slice_profile_id
            there = slice_id is not None and session.get(ProfileRow, slice_id) is not None
            row = CircuitRow(
                **{**values, "name": name},
                id=record.id,
                is_active=False,
                slice_profile_id=slice_id if there else None,
                created_at=record.created_at,
                updated_at=record.updated_at,
            )
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, circuit_id: str) -> CircuitRecord | None:
        """The circuit with this id, or None."""
        if not is_storable(circuit_id):
            return None
        with self._sessions.read() as session:
            row = session.get(CircuitRow, circuit_id)
            return None if row is None else _record(row)

    def by_name(self, name: str) -> CircuitRecord | None:
        """The circuit of exactly this name, case included, or None."""
        if not is_storable(name):
            return None
        with self._sessions.read() as session:
            row = session.scalar(select(CircuitRow).where(CircuitRow.name == name))
            return None if row is None else _record(row)

    def list(
        self, *, min_rung: int = 0, serveable: bool | None = None, limit: int = 50, offset: int = 0
    ) -> CircuitPage:
        """Circuits of at least ``min_rung``, newest first: at most ``limit`` from ``offset`` on, and how many fit."""
        fitting = select(CircuitRow).where(CircuitRow.rung >= min_rung)
        if serveable is not None:
            fitting = fitting.where(CircuitRow.serveable.is_(serveable))
        part = fitting.order_by(CircuitRow.created_at.desc(), CircuitRow.id)
        part = part.limit(max(limit, 0)).offset(min(max(offset, 0), LARGEST_ID))
        with self._sessions.read() as session:
            total = session.scalar(select(func.count()).select_from(fitting.subquery())) or 0
            return CircuitPage(tuple(_record(row) for row in session.scalars(part)), total)

    def active(self) -> CircuitRecords:
        """The active circuits, by id."""
        query = select(CircuitRow).where(CircuitRow.is_active).order_by(CircuitRow.id)
        with self._sessions.read() as session:
            return [_record(row) for row in session.scalars(query)]

    def update(self, circuit_id: str, **changes: object) -> CircuitRecord:
        """Set fields of :class:`NewCircuit`, or ``slice_profile_id``, by name and keep the rest.

        Raises :class:`CircuitAlreadyExists` for a name that is taken, :class:`InvalidParameter` for a value no circuit
        can have, TypeError for a field that is not the caller's to set.
        """
        with self._sessions.write() as session:
            return _change(session, require_circuit(session, circuit_id), changes)

    def set_active(self, circuit_id: str, serving_mode: ServingMode, **changes: object) -> CircuitRecord:
        """Make a circuit active, beside others that are; ``changes`` as in :meth:`update` are made in the same step."""
        with self._sessions.write() as session:
            row = require_circuit(session, circuit_id)
            row.is_active, row.serving_mode = True, serving_mode
            return _change(session, row, changes)

    def deactivate(self, circuit_id: str) -> tuple[int, ...]:
        """Make a circuit inactive and release its layers in one step; returns which it held, rising."""
        with self._sessions.write() as session:
            row = require_circuit(session, circuit_id)
            row.is_active, row.serving_mode = False, None
            return release_claims(session, circuit_id)

    def remove(self, circuit_id: str) -> CircuitRecord:
        """Delete a circuit and release its layers; returns it as it was, ``is_active`` included."""
        with self._sessions.write() as session:
            row = require_circuit(session, circuit_id)
            record = _record(row)
            # First: another circuit on one of its layers may have that layer for itself again.
            release_claims(session, circuit_id)
            session.delete(row)
            return record

    def reset_after_restart(self) -> None:
        """Put right what no start can be true of: no circuit is active yet."""
        with self._sessions.write() as session:
            session.execute(update(CircuitRow).where(CircuitRow.is_active).values(is_active=False, serving_mode=None))


def _taken(session: Session, name: str, *, renamed: bool = False) -> CircuitAlreadyExists:
    holder = session.scalars(select(CircuitRow.id).where(CircuitRow.name == name)).first()
    also = f", and {MAX_RENAMES} names made from it are taken too" if renamed else ""
    return CircuitAlreadyExists(
        f"The library has a circuit named {name!r} already{also}.",
        param="name",
        details={"existing_circuit_id": holder, "existing_name": name},
        remedy="Give this one another name.",
    )


def _change(session: Session, row: CircuitRow, changes: Mapping[str, object]) -> CircuitRecord:
    refuse_unknown(changes, _CHANGEABLE, "a circuit")
    values = _checked(changes)
    name = values.get("name", row.name)
    if name != row.name and session.scalar(select(CircuitRow.id).where(CircuitRow.name == name)) is not None:
        raise _taken(session, name)
    slice_id = values.get("slice_profile_id")
    if slice_id is not None and session.get(ProfileRow, slice_id) is None:
        raise InvalidParameter(f"There is no profile with the id {shortened(slice_id)}.", param="slice_profile_id")
    for field, value in values.items():
        setattr(row, field, value)
    if values:
        row.updated_at = utc_now()
    session.flush()
    return _record(row)


def _checked(values: Mapping[str, object]) -> dict[str, Any]:
    given: dict[str, Any] = dict(values)
    if "name" in given:
        check_text(given["name"], "name", least=1, most=CIRCUIT_NAME_LIMIT)
    if given.get("description") is not None:
        check_text(given["description"], "description", most=NARRATIVE_LIMIT)
    if "definition" in given:
        check_verbatim(given["definition"], "definition")
    for name in ("rung", "edge_count"):
        if name in given:
            check_whole(given[name], name)
    if given.get("rung", 0) > HIGHEST_RUNG:
        raise InvalidParameter(f"rung is at most {HIGHEST_RUNG}, not {given['rung']}.", param="rung")
    for layer in given.get("layers", ()):
        check_whole(layer, "layers")
    if given.get("intensity") is not None:
        given["intensity"] = finite(given["intensity"], "intensity")
    return columns(given)


def _record(row: CircuitRow) -> CircuitRecord:
    values = {field.name: getattr(row, field.name) for field in fields(CircuitRecord)}
    values |= {
        "layers": tuple(row.layers),
        "per_sae_warnings": tuple(dict(warning) for warning in row.per_sae_warnings),
        "provenance": dict(row.provenance),
    }
    return CircuitRecord(**values)
