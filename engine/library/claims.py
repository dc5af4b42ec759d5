"""Which circuit holds which layer.

Two circuits on one layer add up in one residual stream, also where they steer different features. So a layer has one
holder, unless a person asked for both: then every claim on it is *composed* until a single holder remains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import update

from engine.library.circuits import (
    CircuitRow,
    ClaimRow,
    claim_holders,
    held_layers,
    let_go,
    release_claims,
    require_circuit,
)
from engine.library.errors import ClaimConflict
from engine.library.rows import utc_now
from engine.library.sessions import Transactions
from engine.library.values import check_whole


@dataclass(frozen=True)
class ClaimRecord:
    """A layer that a circuit holds. ``composed``: another circuit holds it too; ``steering_keys`` rise."""

    circuit_id: str
    circuit_name: str
    layer: int
    composed: bool
    steering_keys: tuple[int, ...]
    claimed_at: datetime


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
            others = claim_holders(session, wanted, except_for=circuit_id)
            _refuse_conflicts(circuit, wanted, others, composed)
            let_go(session, circuit_id, held_layers(session, circuit_id) - wanted.keys())
            shared = {row.layer for row, _ in others}
            for row, _ in others:
                row.composed = True
            # Before the new claims: a layer with a holder of its own takes no second one.
            session.flush()
            kept = {row.layer: row for row, _ in claim_holders(session, wanted, only=circuit_id)}
            now = utc_now()
            for layer, keys in wanted.items():
                row = kept.get(layer) or ClaimRow(circuit_id=circuit_id, layer=layer, claimed_at=now)
                row.composed, row.steering_keys = layer in shared, keys
                session.add(row)
            session.flush()
            return [_record(row, name) for row, name in claim_holders(session, wanted, only=circuit_id)]

    def live(self) -> Claims:
        """Every claim that is held now, by layer, the oldest holder of a layer first."""
        with self._sessions.read() as session:
            return [_record(row, name) for row, name in claim_holders(session)]

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


def _checked(steering_keys: Mapping[int, Collection[int]]) -> dict[int, list[int]]:
    for layer, keys in steering_keys.items():
        check_whole(layer, "layer")
        for key in keys:
            check_whole(key, "steering_keys")
    return {layer: sorted(set(steering_keys[layer])) for layer in sorted(steering_keys)}


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
