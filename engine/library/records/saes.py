"""SAEs, the labels of their features, and saved sets of SAEs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class SaeStatus(StrEnum):
    """Where an SAE stands; ``downloading`` and ``attached`` are never true after a restart."""

    DOWNLOADING = "downloading"
    CACHED = "cached"
    ATTACHED = "attached"
    ERROR = "error"


class SaeSource(StrEnum):
    """Where an SAE came from."""

    LOCAL = "local"
    HUGGINGFACE = "huggingface"
    DEMO = "demo"


@dataclass(frozen=True)
class SaeRecord:
    """One SAE on disk. What its files say is None until they are here; measured figures until they are measured.

    ``format`` and ``architecture`` are the words of the SAE library; ``config`` is its whole description as JSON
    values. ``width`` is a label (``16k``), ``trained_layer`` counts from 0, shares are 0 to 1. ``average_l0`` is what
    the path says, ``source_l0`` what the files say, ``measured_l0`` what was measured; ``measured_at`` is None where
    that came with the SAE. ``copied``: the files in ``local_path`` are ours and go with the row. ``files_sha256``
    recognises the same files under another path.
    """

    id: str
    name: str
    repository_id: str | None
    revision: str | None
    source: SaeSource
    format: str | None
    architecture: str | None
    d_in: int | None
    d_sae: int | None
    k: int | None
    trained_on: str | None
    trained_layer: int | None
    hook_name: str | None
    width: str | None
    average_l0: float | None
    source_l0: float | None
    source_variance_explained: float | None
    measured_l0: float | None
    measured_variance_explained: float | None
    measured_at: datetime | None
    dead_share: float | None
    file_size_bytes: int | None
    local_path: str | None
    copied: bool
    files_sha256: str | None
    dtype: str | None
    normalize_activations: str | None
    apply_b_dec_to_input: bool | None
    assumed: tuple[str, ...]
    config: Mapping[str, Any]
    status: SaeStatus
    error_message: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class NewSae:
    """What an import or a download knows about an SAE before it has a row; fields as in :class:`SaeRecord`."""

    id: str
    name: str
    source: SaeSource
    repository_id: str | None = None
    revision: str | None = None
    format: str | None = None
    architecture: str | None = None
    d_in: int | None = None
    d_sae: int | None = None
    k: int | None = None
    trained_on: str | None = None
    trained_layer: int | None = None
    hook_name: str | None = None
    width: str | None = None
    average_l0: float | None = None
    source_l0: float | None = None
    source_variance_explained: float | None = None
    measured_l0: float | None = None
    measured_variance_explained: float | None = None
    measured_at: datetime | None = None
    dead_share: float | None = None
    file_size_bytes: int | None = None
    local_path: str | None = None
    copied: bool = False
    files_sha256: str | None = None
    dtype: str | None = None
    normalize_activations: str | None = None
    apply_b_dec_to_input: bool | None = None
    assumed: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    status: SaeStatus = SaeStatus.CACHED


@dataclass(frozen=True)
class FeatureLabel:
    """What is known about one feature of an SAE.

    ``source`` says whose words ``label`` are; ``confidence`` and ``density`` (how often it fires) are 0 to 1.
    ``extra`` keeps what else the source said.
    """

    feature_idx: int
    label: str
    source: str | None = None
    confidence: float | None = None
    density: float | None = None
    max_activation: float | None = None
    top_tokens: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AttachItem:
    """An SAE and the layer (0-based) it is attached at."""

    sae_id: str
    layer: int


@dataclass(frozen=True)
class AttachSetRecord:
    """A named set of SAEs to attach together; some of them may have left the library since."""

    name: str
    items: tuple[AttachItem, ...]
    created_at: datetime
