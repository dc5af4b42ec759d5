"""Serving a circuit: the gates in the contract's order, then all of its layers, or one of them as a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.actions.steering.activation import (
    AT_ZERO,
    clamp_warnings,
    holds_live_keys,
    live_claims,
    mark_composed,
    put_in_force,
    take_out_of_force,
)
from engine.actions.steering.circuit_results import ActivatedCircuit
from engine.actions.steering.cluster_import import prepare_cluster
from engine.actions.steering.lookup import stored_circuit
from engine.actions.steering.unit_of_work import Change
from engine.counting import plural
from engine.documents.circuit import CircuitDocument
from engine.documents.cluster import read_cluster
from engine.documents.errors import DocumentRefused
from engine.documents.evidence import is_validated
from engine.documents.verdicts import CircuitVerdict, ImportStatus, judge_circuit
from engine.errors import MillmError
from engine.library.records import CircuitRecord, ProfileRecord, ServingMode
from engine.steering import transitions
from engine.steering.claims import grant, is_composed, require_single_slice
from engine.steering.dial import circuit_setting
from engine.steering.errors import SaeSetIncomplete, SteeringInvalid
from engine.steering.flatten import FlatCircuit, by_place, find_offenders, flatten, incomplete
from engine.steering.hazards import hazards, require_validated
from engine.steering.live import AttachmentKey, ServingCircuit
from engine.steering.slices import first_bound_layer, slice_document
from engine.steering.stored import stored_document
from engine.steering.strengths import SteeredSet
from engine.wire import wire


@dataclass(frozen=True)
class Asked:
    """What the caller said beside the circuit's id; ``intensity`` None takes the document's, else the row's."""

    acknowledge_unvalidated: bool = False
    allow_layer_overlap: bool = False
    intensity: object = None


@dataclass(frozen=True)
class Candidate:
    """A circuit read and held against what is attached."""

    record: CircuitRecord
    document: CircuitDocument
    verdict: CircuitVerdict
    flat: FlatCircuit

    @classmethod
    def of(cls, change: Change, record: CircuitRecord) -> Candidate:
        """Reads the stored document. Raises :class:`SteeringInvalid`."""
        document = stored_circuit(record)
        verdict = judge_circuit(document, change.draft.state.attached, change.bounds)
        return cls(record, document, verdict, flatten(document))

    @property
    def bound_layers(self) -> tuple[int, ...]:
        """Layers with features and an SAE to serve them, rising."""
        return tuple(layer for layer in self.document.layers if self.verdict.bindings[layer].serves)

    def authored(self) -> dict[AttachmentKey, dict[int, float]]:
        """Its strengths by the SAE that serves them. Raises :class:`SaeSetIncomplete` with every member in the way."""
        return by_place(self.flat, self.verdict.bindings)


def activate(change: Change, record: CircuitRecord, asked: Asked, *, allow_concurrent: bool) -> ActivatedCircuit:
    """Serve a circuit, in full where every layer has its SAE, else its first bound layer as a cluster.

    Raises, in this order: :class:`UnvalidatedCircuit`; :class:`SteeringInvalid` for a document that cannot be read;
    :class:`CircuitLayerContention`; :class:`SaeSetIncomplete`; :class:`SteeringInvalid` for the intensity and for a
    feature that somebody else steers.
    """
    require_validated(
        record.id,
        record.rung,
        acknowledged=asked.acknowledge_unvalidated,
        only_persistence=record.only_persistence,
    )
    candidate = Candidate.of(change, record)
    layer = None if candidate.verdict.serveable else first_bound_layer(candidate.document, candidate.verdict)
    shared = _claim(change, candidate, layer, asked, allow_concurrent=allow_concurrent)
    if candidate.verdict.serveable:
        served = _serve_in_full(change, candidate, asked.intensity)
    elif layer is not None:
        served = _serve_slice(change, candidate, layer, asked.intensity)
    else:
        raise _nothing_to_serve(candidate)
    active = change.step.circuits.set_active(
        record.id,
        served.mode,
        intensity=served.intensity,
        per_sae_warnings=tuple(wire(candidate.verdict.layers)),
        serveable=candidate.verdict.serveable,
        **({} if served.slice_profile_id is None else {"slice_profile_id": served.slice_profile_id}),
    )
    applied = {each.layer: each.values for each in served.steered}
    return ActivatedCircuit.of(
        active,
        holds_live_keys(change.draft.state, active),
        bound_layers=candidate.bound_layers,
        applied_per_layer=applied,
        hazards=hazards(applied, candidate.document.definition.edges),
        warnings=(
            *candidate.verdict.warnings,
            *_duplicates(candidate.flat),
            *served.warnings,
            *_sharing(change, record, shared),
        ),
        acknowledged_unvalidated=not is_validated(record.rung),
        slice_layer=layer,
        slice_profile_id=served.slice_profile_id,
        composed_layers=shared,
        allowed_layer_overlap=asked.allow_layer_overlap,
    )


