"""Frozen values the library takes and hands out, one file per aggregate. No ORM object ever leaves ``engine/library``.

May import: nothing of ours.
"""

from engine.library.records.circuits import CircuitPage, CircuitRecord, ClaimRecord, NewCircuit, ServingMode
from engine.library.records.experiments import ExperimentRecord, ExperimentSummary, NewExperiment, RecordKind
from engine.library.records.models import EngineKind, ModelRecord, ModelSource, ModelStatus, NewModel
from engine.library.records.profiles import NewProfile, ProfileKind, ProfileRecord
from engine.library.records.saes import (
    AttachItem,
    AttachSetRecord,
    FeatureLabel,
    NewSae,
    SaeRecord,
    SaeSource,
    SaeStatus,
)

__all__ = [
    "AttachItem",
    "AttachSetRecord",
    "CircuitPage",
    "CircuitRecord",
    "ClaimRecord",
    "EngineKind",
    "ExperimentRecord",
    "ExperimentSummary",
    "FeatureLabel",
    "ModelRecord",
    "ModelSource",
    "ModelStatus",
    "NewCircuit",
    "NewExperiment",
    "NewModel",
    "NewProfile",
    "NewSae",
    "ProfileKind",
    "ProfileRecord",
    "RecordKind",
    "SaeRecord",
    "SaeSource",
    "SaeStatus",
    "ServingMode",
]
