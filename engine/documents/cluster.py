"""Cluster documents: a named set of features on one layer, stored and exported exactly as they came.

Bundles are up to fifty of them in one document, each read on its own so that one bad one stops no other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engine.documents.binding import SaeReference
from engine.documents.errors import DocumentRefused
from engine.documents.fields import Anything, Narrative, Open
from engine.documents.loading import DocumentKind, require_kind
from engine.documents.members import (
    MAX_MEMBERS,
    LayerBudget,
    Member,
    ModelRef,
    Provenance,
    SaeRef,
    SchemaVersion,
    range_notes,
)
from engine.documents.problems import DocumentProblem, json_pointer, refusal, validation_problems
from engine.documents.ranges import Range
from engine.library.names import CLUSTER_NAME_LIMIT

LOCAL_KEYS = ("warnings", "sensing_overrides", "hub_ref")
"""What this program keeps about a cluster beside the author's document; never part of an export."""


class ClusterDefinition(Open):
    """The schema of ``mistudio.cluster-definition``."""

    kind: Literal["mistudio.cluster-definition"] = "mistudio.cluster-definition"
    schema_version: SchemaVersion = "1"
    name: Annotated[str, Field(min_length=1, max_length=CLUSTER_NAME_LIMIT)]
    narrative: Narrative | None = None
    display_token: str | None = None
    model: ModelRef | None = None
    sae: SaeRef | None = None
    members: Annotated[list[Member], Field(min_length=1, max_length=MAX_MEMBERS)]
    budget: LayerBudget | None = None
    provenance: Provenance | None = None
    sensing: Anything = None


@dataclass(frozen=True)
class ClusterDocument:
    """A valid cluster. ``raw`` is the author's document, to be stored; ``notes`` are things read leniently."""

    raw: dict[str, Any]
    definition: ClusterDefinition
    notes: tuple[DocumentProblem, ...] = ()

    @property
    def reference(self) -> SaeReference:
        """The SAE it was made with."""
        return self.definition.sae.reference if self.definition.sae else SaeReference()

    @property
    def strengths(self) -> dict[int, float]:
        """Feature index to strength with its direction, at intensity 1 and unclamped; in the author's order."""
        return {member.feature_idx: member.directional_strength for member in self.definition.members}

    @property
    def intensity(self) -> float:
        """Where the dial stands when the cluster is imported."""
        return self.definition.budget.intensity if self.definition.budget else 1.0

    @property
    def intensity_range(self) -> Range | None:
        """The declared range of the dial, where one can be read."""
        return self.definition.budget.declared_range if self.definition.budget else None

    def exported(self) -> dict[str, Any]:
        """The author's document, every unknown key included; a copy."""
        return {key: copy.deepcopy(value) for key, value in self.raw.items() if key not in LOCAL_KEYS}


def read_cluster(raw: dict[str, Any], *, prefix: Sequence[str | int] = ()) -> ClusterDocument:
    """The cluster that ``raw`` holds; raises :class:`DocumentInvalid` with pointers under ``prefix``."""
    try:
        definition = ClusterDefinition.model_validate(raw)
    except ValidationError as error:
        raise refusal("cluster document", validation_problems(error, prefix)) from None
    problems = []
    seen: set[int] = set()
    for position, member in enumerate(definition.members):
        if member.feature_idx in seen:
            pointer = json_pointer([*prefix, "members", position, "feature_idx"])
            problems.append(DocumentProblem(pointer, f"names feature {member.feature_idx} a second time"))
        seen.add(member.feature_idx)
    if problems:
        raise refusal("cluster document", problems)
    return ClusterDocument(raw, definition, tuple(range_notes(definition.budget, [*prefix, "budget"])))


MAX_DEFINITIONS = 50


class _Bundle(Open):
    kind: Literal["mistudio.cluster-bundle"]
    schema_version: SchemaVersion = "1"
    definitions: Annotated[list[Anything], Field(min_length=1, max_length=MAX_DEFINITIONS)]


@dataclass(frozen=True)
class BundleItem:
    """One definition: what it is called, and either the document or why it was refused."""

    name: str
    document: ClusterDocument | None
    error: DocumentRefused | None = None


def read_bundle(raw: dict[str, Any]) -> tuple[BundleItem, ...]:
    """The definitions of the bundle ``raw``, in order; raises :class:`DocumentInvalid` when the whole is bad."""
    try:
        bundle = _Bundle.model_validate(raw)
    except ValidationError as error:
        raise refusal("cluster bundle", validation_problems(error)) from None
    return tuple(_read_item(position, each) for position, each in enumerate(bundle.definitions))


def _read_item(position: int, raw: Any) -> BundleItem:
    place = ("definitions", position)
    name = raw.get("name") if isinstance(raw, dict) else None
    shown = name if isinstance(name, str) and name else f"definition {position + 1}"
    try:
        if not isinstance(raw, dict):
            raise refusal("cluster document", [DocumentProblem(json_pointer(place), "must be an object")])
        if "kind" in raw:
            require_kind(raw, DocumentKind.CLUSTER, pointer=json_pointer([*place, "kind"]))
        return BundleItem(shown, read_cluster(raw, prefix=place))
    except DocumentRefused as error:
        return BundleItem(shown, None, error)
