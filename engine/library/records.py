"""The one door to the frozen values that the library takes and hands out, from each aggregate's own file."""

from engine.library.attach_sets import AttachItem, AttachSetRecord
from engine.library.circuits import CircuitPage, CircuitRecord, ServingMode
from engine.library.claims import ClaimRecord
from engine.library.conversations import (
    CUT_OFF,
    PLAIN_SIDE,
    ConversationRecord,
    ConversationSummary,
    StoredMessage,
)
from engine.library.experiments import ExperimentRecord, ExperimentSummary, RecordKind
from engine.library.labels import FeatureLabel
from engine.library.models import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.library.profiles import PROFILE_FIELDS, ProfileFields, ProfileKind, ProfileRecord
from engine.library.saes import SaeRecord, SaeSource, SaeStatus

__all__ = [
    "CUT_OFF",
    "PLAIN_SIDE",
    "PROFILE_FIELDS",
    "AttachItem",
    "AttachSetRecord",
    "CircuitPage",
    "CircuitRecord",
    "ClaimRecord",
    "ConversationRecord",
    "ConversationSummary",
    "EngineKind",
    "ExperimentRecord",
    "ExperimentSummary",
    "FeatureLabel",
    "ModelRecord",
    "ModelSource",
    "ModelStatus",
    "ProfileFields",
    "ProfileKind",
    "ProfileRecord",
    "RecordKind",
    "SaeRecord",
    "SaeSource",
    "SaeStatus",
    "ServingMode",
    "StoredMessage",
]
