"""A circuit in plain words: state, verdict by layer, evidence of each edge, dangers. Pure functions.

Evidence is said with the phrases of its rung and with numbers, and with nothing that goes beyond them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from engine.counting import plural
from engine.public.documents import (
    PERSISTENCE_SENTENCE,
    CircuitDocument,
    Edge,
    LayerVerdict,
    Verdict,
    evidence_words,
    is_validated,
    rung_language,
    short_evidence_words,
)
from engine.public.library import CircuitRecord, ServingMode
from engine.public.steering import CircuitView, Claim, Hazard, HazardKind, WantedSae
from ui.kit.rung_badge import RUNG_TONES
from ui.kit.steering_text import place_words, strength
from ui.kit.text import counted
from ui.steer.cluster_text import Mark

MOST_REMARKS = 8


def layers_words(layers: Sequence[int]) -> str:
    """Layers as they follow each other: L6 → L11."""
    return " → ".join(f"L{layer}" for layer in layers) or "no layer"


def circuit_marks(view: CircuitView) -> tuple[Mark, ...]:
    """The state words of a circuit, the phrase of its rung first."""
    record = view.summary.record
    marks: list[Mark] = [(short_evidence_words(record.rung, only_persistence(view)), RUNG_TONES[record.rung])]
    return (*marks, *state_marks(view))


def state_marks(view: CircuitView) -> tuple[Mark, ...]:
    """The state words without the rung's phrase."""
    record = view.summary.record
    marks: list[Mark] = []
    if record.is_active:
        slice_of_it = record.serving_mode is ServingMode.SLICE_FALLBACK
        if not view.summary.steering:
            marks.append(("active, adds nothing", "warn"))
        else:
            marks.append(("serving a slice", "warn") if slice_of_it else ("serving", "good"))
    if not is_validated(record.rung):
        marks.append(("unvalidated", "warn"))
    if view.document is None:
        marks.append(("damaged", "bad"))
    elif view.verdict is not None and not view.verdict.serveable:
        marks.append(("SAE set incomplete", "warn"))
    if any(each.composed for each in view.claims):
        marks.append(("shares a layer", "warn"))
    return tuple(marks)


def circuit_line(view: CircuitView) -> str:
    """A circuit in one line of small print."""
    record = view.summary.record
    edges = counted(record.edge_count, "edge")
    return f"{layers_words(record.layers)} · {edges}"


def circuit_facts(view: CircuitView) -> str:
    """Layers, edges and model."""
    parts = [circuit_line(view)]
    if view.document is not None:
        definition = view.document.definition
        model = definition.model
        if model is not None and (model.hf_id or model.mistudio_model_id):
            parts.append(str(model.hf_id or model.mistudio_model_id))
    return " · ".join(parts)


def layer_words(verdict: LayerVerdict, wanted: WantedSae | None) -> tuple[str, str, str]:
    """A layer's verdict as (short words, tone, the whole sentence)."""
    binding, layer = verdict.binding, verdict.layer
    reason = f": {binding.reason}" if binding.reason else ""
    if binding.sae is not None:
        place = place_words((binding.sae.sae_id, binding.sae.layer))
        remark = binding.verdict is Verdict.WARN
        short = f"L{layer} substituted" if remark else f"L{layer} bound"
        return short, "warn" if remark else "good", f"Layer {layer} runs on {place}{reason}."
    named = binding.reference.sae_id
    if wanted is not None and wanted.available is not None:
        way = f" {wanted.available} is in the library and can be attached."
    elif named is not None:
        way = f" It was made with {named}, which is not in the library: import that SAE first."
    else:
        way = " Attach an SAE there."
    if binding.verdict is Verdict.BLOCK:
        return f"L{layer} does not fit", "bad", f"Layer {layer} cannot be bound{reason}.{way}"
    return f"L{layer} no SAE", "warn", f"Layer {layer} is not bound{reason}.{way}"


