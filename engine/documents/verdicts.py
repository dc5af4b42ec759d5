"""What an import finds when it holds a document against the attached SAEs: bindings, warnings, whether it can serve.

A verdict refuses nothing. It is made at import, and again at activation, which is where refusals happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.documents.binding import AttachedSae, Binding, Cause, Verdict, bind
from engine.documents.circuit import CircuitDocument
from engine.documents.cluster import ClusterDocument
from engine.documents.members import Member
from engine.documents.problems import DocumentProblem
from engine.documents.ranges import STEERING_RANGE, DialBounds, circuit_envelope, cluster_envelope
from engine.wire import LEFT_OUT, UNTOLD

MAX_NAMED = 20
"""Features spelt out in one warning."""


class ImportStatus(StrEnum):
    """The ``status`` of an import's result; ``blocked`` is part of the protocol and never given."""

    IMPORTED = "imported"
    IMPORTED_UNBOUND = "imported_unbound"
    BLOCKED = "blocked"
    ERROR = "error"


@dataclass(frozen=True)
class ClusterVerdict:
    """How a cluster fares with what is attached."""

    binding: Binding
    warnings: tuple[str, ...]

    @property
    def status(self) -> ImportStatus:
        return ImportStatus.IMPORTED if self.binding.serves else ImportStatus.IMPORTED_UNBOUND


@dataclass(frozen=True)
class LayerVerdict:
    """How one layer of a circuit fares; ``reason`` is left out for a plain match."""

    layer: int
    sae_id: str | None
    verdict: Verdict
    reason: str | None = field(metadata=LEFT_OUT)
    binding: Binding = field(metadata=UNTOLD)

    @classmethod
    def of(cls, layer: int, binding: Binding) -> LayerVerdict:
        """The verdict that a binding is; the SAE is the one that serves, or the first of those in the way."""
        named = binding.sae or (binding.candidates[0] if binding.verdict is Verdict.BLOCK else None)
        return cls(layer, named.sae_id if named else None, binding.verdict, binding.reason or None, binding)


@dataclass(frozen=True)
class CircuitVerdict:
    """How a circuit fares: a verdict for every layer it names, rising; ``serveable`` needs all that have features."""

    layers: tuple[LayerVerdict, ...]
    serveable: bool
    warnings: tuple[str, ...]

    @property
    def bindings(self) -> dict[int, Binding]:
        """By layer."""
        return {each.layer: each.binding for each in self.layers}


def judge_cluster(document: ClusterDocument, attached: Sequence[AttachedSae], bounds: DialBounds) -> ClusterVerdict:
    """The verdict on a cluster that is imported or about to be activated."""
    binding = bind(document.reference, attached)
    envelope = cluster_envelope(document.intensity_range, bounds)
    warnings = [*_noted(document.notes), *_cluster_binding(binding)]
    members = document.definition.members
    warnings += _outside(members, binding)
    warnings += _beyond_the_range(members, envelope.ceiling)
    return ClusterVerdict(binding, tuple(warnings))


def judge_circuit(document: CircuitDocument, attached: Sequence[AttachedSae], bounds: DialBounds) -> CircuitVerdict:
    """The verdict on a circuit that is imported or about to be activated."""
    verdicts = [LayerVerdict.of(layer, bind(reference, attached)) for layer, reference in document.references.items()]
    bindings = {each.layer: each.binding for each in verdicts}
    served = document.layers
    warnings = list(_noted(document.notes))
    for layer, binding in bindings.items():
        if binding.reason:
            warnings.append(f"Layer {layer}: {binding.reason}.")
    for layer in served:
        warnings += _outside(_features(document, layer), bindings[layer])
    ceiling = circuit_envelope(document.intensity_range, bounds).ceiling
    for layer in served:
        warnings += _beyond_the_range(_features(document, layer), ceiling)
    serveable = bool(served) and all(bindings[layer].serves for layer in served)
    return CircuitVerdict(tuple(verdicts), serveable, tuple(warnings))


def _noted(notes: Iterable[DocumentProblem]) -> Iterator[str]:
    for note in notes:
        yield f"{note.sentence()}."


def _cluster_binding(binding: Binding) -> list[str]:
    if binding.reason is None:
        return []
    if binding.serves:
        return [f"Bound with a remark: {binding.reason}."]
    if binding.cause is Cause.NOTHING_ATTACHED:
        return ["Not bound: no SAE is attached. Attach one, then activate the cluster."]
    return [f"Not bound: {binding.reason}."]


def _features(document: CircuitDocument, layer: int) -> list[Member]:
    """A layer's features, the first of each index."""
    first: dict[int, Member] = {}
    for member in document.definition.members:
        if member.layer == layer:
            for feature in member.features:
                first.setdefault(feature.feature_idx, feature)
    return list(first.values())


def _outside(members: Sequence[Member], binding: Binding) -> list[str]:
    if binding.sae is None:
        return []
    outside = [f"#{each.feature_idx}" for each in members if each.feature_idx >= binding.sae.d_sae]
    if not outside:
        return []
    return [f"{binding.sae} has features 0 to {binding.sae.d_sae - 1}; outside are {_listed(outside)}."]


def _beyond_the_range(members: Sequence[Member], ceiling: float) -> list[str]:
    beyond = [
        f"#{each.feature_idx} ({each.directional_strength:g})"
        for each in members
        if abs(each.strength) * ceiling > STEERING_RANGE
    ]
    if not beyond:
        return []
    return [f"At intensity {ceiling:g} these strengths are clamped to ±{STEERING_RANGE:g}: {_listed(beyond)}."]


def _listed(words: Sequence[str]) -> str:
    more = len(words) - MAX_NAMED
    return ", ".join(words[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
