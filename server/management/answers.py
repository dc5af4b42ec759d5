"""What the management routes answer, where the engine's own types do not say it by their fields.

Each type here has the keys that the ``as_dict`` of the engine's type of the same purpose gives. The routes do not use
them: the API's description is made from them, and the tests hold every answer to it.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from engine.documents.ranges import Range
from engine.documents.verdicts import ImportStatus
from engine.library.records import AttachItem, FeatureLabel, ProfileKind

# --- profiles and clusters --------------------------------------------------------------------------------------------


class ProfileAnswer(TypedDict):
    """A profile; a cluster is one too. ``steering`` is by feature index as text."""

    id: str
    name: str
    description: str | None
    model_id: str | None
    sae_id: str | None
    layer: int | None
    steering: dict[str, float]
    is_active: bool
    source_kind: ProfileKind
    intensity: float
    sensing_enabled: bool
    created_at: str
    updated_at: str


class ProfilesAnswer(TypedDict):
    """Profiles by name."""

    profiles: list[ProfileAnswer]
    total: int
    active_profile_id: str | None


class ActivatedAnswer(TypedDict):
    """A profile or cluster was activated."""

    profile_id: str
    applied_steering: bool
    feature_count: int
    warnings: list[str]


class DeactivatedAnswer(TypedDict):
    """A profile or cluster was deactivated."""

    profile_id: str
    cleared_steering: bool
    warnings: list[str]


class DeletedAnswer(TypedDict):
    """A profile or cluster is gone."""

    profile_id: str
    cleared_steering: bool
    warnings: list[str]
    deleted: bool


class ClusterAnswer(TypedDict):
    """A cluster. ``members`` are [feature, label, strength with its direction]."""

    id: str
    name: str
    description: str | None
    model_id: str | None
    sae_id: str | None
    layer: int | None
    is_active: bool
    intensity: float
    sensing_enabled: bool
    member_count: int
    members: list[tuple[int, str | None, float]]
    display_token: str | None
    bound: bool | None
    warnings: list[str]
    hub_ref: dict[str, Any] | None
    intensity_range: Range | None
    budget_b: float | None
    formula_id: str | None
    created_at: str
    updated_at: str


class ClustersAnswer(TypedDict):
    """Clusters by name."""

    clusters: list[ClusterAnswer]
    active_cluster_id: str | None


class ImportItemAnswer(TypedDict):
    """What became of one definition of an import."""

    name: str
    status: ImportStatus
    warnings: list[str]
    profile_id: NotRequired[str]
    error: NotRequired[str]
    errors: NotRequired[list[dict[str, str]]]
    code: NotRequired[str | None]


class ImportAnswer(TypedDict):
    """What became of every definition of an import."""

    results: list[ImportItemAnswer]
    imported: int
    blocked: int
    errors: int


class DialledClusterAnswer(TypedDict):
    """A cluster's dial was set."""

    profile_id: str
    intensity: float
    reapplied: bool


# --- circuits ---------------------------------------------------------------------------------------------------------


class CircuitAnswer(TypedDict):
    """A circuit. ``steering``: whether it adds anything now; null where that was not looked at.

    ``only_persistence``: every edge is a direction that the residual stream carries on, nothing computed; it is to be
    said beside the phrase of the rung. ``rung_next_step`` is done outside this program, with the tool that made the
    document.
    """

    id: str
    name: str
    description: str | None
    rung: int
    rung_language: str
    rung_next_step: str | None
    only_persistence: bool
    validated: bool
    edge_count: int
    layers: list[int]
    serveable: bool
    is_active: bool
    serving_mode: str | None
    intensity: float
    per_sae_warnings: list[dict[str, Any]]
    steering: bool | None
    created_at: str
    updated_at: str


class CircuitsAnswer(TypedDict):
    """A page of circuits, newest first."""

    circuits: list[CircuitAnswer]
    active_circuit_id: str | None
    total: int


class ImportedCircuitAnswer(CircuitAnswer):
    """A circuit that came in, and what was found when it was read."""

    warnings: list[str]


class PlaceAnswer(TypedDict):
    """A feature at a layer."""

    layer: int
    feature_idx: int


class HazardAnswer(TypedDict):
    """Two features of a circuit that may add up or cancel out."""

    kind: str
    up: PlaceAnswer | None
    down: PlaceAnswer | None
    label: str
    rung: int | None
    quantified_effect: float | None


class ActivatedCircuitAnswer(ImportedCircuitAnswer):
    """A circuit that serves now. ``applied_per_layer`` is by layer and feature index, as text."""

    bound_layers: list[int]
    applied_per_layer: dict[str, dict[str, float]]
    hazards: list[HazardAnswer]
    acknowledged_unvalidated: bool
    slice_layer: NotRequired[int]
    slice_profile_id: NotRequired[str | None]
    composed_layers: NotRequired[list[int]]
    allowed_layer_overlap: NotRequired[bool]


class DialledCircuitAnswer(ImportedCircuitAnswer):
    """A circuit's dial was set."""

    reapplied: bool
    superseded: bool


class DeactivatedCircuitAnswer(CircuitAnswer):
    """A circuit that serves no more."""

    cleared_steering: bool


class DeletedCircuitAnswer(TypedDict):
    """A circuit that is gone."""

    circuit_id: str
    deleted: bool
    cleared_steering: bool
    slice_profile_id: NotRequired[str]


class ClaimAnswer(TypedDict):
    """A layer that a circuit holds. ``steering_keys`` are the features it steers there."""

    layer: int
    circuit_id: str
    circuit_name: str
    steering_keys: list[int]
    composed: bool


class ReleasedClaimsAnswer(TypedDict):
    """Layers that a circuit let go of."""

    circuit_id: str
    released_layers: list[int]
    warnings: list[str]


# --- SAEs -------------------------------------------------------------------------------------------------------------


class LabelsAnswer(TypedDict):
    """Labels of an SAE's features that fit; ``total`` counts all it has."""

    sae_id: str
    labels: list[FeatureLabel]
    total: int


class SavedSetAnswer(TypedDict):
    """A set of SAEs under a name."""

    name: str
    saes: list[AttachItem]
    created_at: str


class SavedSetsAnswer(TypedDict):
    """All of them."""

    sets: list[SavedSetAnswer]
    total: int


class DeletedSetAnswer(TypedDict):
    """A saved set that is gone."""

    name: str
    deleted: bool
