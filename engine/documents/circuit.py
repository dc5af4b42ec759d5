"""Circuit documents: features on several layers, edges with their evidence; stored and exported as they came."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engine.documents.binding import SaeReference
from engine.documents.evidence import circuit_rung, is_only_persistence, parse_rung
from engine.documents.fields import Anything, Count, Index, Narrative, NotNegative, Number, Open, Share
from engine.documents.members import (
    MAX_MEMBERS,
    CircuitBudget,
    Member,
    ModelRef,
    Provenance,
    SaeRef,
    SchemaVersion,
    range_notes,
)
from engine.documents.problems import DocumentProblem, json_pointer, refusal, validation_problems
from engine.documents.ranges import Range
from engine.library.names import CIRCUIT_NAME_LIMIT

MAX_LAYERS = 16
"""Most SAEs, and most layers that members are on."""
MAX_EDGES = 200


class CircuitMember(Open):
    """A feature or a cluster on one layer; ``expanded_members`` are the features of a cluster."""

    layer: Index
    member_kind: Literal["feature_ref", "cluster_ref"] = "feature_ref"
    feature: Member | None = None
    cluster_profile_id: str | None = None
    cluster_name: str | None = None
    expanded_members: Annotated[list[Member], Field(max_length=MAX_MEMBERS)] | None = None

    @property
    def features(self) -> list[Member]:
        """Every feature it stands for: its own first, then the expanded ones."""
        return [*([self.feature] if self.feature else []), *(self.expanded_members or [])]


class Node(Open):
    """An end of an edge."""

    layer: Index
    feature_idx: Index | None = None
    cluster_profile_id: str | None = None
    kind: Literal["feature", "cluster"] = "feature"


class Coactivation(Open):
    """How often both ends fire together."""

    pmi: Number | None = None
    lift: Number | None = None
    spearman: Number | None = None
    support: NotNegative | None = None
    null_percentile: Number | None = None
    replicated_heldout: Anything = None
    corpus_ref: Anything = None


class Attribution(Open):
    """How much of the downstream end's activation is attributed to the upstream one."""

    method: Literal["raw", "ig_lite"] | None = None
    score: Number | None = None
    sign_consistency: Share | None = None


class Position(Open):
    """Where in a text the edge acts."""

    mediating_heads: list[Anything] | None = None
    roles: list[Anything] | None = None
    source_role: str | None = None
    target_role: str | None = None


class Edge(Open):
    """An edge and its evidence. ``rung`` may hold anything: what is no rung counts as 0."""

    up: Node
    down: Node
    type: Literal["computed", "persistence", "attention_mediated"] = "computed"
    rung: Anything = 0
    tested_and_failed: list[Anything] | None = None
    effect_size: Number | None = None
    weight_prior: Number | None = None
    coactivation: Coactivation | None = None
    attribution: Attribution | None = None
    position: Position | None = None
    type_signals: Anything = None
    validation_manifest_ref: Anything = None

    @property
    def evidence_rung(self) -> int:
        """The rung, 0 where none can be read."""
        return parse_rung(self.rung) or 0


class Faithfulness(Open):
    """A badge: never computed with."""

    necessity: Number | None = None
    sufficiency: Number | None = None
    sufficiency_k: Number | None = None
    metric_id: str | None = None
    manifest_ref: Anything = None


class Probe(Open):
    """A prompt of a calibration and what it should give."""

    prompt: Annotated[str, Field(min_length=1, max_length=2000)]
    expected: Annotated[str, Field(min_length=1, max_length=2000)]


class Calibration(Open):
    """Advice about the dial: where an effect begins, where it is best, where the text breaks."""

    onset: NotNegative
    sweet_spot: NotNegative
    cliff: NotNegative
    probe_set: list[Probe] = Field(default_factory=list)
    step_budget: Count | None = None
    judge_metric_id: str | None = None
    manifest_ref: Anything = None
    non_monotone: bool = False
    provisional: bool = True


class Discovery(Open):
    """How the circuit was found."""

    mode: Literal["seeded", "open"] | None = None
    granularity: Literal["feature", "cluster"] | None = None
    corpus_ref: Anything = None
    thresholds: Anything = None
    split: Anything = None
    discovered_at: str | None = None


class CircuitDefinition(Open):
    """The schema of ``mistudio.circuit-definition``."""

    kind: Literal["mistudio.circuit-definition"] = "mistudio.circuit-definition"
    schema_version: SchemaVersion = "1"
    name: Annotated[str, Field(min_length=1, max_length=CIRCUIT_NAME_LIMIT)]
    narrative: Narrative | None = None
    model: ModelRef | None = None
    saes: Annotated[list[SaeRef], Field(min_length=1, max_length=MAX_LAYERS)]
    members: Annotated[list[CircuitMember], Field(min_length=1)]
    edges: list[Edge] = Field(default_factory=list, max_length=MAX_EDGES)
    budget: CircuitBudget | None = None
    faithfulness: Faithfulness | None = None
    calibration: Calibration | None = None
    discovery: Discovery | None = None
    provenance: Provenance | None = None
    sensing: Anything = None