def serve_anew(change: Change, record: CircuitRecord, intensity: float) -> tuple[str, ...]:
    """Serve a circuit that serves in full at another intensity, from what its author wrote; returns warnings.

    Raises :class:`SteeringInvalid`, :class:`SaeSetIncomplete`.
    """
    candidate = Candidate.of(change, record)
    serving = _serving(change, candidate, candidate.authored(), intensity)
    change.desk.apply(transitions.serve_circuit(serving))
    return tuple(clamp_warnings(serving.steered()))


# --- gates ------------------------------------------------------------------------------------------------------------


def _claim(
    change: Change, candidate: Candidate, layer: int | None, asked: Asked, *, allow_concurrent: bool
) -> tuple[int, ...]:
    """Claim the layers that will be served; returns those that are shared."""
    record, strengths = candidate.record, candidate.flat.strengths
    if candidate.verdict.serveable:
        keys: Mapping[int, Iterable[int]] = strengths
    elif layer is not None:
        require_single_slice(_serving_slice(change), circuit_id=record.id, circuit_name=record.name)
        keys = {layer: strengths[layer]}
    else:
        return ()
    granted = grant(
        live_claims(change),
        circuit_id=record.id,
        circuit_name=record.name,
        keys=keys,
        allow_concurrent=allow_concurrent,
        allow_layer_overlap=asked.allow_layer_overlap,
    )
    shared = granted.composed_layers
    change.step.claims.claim(record.id, {each: list(indices) for each, indices in keys.items()}, composed=bool(shared))
    return shared


def _serving_slice(change: Change) -> tuple[str, str] | None:
    for each in change.step.circuits.active():
        if each.serving_mode is ServingMode.SLICE_FALLBACK:
            return each.id, each.name
    return None


def _intensity(change: Change, candidate: Candidate, asked: object) -> float:
    for intensity in (asked, candidate.document.intensity, candidate.record.intensity):
        if intensity is not None:
            return circuit_setting(intensity, change.bounds)
    raise SteeringInvalid(
        f"The circuit {candidate.record.name!r} does not say at which intensity it is to be served.",
        param="intensity",
        details={"circuit_id": candidate.record.id},
        remedy="Activate it with an intensity from 0 to 2.",
    )


def _nothing_to_serve(candidate: Candidate) -> SaeSetIncomplete:
    offenders = find_offenders(candidate.flat, candidate.verdict.bindings)
    if offenders:
        return incomplete(offenders)
    return SaeSetIncomplete(
        f"The circuit {candidate.record.name!r} has no features to serve: its members are clusters that were not "
        "written out.",
        details={"offenders": []},
        remedy="Export it again, with its clusters expanded, from the tool that made it.",
    )


# --- in full ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Served:
    mode: ServingMode
    intensity: float
    steered: tuple[SteeredSet, ...]
    warnings: tuple[str, ...]
    slice_profile_id: str | None = None


def _serve_in_full(change: Change, candidate: Candidate, asked: object) -> _Served:
    authored = candidate.authored()
    intensity = _intensity(change, candidate, asked)
    warnings = _release_co_tenant(change, candidate)
    warnings += [
        f"Hand-set values on '{sae_id}' at layer {layer} steer beside the circuit."
        for sae_id, layer in authored
        if change.draft.state.entry((sae_id, layer)).values
    ]
    serving = _serving(change, candidate, authored, intensity)
    change.desk.apply(transitions.serve_circuit(serving))
    mark_composed(change)
    warnings += clamp_warnings(serving.steered())
    if intensity == 0:
        warnings.append(AT_ZERO)
    return _Served(ServingMode.FULL, intensity, serving.steered(), tuple(warnings))


def _serving(
    change: Change, candidate: Candidate, authored: Mapping[AttachmentKey, Mapping[int, float]], intensity: float
) -> ServingCircuit:
    record = candidate.record
    composed = is_composed(live_claims(change), record.id)
    declared = candidate.document.intensity_range
    return ServingCircuit(
        record.id,
        record.name,
        authored,
        intensity,
        record.rung,
        declared,
        composed,
        candidate.document.only_persistence,
    )


