"""The library and the frozen records it hands out."""

from engine.library.conversations import CUT_OFF, PLAIN_SIDE, ConversationRecord, ConversationSummary, StoredMessage
from engine.library.database import Library
from engine.library.errors import CircuitAlreadyExists, ClaimConflict, ProfileAlreadyExists
from engine.library.names import PROFILE_NAME_LIMIT
from engine.library.records import (
    PROFILE_FIELDS,
    AttachItem,
    AttachSetRecord,
    CircuitRecord,
    EngineKind,
    ExperimentRecord,
    ExperimentSummary,
    FeatureLabel,
    ModelRecord,
    ModelSource,
    ModelStatus,
    ProfileFields,
    ProfileKind,
    ProfileRecord,
    RecordKind,
    SaeRecord,
    SaeStatus,
    ServingMode,
)
from engine.library.values import is_storable

__all__ = [
    "CUT_OFF",
    "PLAIN_SIDE",
    "PROFILE_FIELDS",
    "PROFILE_NAME_LIMIT",
    "AttachItem",
    "AttachSetRecord",
    "CircuitAlreadyExists",
    "CircuitRecord",
    "ClaimConflict",
    "ConversationRecord",
    "ConversationSummary",
    "EngineKind",
    "ExperimentRecord",
    "ExperimentSummary",
    "FeatureLabel",
    "Library",
    "ModelRecord",
    "ModelSource",
    "ModelStatus",
    "ProfileAlreadyExists",
    "ProfileFields",
    "ProfileKind",
    "ProfileRecord",
    "RecordKind",
    "SaeRecord",
    "SaeStatus",
    "ServingMode",
    "StoredMessage",
    "is_storable",
]