@dataclass(frozen=True)
class CircuitDocument:
    """A valid circuit. ``raw`` is the author's document, to be stored; ``notes`` are things read leniently."""

    raw: dict[str, Any]
    definition: CircuitDefinition
    notes: tuple[DocumentProblem, ...] = ()

    @property
    def rung(self) -> int:
        return circuit_rung(edge.evidence_rung for edge in self.definition.edges)

    @property
    def only_persistence(self) -> bool:
        return is_only_persistence(edge.type for edge in self.definition.edges)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have features to serve, rising."""
        return tuple(sorted({member.layer for member in self.definition.members if member.features}))

    @property
    def references(self) -> dict[int, SaeReference]:
        """By layer, rising: the SAE each is made with, for every layer that an SAE or a member names."""
        by_layer = {member.layer: SaeReference(layer=member.layer) for member in self.definition.members}
        by_layer |= {ref.layer: ref.reference for ref in self.definition.saes if ref.layer is not None}
        return dict(sorted(by_layer.items()))

    @property
    def intensity(self) -> float | None:
        """The authored dial, None without a budget."""
        return self.definition.budget.intensity if self.definition.budget else None

    @property
    def intensity_range(self) -> Range | None:
        """The declared range of the dial, where one can be read."""
        return self.definition.budget.declared_range if self.definition.budget else None

    def exported(self) -> dict[str, Any]:
        """The author's document, every unknown key included; a copy."""
        return copy.deepcopy(self.raw)


def read_circuit(raw: dict[str, Any]) -> CircuitDocument:
    """The circuit that ``raw`` holds; raises :class:`DocumentInvalid` with a pointer to each problem."""
    try:
        definition = CircuitDefinition.model_validate(raw)
    except ValidationError as error:
        raise refusal("circuit document", validation_problems(error)) from None
    problems = [*_sae_problems(definition), *_member_problems(definition), *_edge_problems(definition)]
    if definition.budget and definition.budget.layers:
        problems += [
            DocumentProblem(json_pointer(["budget", "layers", key]), "must be named by a layer number")
            for key in definition.budget.layers
            if not (key.isascii() and key.isdigit())
        ]
    if problems:
        raise refusal("circuit document", problems)
    return CircuitDocument(raw, definition, tuple(_notes(definition)))


def _sae_problems(definition: CircuitDefinition) -> Iterator[DocumentProblem]:
    seen: set[int] = set()
    for position, sae in enumerate(definition.saes):
        if sae.layer is None:
            yield DocumentProblem(json_pointer(["saes", position, "layer"]), "is required")
        elif sae.layer in seen:
            yield DocumentProblem(json_pointer(["saes", position, "layer"]), f"names layer {sae.layer} a second time")
        else:
            seen.add(sae.layer)


def _member_problems(definition: CircuitDefinition) -> Iterator[DocumentProblem]:
    by_layer: dict[int, set[int]] = {}
    for position, member in enumerate(definition.members):
        if member.member_kind == "feature_ref" and not member.features:
            yield DocumentProblem(json_pointer(["members", position, "feature"]), "is required for a feature_ref")
        if member.layer not in by_layer and len(by_layer) == MAX_LAYERS:
            message = f"adds layer {member.layer}; members may be on at most {MAX_LAYERS} layers"
            yield DocumentProblem(json_pointer(["members", position, "layer"]), message)
            continue
        features = by_layer.setdefault(member.layer, set())
        before = len(features)
        features.update(each.feature_idx for each in member.features)
        if before <= MAX_MEMBERS < len(features):
            message = f"brings layer {member.layer} to {len(features)} features; at most {MAX_MEMBERS} are allowed"
            yield DocumentProblem(json_pointer(["members", position]), message)


def _edge_problems(definition: CircuitDefinition) -> Iterator[DocumentProblem]:
    present = {sae.layer for sae in definition.saes} | {member.layer for member in definition.members}
    for position, edge in enumerate(definition.edges):
        for end, node in (("up", edge.up), ("down", edge.down)):
            if node.layer not in present:
                message = f"names layer {node.layer}, which has no SAE and no member in this circuit"
                yield DocumentProblem(json_pointer(["edges", position, end, "layer"]), message)


def _notes(definition: CircuitDefinition) -> Iterator[DocumentProblem]:
    yield from range_notes(definition.budget, ["budget"])
    for position, edge in enumerate(definition.edges):
        if parse_rung(edge.rung) is None:
            yield DocumentProblem(json_pointer(["edges", position, "rung"]), "is not an evidence rung and counts as 0")
