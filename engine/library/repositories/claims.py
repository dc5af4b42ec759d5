"""Which circuit holds which layer.

Two circuits on one layer add up in one residual stream, also where they steer different features. So a layer has one
holder, unless a person asked for both: then every claim on it is *composed* until a single holder remains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from engine.library.errors import CircuitNotFound, ClaimConflict
from engine.library.records import ClaimRecord
from engine.library.repositories import is_storable
from engine.library.repositories.values import check_whole
from engine.library.sessions import Transactions
from engine.library.tables import CircuitRow, ClaimRow, utc_now

Claims = list[ClaimRecord]


class ClaimRepository:
    """Reads and writes the layers that circuits hold."""

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def claim(self, circuit_id: str, steering_keys: Mapping[int, Collection[int]], *, composed: bool = False) -> Claims:
        """Give a circuit exactly these layers, each with the features it steers there: all of them, or nothing changes.

        Layers it held before and does not name now are released. With ``composed`` it may share a layer whose holders
        steer other features; layers nobody else holds stay its own.

        Raises :class:`ClaimConflict` naming every circuit in the way, :class:`CircuitNotFound`.
        """
        wanted = _checked(steering_keys)
        with self._sessions.write() as session:
            circuit = require_circuit(session, circuit_id)
            others = _holders(session, wanted, except_for=circuit_id)
            _refuse_conflicts(circuit, wanted, others, composed)
            _release(session, circuit_id, _held(session, circuit_id) - wanted.keys())
            shared = {row.layer for row, _ in others}
            for row, _ in others:
                row.composed = True
            # Before the new claims: a layer with a holder of its own takes no second one.
            session.flush()
            kept = {row.layer: row for row, _ in _holders(session, wanted, only=circuit_id)}
            now = utc_now()
            for layer, keys in wanted.items():
                row = kept.get(layer) or ClaimRow(circuit_id=circuit_id, layer=layer, claimed_at=now)
                row.composed, row.steering_keys = layer in shared, keys
                session.add(row)
            session.flush()
            return [_record(row, name) for row, name in _holders(session, wanted, only=circuit_id)]

    def live(self) -> Claims:
        """Every claim that is held now, by layer, the oldest holder of a layer first."""
        with self._sessions.read() as session:
            return [_record(row, name) for row, name in _holders(session)]

    def release(self, circuit_id: str, layers: Collection[int] | None = None) -> tuple[int, ...]:
        """Let go of a circuit's layers, or of those named; returns which it held, rising.

        Where one holder remains, its claim is no longer composed. Raises :class:`CircuitNotFound`.
        """
        with self._sessions.write() as session:
            require_circuit(session, circuit_id)
            return release_claims(session, circuit_id, layers)

    def reset_after_restart(self) -> None:
        """Put right what no start can be true of: nobody holds a layer yet."""
        with self._sessions.write() as session:
            session.execute(update(ClaimRow).where(ClaimRow.released_at.is_(None)).values(released_at=utc_now()))


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
    """:meth:`ClaimRepository.release` as a part of a larger step."""
    held = _held(session, circuit_id)
    going = held if layers is None else held & set(layers)
    _release(session, circuit_id, going)
    return tuple(sorted(going))


def _checked(steering_keys: Mapping[int, Collection[int]]) -> dict[int, list[int]]:
    for layer, keys in steering_keys.items():
        check_whole(layer, "layer")
        for key in keys:
            check_whole(key, "steering_keys")
    return {layer: sorted(set(steering_keys[layer])) for layer in sorted(steering_keys)}


def _holders(
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


def _held(session: Session, circuit_id: str) -> set[int]:
    query = select(ClaimRow.layer).where(ClaimRow.circuit_id == circuit_id, ClaimRow.released_at.is_(None))
    return set(session.scalars(query))


def _release(session: Session, circuit_id: str, layers: Collection[int]) -> None:
    if not layers:
        return
    now = utc_now()
    staying: dict[int, list[ClaimRow]] = {}
    for row, _ in _holders(session, layers):
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


def _refuse_conflicts(
    circuit: CircuitRow, wanted: Mapping[int, Collection[int]], others: list[tuple[ClaimRow, str]], composed: bool
) -> None:
    colliding = [
        {"layer": row.layer, "feature_idx": key, "incumbent": row.circuit_id}
        for row, _ in others
        for key in row.steering_keys
        if key in wanted[row.layer]
    ]
    if not others or (composed and not colliding):
        return
    incumbents = {row.circuit_id: name for row, name in others}
    listed = [{"id": circuit_id, "name": name} for circuit_id, name in incumbents.items()]
    layers = sorted({row.layer for row, _ in others})
    names = " and ".join(repr(name) for name in incumbents.values())
    places = ("layer " if len(layers) == 1 else "layers ") + ", ".join(str(layer) for layer in layers)
    what = f"The circuit {circuit.name!r} needs {places}, held by {names}"
    if colliding:
        what += ", and both steer the same features there"
    raise ClaimConflict(
        f"{what}.",
        details={
            "contended_layers": layers,
            "incumbent": listed[0],
            "all_incumbents": listed,
            "requested": {"id": circuit.id, "name": circuit.name},
            "colliding_keys": colliding,
            "overridable": not colliding,
        },
        remedy=f"Deactivate {names} first.",
    )


def _record(row: ClaimRow, name: str) -> ClaimRecord:
    return ClaimRecord(row.circuit_id, name, row.layer, row.composed, tuple(row.steering_keys), row.claimed_at)
