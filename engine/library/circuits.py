"""Circuits, and the rows of the layers they hold: ending a circuit lets go of its layers in the same step."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    func,
    select,
    text,
    update,
)
from sqlalchemy.orm import Mapped, Session, mapped_column

from engine.errors import InvalidParameter, shortened
from engine.library.errors import CircuitAlreadyExists, CircuitNotFound
from engine.library.names import CIRCUIT_NAME_LIMIT, MAX_RENAMES, NARRATIVE_LIMIT
from engine.library.profiles import ProfileRow
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now, word_column
from engine.library.sessions import Transactions
from engine.library.values import (
    LARGEST_ID,
    check_text,
    check_verbatim,
    check_whole,
    columns,
    finite,
    free_name,
    fresh_id,
    is_storable,
    refuse_unknown,
    values_of,
)


class ServingMode(StrEnum):
    """How an active circuit serves: on all its layers, or one layer of it as a cluster."""

    FULL = "full"
    SLICE_FALLBACK = "slice_fallback"


@dataclass(frozen=True)
class CircuitRecord:
    """A circuit. ``definition`` is its document, the very text that was stored.

    ``layers`` are those with features to serve, rising. ``per_sae_warnings`` are the verdicts by layer as they stood at
    the last import or activation; ``serveable`` sums them up. ``serving_mode`` is None while it is not active.
    ``intensity`` is where its dial stands, None when neither the document nor a person said. ``slice_profile_id`` is
    the profile that last served a slice of it.

    A new one is made without what the library fills in: whether it is active, its slice, ``id`` and the times.
    """

    name: str
    definition: str
    description: str | None = None
    rung: int = 0
    edge_count: int = 0
    layers: tuple[int, ...] = ()
    per_sae_warnings: tuple[Mapping[str, Any], ...] = ()
    serveable: bool = False
    intensity: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    is_active: bool = False
    serving_mode: ServingMode | None = None
    slice_profile_id: str | None = None
    id: str = ""
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)

    @property
    def only_persistence(self) -> bool:
        """Whether every edge of its document is persistence; False where it can no longer be read. Parses it."""
        try:
            edges = json.loads(self.definition).get("edges") or []
            return {edge.get("type") for edge in edges} == {"persistence"}
        except (ValueError, AttributeError, TypeError):
            return False


@dataclass(frozen=True)
class CircuitPage:
    """A part of the circuits; ``total`` counts all that fit the question."""

    circuits: tuple[CircuitRecord, ...]
    total: int


class CircuitRow(Base):
    """Columns as in :class:`CircuitRecord`. Several may be active."""

    __tablename__ = "circuits"
    __table_args__ = (
        CheckConstraint("rung BETWEEN 0 AND 3", name="rung"),
        CheckConstraint("is_active = (serving_mode IS NOT NULL)", name="serving"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    description: Mapped[str | None] = mapped_column(Text)
    definition: Mapped[str] = mapped_column(Text)
    rung: Mapped[int] = mapped_column(Integer)
    edge_count: Mapped[int] = mapped_column(Integer)
    layers: Mapped[list[int]] = mapped_column(JsonColumn)
    per_sae_warnings: Mapped[list[dict[str, Any]]] = mapped_column(JsonColumn)
    serveable: Mapped[bool] = mapped_column(Boolean(name="serveable", create_constraint=True))
    is_active: Mapped[bool] = mapped_column(Boolean(name="is_active", create_constraint=True))
    serving_mode: Mapped[ServingMode | None] = mapped_column(word_column(ServingMode, "serving_mode"))
    intensity: Mapped[float | None] = mapped_column(Float)
    slice_profile_id: Mapped[str | None] = mapped_column(ForeignKey("profiles.id", ondelete="SET NULL"))
    provenance: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ClaimRow(Base):
    """A layer that a circuit holds, or held until ``released_at``."""

    __tablename__ = "circuit_claims"
    __table_args__ = (
        # Of two circuits that want a layer for themselves only one gets it; the database itself holds it.
        Index(
            "uq_circuit_claims_one_holder_of_a_layer",
            "layer",
            unique=True,
            sqlite_where=text("released_at IS NULL AND composed = 0"),
        ),
        Index(
            "uq_circuit_claims_one_claim_of_a_circuit",
            "circuit_id",
            "layer",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    circuit_id: Mapped[str] = mapped_column(ForeignKey("circuits.id", ondelete="CASCADE"), index=True)
    layer: Mapped[int] = mapped_column(Integer)
    composed: Mapped[bool] = mapped_column(Boolean(name="composed", create_constraint=True))
    steering_keys: Mapped[list[int]] = mapped_column(JsonColumn)
    claimed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


HIGHEST_RUNG = 3

_NAMES = frozenset(each.name for each in fields(CircuitRecord))
_GIVEN = _NAMES - {"id", "is_active", "serving_mode", "slice_profile_id", "created_at", "updated_at"}
_CHANGEABLE = _GIVEN - {"definition"} | {"slice_profile_id"}

CircuitRecords = list[CircuitRecord]


class CircuitRepository:
    """Reads and writes circuits. A missing row is None when asked for and :class:`CircuitNotFound` when changed.

    Only :meth:`set_active`, :meth:`deactivate` and :meth:`reset_after_restart` say which ones
    are active.
    """

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def add(self, new: CircuitRecord, *, rename: bool = False) -> CircuitRecord:
        """Store a circuit under a fresh id; with ``rename`` a taken name gets " (2)", " (3)" … behind it.

        Raises :class:`CircuitAlreadyExists` for a name that is taken (with ``rename``: when fifty others are too),
        :class:`InvalidParameter` for values no circuit can have.
        """
        values = _checked(values_of(new, _GIVEN))
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
        values = _checked(values_of(record, _GIVEN))
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
        """Set fields of :class:`CircuitRecord`, or ``slice_profile_id``, by name and keep the rest.

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
    for key, value in values.items():
        setattr(row, key, value)
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
    return CircuitRecord(
        **values_of(row, _NAMES)
        | {
            "layers": tuple(row.layers),
            "per_sae_warnings": tuple(dict(warning) for warning in row.per_sae_warnings),
            "provenance": dict(row.provenance),
        }
    )


