"""A slice of a circuit: one layer of it as a cluster document, for when not every layer's SAE is attached.

The slice is served by the cluster's rules. Its provenance says that it is a part, and of what; the evidence named there
is the whole circuit's.
"""

from __future__ import annotations

import copy
from typing import Any

from engine.documents.circuit import CircuitDocument
from engine.documents.evidence import evidence_words, rung_language
from engine.documents.verdicts import CircuitVerdict
from engine.library.names import CLUSTER_NAME_LIMIT, LONGEST_SUFFIX

_NOTE_LIMIT = 500


def first_bound_layer(document: CircuitDocument, verdict: CircuitVerdict) -> int | None:
    """The lowest layer with features that has its SAE; None when no layer has."""
    bindings = verdict.bindings
    return next((layer for layer in document.layers if bindings[layer].serves), None)


def slice_document(document: CircuitDocument, layer: int, *, circuit_id: str, intensity: float) -> dict[str, Any]:
    """The cluster document of ``layer`` of the circuit, its members as the author wrote them.

    ``intensity`` is the circuit's dial now; the declared range is copied as it stands.
    """
    raw = document.raw
    rung = document.rung
    sliced: dict[str, Any] = {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": _name(document.definition.name, layer),
        "narrative": raw.get("narrative"),
        "sae": _sae(document, layer),
        "members": _members(document, layer),
        "budget": _budget(document, layer, intensity),
        "provenance": {
            "source_note": _note(document, layer),
            "partial": True,
            "parent_circuit_id": circuit_id,
            "parent_circuit_name": document.definition.name,
            "parent_rung": rung,
            "parent_rung_language": rung_language(rung),
            "parent_layer": layer,
        },
    }
    if raw.get("model") is not None:
        sliced["model"] = copy.deepcopy(raw["model"])
    return sliced


def _name(name: str, layer: int) -> str:
    """Short enough that a free name can still be made of it."""
    suffix = f" [L{layer} slice]"
    return name[: CLUSTER_NAME_LIMIT - LONGEST_SUFFIX - len(suffix)].rstrip() + suffix


def _sae(document: CircuitDocument, layer: int) -> dict[str, Any]:
    for position, sae in enumerate(document.definition.saes):
        if sae.layer == layer:
            return copy.deepcopy(document.raw["saes"][position])
    return {"layer": layer}


def _budget(document: CircuitDocument, layer: int, intensity: float) -> dict[str, Any]:
    """The layer's own budget, with the circuit's dial and range."""
    whole = document.raw.get("budget") or {}
    by_layer = {int(key): value for key, value in (whole.get("layers") or {}).items()}
    budget: dict[str, Any] = copy.deepcopy(by_layer.get(layer, {}))
    budget.pop("intensity_range", None)
    budget["intensity"] = intensity
    if whole.get("intensity_range") is not None:
        budget["intensity_range"] = copy.deepcopy(whole["intensity_range"])
    return budget


def _members(document: CircuitDocument, layer: int) -> list[dict[str, Any]]:
    """The raw members, unknown keys included; the first of each feature."""
    first: dict[int, dict[str, Any]] = {}
    for raw, member in zip(document.raw["members"], document.definition.members, strict=True):
        if member.layer != layer:
            continue
        own = [raw["feature"]] if member.feature else []
        for feature, parsed in zip([*own, *(raw.get("expanded_members") or [])], member.features, strict=True):
            first.setdefault(parsed.feature_idx, copy.deepcopy(feature))
    return list(first.values())


def _note(document: CircuitDocument, layer: int) -> str:
    layers = ", ".join(str(each) for each in document.layers)
    rung = document.rung
    tail = (
        f": layer {layer} of a circuit over layers {layers}. The whole circuit's evidence is at rung {rung} "
        f"({evidence_words(rung, document.only_persistence)}); this part was not tested by itself."
    )
    head = f"Partial slice of '{document.definition.name}'"
    return head[: _NOTE_LIMIT - len(tail)] + tail
