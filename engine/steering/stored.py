"""Stored profiles and clusters as what steering needs of them; the one reading of a row, for requests and
activations.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.config import EngineSettings
from engine.documents.binding import SaeReference
from engine.documents.cluster import ClusterDocument, read_cluster
from engine.documents.ranges import DialBounds, Envelope, Range
from engine.errors import MillmError
from engine.library.records import ProfileKind, ProfileRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredProfile:
    """A row, read. ``strengths`` have their direction and are at intensity 1; ``declared`` is the document's range."""

    profile_id: str
    name: str
    is_cluster: bool
    strengths: Mapping[int, float]
    intensity: float
    declared: Range | None
    reference: SaeReference


FeatureCount = Callable[[str], int | None]
"""How many features the SAE of that id has; None for one that is not in the library."""


def read_stored(record: ProfileRecord, features_of: FeatureCount = lambda sae_id: None) -> StoredProfile:
    """What ``record`` steers and where. A document that can no longer be read is logged; the row's own fields stand.

    ``features_of`` gives a hand-made profile the feature count of the SAE it names, so that an index never means a
    feature of an SAE of another size.
    """
    named = None if record.sae_id is None else features_of(record.sae_id)
    reference = SaeReference(sae_id=record.sae_id, layer=record.layer, n_features=named)
    declared: Range | None = None
    document = stored_document(record)
    if document is not None:
        declared = document.intensity_range
        known = document.reference
        # The row is bound to the SAE it met; until then the document says what it wants.
        reference = replace(
            known,
            sae_id=record.sae_id or known.sae_id,
            layer=record.layer if record.layer is not None else known.layer,
        )
    return StoredProfile(
        record.id,
        record.name,
        record.source_kind is ProfileKind.CLUSTER,
        record.steering,
        record.intensity,
        declared,
        reference,
    )


def stored_document(record: ProfileRecord) -> ClusterDocument | None:
    """The cluster document of a row, None for a hand-made profile and for one that can no longer be read."""
    if record.cluster_meta is None:
        return None
    try:
        return read_cluster(json.loads(record.cluster_meta))
    except (ValueError, MillmError) as error:
        log.error("the stored document of cluster %s cannot be read: %s", record.id, error)
        return None


def dial_bounds(settings: EngineSettings) -> DialBounds:
    """The configured bounds of the dials."""
    return DialBounds(
        cluster=Envelope(settings.CLUSTER_INTENSITY_MIN, settings.CLUSTER_INTENSITY_MAX),
        circuit=Envelope(settings.CIRCUIT_INTENSITY_MIN, settings.CIRCUIT_INTENSITY_MAX),
    )