def require_circuit(session: Session, circuit_id: str) -> CircuitRow:
    """The row of that id. Raises :class:`CircuitNotFound`."""
    row = session.get(CircuitRow, circuit_id) if is_storable(circuit_id) else None
    if row is None:
        raise CircuitNotFound(
            f"There is no circuit with the id {circuit_id!r}.",
            param="circuit_id",
            details={"circuit_id": circuit_id},
            remedy="List the circuits to see their ids.",
        )
    return row


def release_claims(session: Session, circuit_id: str, layers: Collection[int] | None = None) -> tuple[int, ...]:
    """:meth:`engine.library.claims.ClaimRepository.release` as a part of a larger step."""
    held = held_layers(session, circuit_id)
    going = held if layers is None else held & set(layers)
    let_go(session, circuit_id, going)
    return tuple(sorted(going))


def claim_holders(
    session: Session,
    layers: Iterable[int] | None = None,
    *,
    only: str | None = None,
    except_for: str | None = None,
) -> list[tuple[ClaimRow, str]]:
    """Live claims with their circuits' names, by layer and age; on these layers, by these circuits."""
    query = (
        select(ClaimRow, CircuitRow.name)
        .join(CircuitRow, CircuitRow.id == ClaimRow.circuit_id)
        .where(ClaimRow.released_at.is_(None))
        .order_by(ClaimRow.layer, ClaimRow.id)
    )
    if layers is not None:
        query = query.where(ClaimRow.layer.in_(list(layers)))
    if only is not None:
        query = query.where(ClaimRow.circuit_id == only)
    if except_for is not None:
        query = query.where(ClaimRow.circuit_id != except_for)
    return [(row, name) for row, name in session.execute(query)]


def held_layers(session: Session, circuit_id: str) -> set[int]:
    """The layers a circuit holds now."""
    query = select(ClaimRow.layer).where(ClaimRow.circuit_id == circuit_id, ClaimRow.released_at.is_(None))
    return set(session.scalars(query))


def let_go(session: Session, circuit_id: str, layers: Collection[int]) -> None:
    """End a circuit's claims on ``layers``; where one holder remains, its claim is no longer composed."""
    if not layers:
        return
    now = utc_now()
    staying: dict[int, list[ClaimRow]] = {}
    for row, _ in claim_holders(session, layers):
        if row.circuit_id == circuit_id:
            row.released_at = now
        else:
            staying.setdefault(row.layer, []).append(row)
    # Before the last holder of a layer has it for itself again.
    session.flush()
    for rows in staying.values():
        if len(rows) == 1:
            rows[0].composed = False
    session.flush()
