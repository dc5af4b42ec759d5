"""The frozen values the live monitor gives out. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class Metric(StrEnum):
    """What features are ranked by. ``count`` ranks by tokens read, then by tokens on which the feature was active."""

    MEAN = "mean"
    MAX = "max"
    ACTIVE_RATIO = "active_ratio"
    COUNT = "count"


@dataclass(frozen=True)
class ActivationRecord:
    """One SAE at one token.

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

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON values; pairs are ``[feature, value]``."""
        return {
            "timestamp": self.timestamp.isoformat(),
            "request_id": self.request_id,
            "choice": self.choice,
            "token_position": self.token_position,
            "token_id": self.token_id,
            "sae_id": self.sae_id,
            "layer": self.layer,
            "activations": [list(pair) for pair in self.activations],
            "top_k": [list(pair) for pair in self.top_k],
            "active_count": self.active_count,
        }


@dataclass(frozen=True)
class MonitoringState:
    """What the monitor is set to. ``sae_id`` and ``layer`` are those of the first of ``saes``, the watched ones."""

    enabled: bool
    sae_attached: bool
    saes: tuple[tuple[str, int], ...]
    monitored_features: tuple[int, ...] | None
    history_size: int
    history_count: int
    top_k: int

    @property
    def sae_id(self) -> str | None:
        """The first watched SAE."""
        return self.saes[0][0] if self.saes else None

    @property
    def layer(self) -> int | None:
        return self.saes[0][1] if self.saes else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "enabled": self.enabled,
            "sae_attached": self.sae_attached,
            "sae_id": self.sae_id,
            "layer": self.layer,
            "saes": [{"sae_id": sae_id, "layer": layer} for sae_id, layer in self.saes],
            "monitored_features": None if self.monitored_features is None else list(self.monitored_features),
            "history_size": self.history_size,
            "history_count": self.history_count,
            "top_k": self.top_k,
        }


@dataclass(frozen=True)
class MonitoringCost:
    """Time spent reading along: ``seconds`` for ``tokens`` tokens, all watched SAEs together."""

    tokens: int
    seconds: float

    @property
    def milliseconds_per_token(self) -> float | None:
        """Mean over the tokens read; None before the first."""
        return self.seconds * 1000 / self.tokens if self.tokens else None


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