def slice_words(record: CircuitRecord, cluster_name: str | None) -> str:
    """That only a part serves, and whose dial it has; empty where that is not so."""
    if record.serving_mode is not ServingMode.SLICE_FALLBACK:
        return ""
    name = f" “{cluster_name}”" if cluster_name else ""
    return (
        f"Only one layer of it is served, as the cluster{name}; the dial is that cluster's. The evidence is the whole "
        "circuit's: this part was not tested by itself."
    )


def claim_marks(claims: Sequence[Claim]) -> tuple[Mark, ...]:
    """Held layers and their holders, one mark for the layers a circuit has alone and one for those it shares."""
    held: dict[tuple[str, str, bool], list[int]] = {}
    for claim in claims:
        held.setdefault((claim.circuit_id, claim.circuit_name, claim.composed), []).append(claim.layer)
    marks = []
    for (_id, name, composed), layers in held.items():
        words = f"{plural(len(layers), 'Layer')} {', '.join(map(str, sorted(layers)))} → {name}"
        marks.append((f"{words} (shared)", "warn") if composed else (words, "info"))
    return tuple(marks)


def only_persistence(view: CircuitView) -> bool:
    """Whether every edge of it is persistence, as far as its document can be read."""
    return view.document is not None and view.document.only_persistence


def acknowledge_words(rung: int, persistent: bool = False) -> str:
    """What a person says before an unvalidated circuit steers."""
    return f"I know that its evidence is only “{evidence_words(rung, persistent)}”, and want to use it as it is."


# --- evidence ---------------------------------------------------------------------------------------------------------


def edge_words(rung: int) -> str:
    """The phrase of one edge's own rung; it says nothing of the circuit, which stands where its weakest edge does."""
    return f"this edge: {rung_language(rung)}"


def whole_words(document: CircuitDocument) -> str:
    """Where the circuit as a whole stands, and why, where its edges differ."""
    rungs = [edge.evidence_rung for edge in document.definition.edges]
    weakest = f" Its {len(rungs)} edges are on different rungs; the weakest counts." if len(set(rungs)) > 1 else ""
    persistent = f" {PERSISTENCE_SENTENCE}" if document.only_persistence else ""
    return f"The circuit as a whole: {rung_language(document.rung)}.{weakest}{persistent}"


def edge_evidence(edge: Edge) -> tuple[str, ...]:
    """What was measured of an edge, each a short phrase; what was not measured is said to be so."""
    evidence = _mapping((edge.model_extra or {}).get("evidence"))
    told = [_effect(edge, evidence)]
    told += _counts(evidence)
    if edge.attribution is not None and edge.attribution.score is not None:
        method = f" ({edge.attribution.method})" if edge.attribution.method else ""
        told.append(f"attribution {strength(edge.attribution.score)}{method}")
    if edge.coactivation is not None:
        told += _together(edge)
    if edge.tested_and_failed:
        told.append(f"tested and failed: rung {', '.join(str(each) for each in edge.tested_and_failed)}")
    told.append(edge.type.replace("_", " "))
    return tuple(told)


def _effect(edge: Edge, evidence: Mapping[str, Any]) -> str:
    if edge.effect_size is None:
        if edge.weight_prior is None:
            return "no effect measured"
        return f"no effect measured (weight prior {strength(edge.weight_prior)})"
    ends = evidence.get("effect_5_to_95_percent")
    spread = ""
    if isinstance(ends, list) and len(ends) == 2 and all(isinstance(each, int | float) for each in ends):
        spread = f" ({strength(ends[0])} to {strength(ends[1])} from the 5th to the 95th percentile)"
    return f"effect {strength(edge.effect_size)}{spread}"


def _counts(evidence: Mapping[str, Any]) -> list[str]:
    told = []
    prompts, controls, largest = (evidence.get(key) for key in ("prompts", "controls", "largest_control"))
    if _is_number(prompts):
        told.append(counted(prompts, "prompt"))
    if _is_number(controls):
        most = f", the largest {strength(float(largest))}" if _is_number(largest) else ""
        told.append(f"{counted(controls, 'control')}{most}")
    direct = evidence.get("direct_path_share")
    if _is_number(direct):
        told.append(f"{direct:.0%} of it on the direct path".replace("%", " %"))
    return told


