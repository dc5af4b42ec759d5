"""Profiles, clusters, circuits and dials: what steers now, what it would add, and what was refused."""

from engine.actions.steering.circuit_results import (
    ActivatedCircuit,
    CircuitList,
    CircuitSummary,
    DeactivatedCircuit,
    DeletedCircuit,
    DialledCircuit,
    ImportedCircuit,
    ReleasedClaims,
)
from engine.actions.steering.circuits import MAX_PAGE
from engine.actions.steering.results import (
    ActivatedProfile,
    ClusterList,
    ClusterSummary,
    DeactivatedProfile,
    DeletedProfile,
    DialledCluster,
    ImportItem,
    ImportOutcome,
    ProfileList,
    ProfileSummary,
)
from engine.actions.steering.views import Advice, CircuitView, ClusterView, WantedSae
from engine.steering.claims import MEASURED_HAZARD, Claim
from engine.steering.desk import Snapshot
from engine.steering.dial import Dial, DialWord, parse_dial, shortest_decimal
from engine.steering.errors import (
    AmbiguousActiveCircuit,
    CircuitLayerContention,
    NoActiveCircuit,
    NoActiveCluster,
    SaeSetIncomplete,
    UnvalidatedCircuit,
)
from engine.steering.flatten import by_place, flatten
from engine.steering.hazards import Hazard, HazardKind, hazards
from engine.steering.inline import PARAM, parse_inline
from engine.steering.live import AttachmentKey, Entry, LiveState, circuit_steers, profile_steers
from engine.steering.path import NO_PATH, SteeringPath
from engine.steering.plan import EMPTY_PLAN
from engine.steering.push import GENTLE, UNMEASURED_END, UNMEASURED_STRENGTH, Push, dial_end, told
from engine.steering.report import NO_STEERING, ManualItem, ProfileItem, SteeringReport
from engine.steering.request import FOLLOW_LIVE, SteeringRequest
from engine.steering.strengths import STEERING_RANGE, SteeredSet
from engine.steering.transitions import place_of, restore

__all__ = [
    "EMPTY_PLAN",
    "FOLLOW_LIVE",
    "GENTLE",
    "MAX_PAGE",
    "MEASURED_HAZARD",
    "NO_PATH",
    "NO_STEERING",
    "PARAM",
    "STEERING_RANGE",
    "UNMEASURED_END",
    "UNMEASURED_STRENGTH",
    "ActivatedCircuit",
    "ActivatedProfile",
    "Advice",
    "AmbiguousActiveCircuit",
    "AttachmentKey",
    "CircuitLayerContention",
    "CircuitList",
    "CircuitSummary",
    "CircuitView",
    "Claim",
    "ClusterList",
    "ClusterSummary",
    "ClusterView",
    "DeactivatedCircuit",
    "DeactivatedProfile",
    "DeletedCircuit",
    "DeletedProfile",
    "Dial",
    "DialWord",
    "DialledCircuit",
    "DialledCluster",
    "Entry",
    "Hazard",
    "HazardKind",
    "ImportItem",
    "ImportOutcome",
    "ImportedCircuit",
    "LiveState",
    "ManualItem",
    "NoActiveCircuit",
    "NoActiveCluster",
    "ProfileItem",
    "ProfileList",
    "ProfileSummary",
    "Push",
    "ReleasedClaims",
    "SaeSetIncomplete",
    "Snapshot",
    "SteeredSet",
    "SteeringPath",
    "SteeringReport",
    "SteeringRequest",
    "UnvalidatedCircuit",
    "WantedSae",
    "by_place",
    "circuit_steers",
    "dial_end",
    "flatten",
    "hazards",
    "parse_dial",
    "parse_inline",
    "place_of",
    "profile_steers",
    "restore",
    "shortest_decimal",
    "told",
]
