"""Layer claims of circuits: who may steer a layer, and what that does to the claims already there.

The unit is the layer: two circuits that steer different features of one layer still sum in one residual stream. This is
the arithmetic alone; among activations that race, the library's unique index decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.counting import plural
from engine.steering.errors import CircuitLayerContention

OVERRIDE_PARAM = "allow_layer_overlap"
MEASURED_HAZARD: Mapping[str, str] = {
    "source": "a measurement published with the protocol: one model, one pair of circuits",
    "one_layer_at_strength_5": "text stays coherent",
    "two_layers_at_strength_5": "text degenerates",
    "note": "A single measurement. Other models and features may bear more or less.",
}
"""What is known of the danger of steering two layers at once; it travels with every contention."""


@dataclass(frozen=True)
class Claim:
    """A layer that a circuit holds. ``steering_keys`` are the features it steers there."""

    layer: int
    circuit_id: str
    circuit_name: str
    composed: bool
    steering_keys: frozenset[int]


@dataclass(frozen=True)
class Granted:
    """What is to be written: the circuit's claims, all or none, and the incumbents' claims that become composed."""

    claims: tuple[Claim, ...]
    newly_composed: tuple[Claim, ...] = ()

    @property
    def composed_layers(self) -> tuple[int, ...]:
        """The layers that are shared, rising."""
        return tuple(sorted(claim.layer for claim in self.claims if claim.composed))


def grant(
    live: Sequence[Claim],
    *,
    circuit_id: str,
    circuit_name: str,
    keys: Mapping[int, Iterable[int]],
    allow_concurrent: bool,
    allow_layer_overlap: bool,
) -> Granted:
    """The claims of a circuit that steers ``keys`` (layer → feature indices), beside the ``live`` ones.

    The circuit's own earlier claims stand in no one's way. Raises :class:`CircuitLayerContention`: not overridable when
    a feature collides; otherwise overridable by ``allow_layer_overlap``, if ``allow_concurrent`` is on at all.
    """
    wanted = {layer: frozenset(indices) for layer, indices in sorted(keys.items())}
    incumbents = sorted(
        (claim for claim in live if claim.circuit_id != circuit_id and claim.layer in wanted),
        key=lambda claim: (claim.layer, claim.circuit_id),
    )
    colliding = [claim for claim in incumbents if claim.steering_keys & wanted[claim.layer]]
    if colliding or (incumbents and not (allow_concurrent and allow_layer_overlap)):
        raise _contention(wanted, incumbents, colliding, circuit_id, circuit_name, allow_concurrent)
    shared = {claim.layer for claim in incumbents}
    return Granted(
        claims=tuple(Claim(layer, circuit_id, circuit_name, layer in shared, wanted[layer]) for layer in wanted),
        newly_composed=tuple(replace(claim, composed=True) for claim in incumbents if not claim.composed),
    )


def is_composed(live: Iterable[Claim], circuit_id: str) -> bool:
    """Whether a circuit shares any layer: its rung is then not claimed for an answer."""
    return any(claim.composed for claim in live if claim.circuit_id == circuit_id)


def require_single_slice(serving: tuple[str, str] | None, *, circuit_id: str, circuit_name: str) -> None:
    """Refuses a second circuit that could only serve as a slice; ``serving`` is (id, name) of the slice that serves."""
    if serving is None or serving[0] == circuit_id:
        return
    incumbent = {"id": serving[0], "name": serving[1]}
    raise CircuitLayerContention(
        f"'{circuit_name}' could only serve a slice, and one of '{serving[1]}' is serving. One slice serves at a time.",
        details={
            "reason": "slice_fallback_is_single_active",
            "incumbent": incumbent,
            "all_incumbents": [incumbent],
            "requested": {"id": circuit_id, "name": circuit_name},
            "overridable": False,
        },
        remedy="Deactivate the other circuit, or attach the SAEs of every layer of this one.",
    )


def _contention(
    wanted: Mapping[int, frozenset[int]],
    incumbents: Sequence[Claim],
    colliding: Sequence[Claim],
    circuit_id: str,
    circuit_name: str,
    allow_concurrent: bool,
) -> CircuitLayerContention:
    named = {claim.circuit_id: claim.circuit_name for claim in [*colliding, *incumbents]}
    everyone = [{"id": each, "name": name} for each, name in named.items()]
    layers = sorted({claim.layer for claim in incumbents})
    overridable = not colliding and allow_concurrent
    details: dict[str, Any] = {
        "contended_layers": layers,
        "incumbent": everyone[0],
        "all_incumbents": everyone,
        "requested": {"id": circuit_id, "name": circuit_name},
        "colliding_keys": [
            {"layer": claim.layer, "feature_idx": index, "incumbent": claim.circuit_id}
            for claim in colliding
            for index in sorted(claim.steering_keys & wanted[claim.layer])
        ],
        "overridable": overridable,
        "rung_header_suppressed_if_overridden": True,
        "measured_hazard": dict(MEASURED_HAZARD),
    }
    if overridable:
        details["override_param"] = OVERRIDE_PARAM
    names = " and ".join(f"'{name}'" for name in named.values())
    where = f"{plural(len(layers), 'layer')} {', '.join(map(str, layers))}"
    what = "steers the same features" if colliding else "is claimed"
    if colliding:
        remedy = "Deactivate the other circuit: two circuits cannot steer one feature."
    elif overridable:
        remedy = f"Deactivate the other circuit, or let them share with {OVERRIDE_PARAM}=true."
    else:
        remedy = "Deactivate the other circuit, or set CIRCUIT_ALLOW_CONCURRENT to let circuits share layers."
    message = f"'{circuit_name}' needs {where}, which {what} by {names}."
    if colliding:
        message = f"'{circuit_name}' needs {where}, where {names} {what}."
    return CircuitLayerContention(message, details=details, remedy=remedy)
