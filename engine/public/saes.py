"""SAEs: attached, read with, contrasted, labelled."""

from engine.actions.saes.contrast import (
    CLUSTER_SHARE,
    DENSITY_CAP,
    MOST_FEATURES,
    MOST_TEXTS,
    Contrast,
    ContrastFeature,
    Differences,
    FoundCluster,
    Side,
    cluster_document,
)
from engine.actions.saes.errors import SaeFilesDamaged
from engine.actions.saes.labels import LabelKind
from engine.actions.saes.reading import Source, TextReading, TokenReading, check_features
from engine.actions.saes.views import (
    AttachmentsView,
    AttachResult,
    AttachSetResult,
    Compatibility,
    DeleteResult,
    DetachResult,
    FirstAttachmentView,
    LabelsResult,
    SteeringView,
)
from engine.saes.attachment import Attachment
from engine.saes.errors import SaeFormatUnknown
from engine.saes.ids import id_from_hub

__all__ = [
    "CLUSTER_SHARE",
    "DENSITY_CAP",
    "MOST_FEATURES",
    "MOST_TEXTS",
    "AttachResult",
    "AttachSetResult",
    "Attachment",
    "AttachmentsView",
    "Compatibility",
    "Contrast",
    "ContrastFeature",
    "DeleteResult",
    "DetachResult",
    "Differences",
    "FirstAttachmentView",
    "FoundCluster",
    "LabelKind",
    "LabelsResult",
    "SaeFilesDamaged",
    "SaeFormatUnknown",
    "Side",
    "Source",
    "SteeringView",
    "TextReading",
    "TokenReading",
    "check_features",
    "cluster_document",
    "id_from_hub",
]