def _release_co_tenant(change: Change, candidate: Candidate) -> list[str]:
    """The active profile on one of the circuit's layers goes; the cluster of a slice it shares a layer with stays."""
    record, profile = candidate.record, change.draft.state.profile
    if record.serving_mode is ServingMode.SLICE_FALLBACK and record.slice_profile_id is not None:
        take_out_of_force(change, record.slice_profile_id)
        profile = change.draft.state.profile
    if profile is None or profile.place is None or profile.place[1] not in candidate.flat.strengths:
        return []
    if any(
        each.serving_mode is ServingMode.SLICE_FALLBACK and each.slice_profile_id == profile.profile_id
        for each in change.step.circuits.active()
    ):
        return []
    take_out_of_force(change, profile.profile_id)
    what = "cluster" if profile.is_cluster else "profile"
    return [f"The {what} '{profile.name}' was deactivated: the circuit takes layer {profile.place[1]}."]


# --- as a slice -------------------------------------------------------------------------------------------------------


def _serve_slice(change: Change, candidate: Candidate, layer: int, asked: object) -> _Served:
    record = candidate.record
    intensity = _intensity(change, candidate, asked)
    change.desk.apply(transitions.stop_circuit(record.id))
    before = change.step.profiles.active()
    cluster = _slice_cluster(change, candidate, layer, intensity)
    try:
        in_force = put_in_force(change, cluster)
    except MillmError as error:
        raise _slice_failed(candidate, layer, "slice_activation_failed", error.one_line()) from error
    mark_composed(change)
    layers = ", ".join(str(each) for each in candidate.document.layers if each != layer)
    warnings = [f"Only layer {layer} is served, as the cluster '{cluster.name}'; layers {layers} are not."]
    if before is not None and before.id not in (cluster.id, record.slice_profile_id):
        warnings.append(f"'{before.name}' was deactivated: one profile or cluster is active at a time.")
    return _Served(ServingMode.SLICE_FALLBACK, intensity, in_force.steered, (*warnings, *in_force.warnings), cluster.id)


def _slice_cluster(change: Change, candidate: Candidate, layer: int, intensity: float) -> ProfileRecord:
    """The cluster of the slice: the one that served it before where the document is the same, else a new one."""
    record = candidate.record
    raw = slice_document(candidate.document, layer, circuit_id=record.id, intensity=intensity)
    known = None if record.slice_profile_id is None else change.step.profiles.get(record.slice_profile_id)
    document = None if known is None else stored_document(known)
    if known is not None and document is not None and _same_slice(document.raw, raw):
        return change.step.profiles.update(known.id, intensity=intensity)
    try:
        prepared = prepare_cluster(read_cluster(raw), change.draft.state.attached, change.bounds)
    except DocumentRefused as error:
        raise _slice_failed(candidate, layer, f"slice_import_{ImportStatus.ERROR}", error.one_line()) from error
    if prepared.status is not ImportStatus.IMPORTED:
        raise _slice_failed(candidate, layer, f"slice_import_{prepared.status}", " ".join(prepared.new.warnings))
    return change.step.profiles.add(prepared.new, rename=True)


def _same_slice(known: dict[str, Any], raw: dict[str, Any]) -> bool:
    def but_the_dial(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "budget": {**(document.get("budget") or {}), "intensity": None}}

    return but_the_dial(known) == but_the_dial(raw)


def _slice_failed(candidate: Candidate, layer: int, reason: str, why: str) -> SaeSetIncomplete:
    features = candidate.flat.strengths[layer]
    return SaeSetIncomplete(
        f"Not every layer of the circuit has its SAE, and its slice at layer {layer} cannot serve alone: {why}",
        details={"offenders": [{"feature_idx": each, "layer": layer, "reason": reason} for each in features]},
        remedy="Attach the SAE of each of its layers, then activate the circuit again.",
    )


# --- words ------------------------------------------------------------------------------------------------------------


def _duplicates(flat: FlatCircuit) -> list[str]:
    return [f"Feature {index} on layer {layer} is named twice; the first counts." for layer, index in flat.duplicates]


def _sharing(change: Change, record: CircuitRecord, shared: tuple[int, ...]) -> list[str]:
    if not shared:
        return []
    names = {each.circuit_name for each in live_claims(change) if each.layer in shared and each.circuit_id != record.id}
    where = f"{plural(len(shared), 'layer')} {', '.join(map(str, shared))}"
    with_whom = " and ".join(f"'{name}'" for name in sorted(names))
    return [f"It shares {where} with {with_whom}; no evidence rung is claimed while it does."]
