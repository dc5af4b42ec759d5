"""The frozen values the live monitor gives out. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Metric(StrEnum):
    """What features are ranked by. ``count`` ranks by tokens read, then by tokens on which the feature was active."""

    MEAN = "mean"
    MAX = "max"
    ACTIVE_RATIO = "active_ratio"
    COUNT = "count"


@dataclass(frozen=True)
class ActivationRecord:
    """One SAE at one token; pairs are [feature, value].

    Attributes:
        timestamp: UTC.
        token_position: 0-based over prompt then answer.
        activations: (feature, value): with chosen features all of these, in their order, zeros included; else the same
            as ``top_k``.
        top_k: (feature, value), strongest first, only values above 0.
        active_count: Features above 0 among those that were read.
    """

    timestamp: datetime
    request_id: str
    choice: int
    token_position: int
    token_id: int
    sae_id: str
    layer: int
    activations: tuple[tuple[int, float], ...]
    top_k: tuple[tuple[int, float], ...]
    active_count: int


class WatchedSae(NamedTuple):
    """An SAE at a layer."""

    sae_id: str
    layer: int


@dataclass(frozen=True)
class MonitoringState:
    """What the live monitor is set to; ``monitored_features`` is null when all are watched.

    ``sae_id`` and ``layer`` are those of the first of ``saes``, the watched ones.
    """

    enabled: bool
    sae_attached: bool
    sae_id: str | None
    layer: int | None
    saes: tuple[WatchedSae, ...]
    monitored_features: tuple[int, ...] | None
    history_size: int
    history_count: int
    top_k: int


@dataclass(frozen=True)
class MonitoringCost:
    """What reading along has cost since the statistics began; ``milliseconds_per_token`` is null before a token.

    ``seconds`` are those for all watched SAEs together.
    """

    enabled: bool
    tokens: int
    seconds: float
    milliseconds_per_token: float | None


@dataclass(frozen=True)
class FeatureStatistics:
    """One feature's activations over all tokens on which its SAE was read, zeros included; figures have 4 decimals.

    Attributes:
        count: Tokens read.
        std: Sample deviation (n − 1); 0 for fewer than two tokens.
        active_count: Tokens on which it was above 0.
        active_ratio: ``active_count`` ÷ ``count``.
    """

    sae_id: str
    layer: int
    feature_idx: int
    count: int
    mean: float
    std: float
    min: float
    max: float
    active_count: int
    active_ratio: float


@dataclass(frozen=True)
class MonitoringStatistics:
    """Figures of some features.

    Attributes:
        features: By SAE in the order they were attached, then by index.
        total_activations: Times any feature of these SAEs was above 0.
        since: When the counting began (UTC), the earliest where SAEs differ; None when nothing is watched.
    """

    features: tuple[FeatureStatistics, ...]
    total_activations: int
    since: datetime | None
