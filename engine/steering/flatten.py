"""A circuit as what it steers: by layer, features and strengths; and which of them the attached SAEs cannot serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engine.counting import so_many
from engine.documents.binding import Binding, Cause
from engine.documents.circuit import CircuitDocument
from engine.steering.errors import SaeSetIncomplete
from engine.steering.live import AttachmentKey
from engine.wire import LEFT_OUT, wire


class OffenceReason(StrEnum):
    """Why a member cannot be served."""

    MISSING_OR_AMBIGUOUS_SAE = "missing_or_ambiguous_sae"
    FEATURE_COUNT_MISMATCH = "feature_count_mismatch"
    INDEX_OUT_OF_BOUNDS = "index_out_of_bounds"


@dataclass(frozen=True)
class FlatCircuit:
    """By layer, rising: feature index to strength with its direction, at intensity 1 and unclamped.

    ``duplicates`` are the (layer, index) that a later member named again; the first one counts.
    """

    strengths: dict[int, dict[int, float]]
    duplicates: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Offender:
    """A member that cannot be served."""

    feature_idx: int
    layer: int
    sae_id: str | None = field(metadata=LEFT_OUT)
    reason: OffenceReason


def flatten(document: CircuitDocument) -> FlatCircuit:
    """The features of ``document``; a member's own feature comes before its expanded ones."""
    strengths: dict[int, dict[int, float]] = {}
    duplicates: list[tuple[int, int]] = []
    for member in document.definition.members:
        for feature in member.features:
            layer = strengths.setdefault(member.layer, {})
            if feature.feature_idx in layer:
                duplicates.append((member.layer, feature.feature_idx))
            else:
                layer[feature.feature_idx] = feature.directional_strength
    return FlatCircuit(dict(sorted(strengths.items())), tuple(duplicates))


def by_place(flat: FlatCircuit, bindings: Mapping[int, Binding]) -> dict[AttachmentKey, dict[int, float]]:
    """Its strengths by the SAE that serves them; ``bindings`` are by layer.

    Raises :class:`SaeSetIncomplete` with every member that cannot be served.
    """
    offenders = find_offenders(flat, bindings)
    if offenders:
        raise incomplete(offenders)
    serving = {layer: bindings[layer].sae for layer in flat.strengths}
    return {(sae.sae_id, sae.layer): flat.strengths[layer] for layer, sae in serving.items() if sae is not None}


def find_offenders(flat: FlatCircuit, bindings: Mapping[int, Binding]) -> list[Offender]:
    """Every member that ``bindings`` leave without a place, in order of layer."""
    found = []
    for layer, strengths in flat.strengths.items():
        binding = bindings.get(layer)
        for index in strengths:
            if binding is None or binding.sae is None:
                mismatch = binding is not None and binding.cause is Cause.FEATURE_COUNT
                reason = OffenceReason.FEATURE_COUNT_MISMATCH if mismatch else OffenceReason.MISSING_OR_AMBIGUOUS_SAE
                named = binding.reference.sae_id if binding else None
                found.append(Offender(index, layer, named, reason))
            elif index >= binding.sae.d_sae:
                found.append(Offender(index, layer, binding.sae.sae_id, OffenceReason.INDEX_OUT_OF_BOUNDS))
    return found


def incomplete(offenders: list[Offender]) -> SaeSetIncomplete:
    """The refusal that lists ``offenders``."""
    layers = ", ".join(str(layer) for layer in sorted({each.layer for each in offenders}))
    count = len(offenders)
    return SaeSetIncomplete(
        f"{so_many(count, 'member')} of the circuit cannot be served (layers {layers}).",
        details={"offenders": wire(offenders)},
        remedy="Attach the SAE of each of these layers, then activate the circuit again.",
    )
