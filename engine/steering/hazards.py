"""What speaks against steering a circuit.

Pairs of features on different layers that are steered together may add up or cancel: reported, no more. And the
evidence gate: a circuit below rung 2 steers only for someone who has said that they know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.documents.circuit import Edge
from engine.documents.evidence import TESTED_ELSEWHERE, evidence_words, is_validated, rung_language, rung_next_step
from engine.steering.errors import UnvalidatedCircuit

MAX_HEURISTIC = 10
"""Pairs without a measured effect that are listed one by one."""


class FeaturePlace(NamedTuple):
    """A feature at a layer."""

    layer: int
    feature_idx: int


class HazardKind(StrEnum):
    """What a pair may do; ``summary`` stands for the pairs that are not listed."""

    COMPOUNDING = "compounding"
    CANCELLATION = "cancellation"
    SUMMARY = "summary"


@dataclass(frozen=True)
class Hazard:
    """Two features of a circuit that may add up or cancel out.

    ``rung`` is the edge's, None where no edge joins the pair: that is not rung 0.
    """

    kind: HazardKind
    up: FeaturePlace | None
    down: FeaturePlace | None
    label: str
    rung: int | None = None
    quantified_effect: float | None = None


def hazards(strengths: Mapping[int, Mapping[int, float]], edges: Sequence[Edge]) -> tuple[Hazard, ...]:
    """The hazards of ``strengths`` (layer → feature → what is applied), those with a measured effect first.

    Equal directions compound, opposite ones cancel; a measured negative effect turns that round.
    """
    places = [
        (FeaturePlace(layer, index), value)
        for layer in sorted(strengths)
        for index, value in sorted(strengths[layer].items())
    ]
    places = [(place, value) for place, value in places if value != 0]
    best = _best_edges(edges)
    measured: list[Hazard] = []
    heuristic: list[tuple[float, Hazard]] = []
    for position, (first, first_value) in enumerate(places):
        for second, second_value in places[position + 1 :]:
            if first[0] == second[0]:
                continue
            up, down = (second, first) if (second, first) in best else (first, second)
            edge = best.get((up, down))
            together = (first_value > 0) == (second_value > 0)
            if edge is not None and edge.effect_size is not None and is_validated(edge.evidence_rung):
                kind = _kind(together == (edge.effect_size >= 0))
                label = f"validated:ES={edge.effect_size:g}"
                measured.append(Hazard(kind, up, down, label, edge.evidence_rung, edge.effect_size))
            else:
                weight = edge.weight_prior if edge else None
                label = "heuristic:co-steer-sign" if weight is None else f"heuristic:weight_prior={weight:g}"
                rung = edge.evidence_rung if edge else None
                order = -1.0 if weight is None else abs(weight)
                heuristic.append((order, Hazard(_kind(together), up, down, label, rung)))
    measured.sort(key=lambda row: -abs(row.quantified_effect or 0.0))
    heuristic.sort(key=lambda row: -row[0])
    rows = [*measured, *(row for _, row in heuristic[:MAX_HEURISTIC])]
    left_out = len(heuristic) - MAX_HEURISTIC
    if left_out > 0:
        rows.append(Hazard(HazardKind.SUMMARY, None, None, f"heuristic:{left_out} more pairs steered together"))
    return tuple(rows)


def _kind(compounding: bool) -> HazardKind:
    return HazardKind.COMPOUNDING if compounding else HazardKind.CANCELLATION


def _best_edges(edges: Iterable[Edge]) -> dict[tuple[FeaturePlace, FeaturePlace], Edge]:
    """By (up, down): the edge with the best evidence, then the largest effect. Edges between clusters are left out."""
    best: dict[tuple[FeaturePlace, FeaturePlace], Edge] = {}
    for edge in edges:
        if edge.up.feature_idx is None or edge.down.feature_idx is None:
            continue
        ends = (
            FeaturePlace(edge.up.layer, edge.up.feature_idx),
            FeaturePlace(edge.down.layer, edge.down.feature_idx),
        )
        if ends not in best or _weight(edge) > _weight(best[ends]):
            best[ends] = edge
    return best


def _weight(edge: Edge) -> tuple[int, float]:
    return edge.evidence_rung, abs(edge.effect_size) if edge.effect_size is not None else -1.0


def require_validated(circuit_id: str, rung: int, *, acknowledged: bool, only_persistence: bool = False) -> None:
    """Raises :class:`UnvalidatedCircuit` for a circuit below rung 2 unless ``acknowledged``.

    Asked at activation and again at every turn of the circuit's dial.
    """
    if is_validated(rung) or acknowledged:
        return
    raise UnvalidatedCircuit(
        f"This circuit's evidence is at rung {rung}: {evidence_words(rung, only_persistence)}.",
        details={
            "circuit_id": circuit_id,
            "rung": rung,
            "rung_language": rung_language(rung),
            "next_step": rung_next_step(rung),
        },
        remedy=(
            f"To use it as it is, acknowledge that it is unvalidated. To lift it, {rung_next_step(rung)}. "
            f"{TESTED_ELSEWHERE}"
        ),
    )
