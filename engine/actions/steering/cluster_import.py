"""The one importer of cluster definitions: for documents that come in, and for slices cut from circuits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.documents.binding import AttachedSae
from engine.documents.cluster import ClusterDocument
from engine.documents.ranges import DialBounds
from engine.documents.verdicts import ImportStatus, judge_cluster
from engine.library.records import ProfileKind, ProfileRecord


@dataclass(frozen=True)
class PreparedCluster:
    """A row to be, and how the cluster fares with what is attached."""

    new: ProfileRecord
    status: ImportStatus


def prepare_cluster(
    document: ClusterDocument,
    attached: Sequence[AttachedSae],
    bounds: DialBounds,
    *,
    hub_ref: Mapping[str, Any] | None = None,
) -> PreparedCluster:
    """The row of ``document``. It names the SAE the cluster is bound to, or, unbound, the one it was made with."""
    verdict = judge_cluster(document, attached, bounds)
    definition = document.definition
    reference, sae = document.reference, verdict.binding.sae
    model = definition.model
    return PreparedCluster(
        ProfileRecord(
            definition.name,
            definition.narrative,
            model_id=None if model is None else model.hf_id or model.mistudio_model_id,
            sae_id=reference.sae_id if sae is None else sae.sae_id,
            layer=reference.layer if sae is None else sae.layer,
            steering=document.strengths,
            source_kind=ProfileKind.CLUSTER,
            intensity=document.intensity,
            cluster_meta=document_text(document.raw),
            bound=verdict.binding.serves,
            warnings=verdict.warnings,
            hub_ref=hub_ref,
        ),
        verdict.status,
    )


def document_text(raw: Mapping[str, Any]) -> str:
    """A document as it is stored: every JSON value as it came, unknown keys included."""
    return json.dumps(raw, ensure_ascii=False, allow_nan=False)