def _together(edge: Edge) -> list[str]:
    found = edge.coactivation
    if found is None:
        return []
    parts = [
        f"{name} {strength(value)}"
        for name, value in (("lift", found.lift), ("PMI", found.pmi), ("Spearman", found.spearman))
        if value is not None
    ]
    support = f", {strength(found.support)} cases" if found.support is not None else ""
    return [f"fire together: {', '.join(parts)}{support}"] if parts else []


def evidence_paragraphs(document: CircuitDocument) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Everything the document says of its evidence beside the edges, as (heading, lines)."""
    definition = document.definition
    found: list[tuple[str, tuple[str, ...]]] = []
    measures = {
        str(measure)
        for edge in definition.edges
        if (measure := _mapping((edge.model_extra or {}).get("evidence")).get("measure"))
    }
    if measures:
        found.append(("What an edge's effect is", tuple(sorted(measures))))
    faithful = definition.faithfulness
    if faithful is not None:
        parts = [
            f"{name} {strength(value)}"
            for name, value in (("necessity", faithful.necessity), ("sufficiency", faithful.sufficiency))
            if value is not None
        ]
        by = f" by {faithful.metric_id}" if faithful.metric_id else ""
        if parts:
            found.append(("Measured on the whole circuit", (f"{', '.join(parts)}{by}",)))
    if definition.budget is not None and definition.budget.formula_id:
        found.append(("How its strengths were made", (definition.budget.formula_id,)))
    calibration = definition.calibration
    if calibration is not None:
        marks = (
            f"onset λ {strength(calibration.onset)}, best at λ {strength(calibration.sweet_spot)}, breaks at λ "
            f"{strength(calibration.cliff)}"
        )
        remarks = [marks]
        if calibration.non_monotone:
            remarks.append("the effect does not rise steadily with λ")
        if calibration.provisional:
            remarks.append("the author calls this provisional")
        found.append(("Calibration of the dial", tuple(remarks)))
    discovery = definition.discovery
    if discovery is not None:
        told = [f"{name}: {value}" for name, value in _flat(discovery.model_dump(exclude_none=True))]
        if told:
            found.append(("How it was found, in the author's words", tuple(told)))
    manifests = sorted({str(each.validation_manifest_ref) for each in definition.edges if each.validation_manifest_ref})
    if manifests:
        found.append(("Where the author keeps the measurements", tuple(manifests)))
    if definition.provenance is not None:
        told = [f"{name}: {value}" for name, value in _flat(definition.provenance.model_dump(exclude_none=True))]
        if told:
            found.append(("Provenance", tuple(told)))
    return tuple(found)


def hazard_words(hazard: Hazard) -> str:
    """A pair that is steered together, and what it may do."""
    if hazard.kind is HazardKind.SUMMARY or hazard.up is None or hazard.down is None:
        return f"{hazard.label.removeprefix('heuristic:').capitalize()}."
    pair = f"#{hazard.up[1]} (layer {hazard.up[0]}) and #{hazard.down[1]} (layer {hazard.down[0]})"
    what = "add up" if hazard.kind is HazardKind.COMPOUNDING else "work against each other"
    if hazard.quantified_effect is not None:
        return f"{pair} {what}: measured effect {strength(hazard.quantified_effect)}."
    return f"{pair} may {what}: both are steered, and no effect between them was measured."


def hazard_remarks(found: Sequence[Hazard]) -> tuple[str, ...]:
    """The first of them, and how many more there are."""
    words = tuple(hazard_words(each) for each in found[:MOST_REMARKS])
    more = len(found) - len(words)
    return (*words, f"and {more} more pairs.") if more > 0 else words


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{above}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            found.extend(_flat(value, f"{name}, "))
        else:
            found.append((name, str(value)))
    return found
