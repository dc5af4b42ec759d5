"""Circuits and the layers they claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class ServingMode(StrEnum):
    """How an active circuit serves: on all its layers, or one layer of it as a cluster."""

    FULL = "full"
    SLICE_FALLBACK = "slice_fallback"


@dataclass(frozen=True)
class CircuitRecord:
    """A circuit. ``definition`` is its document, the very text that was stored.

    ``layers`` are those with features to serve, rising. ``per_sae_warnings`` are the verdicts by layer as they stood at
    the last import or activation; ``serveable`` sums them up. ``serving_mode`` is None while it is not active.
    ``intensity`` is where its dial stands, None when neither the document nor a person said. ``slice_profile_id`` is
    the profile that last served a slice of it.
    """

    id: str
    name: str
    description: str | None
    definition: str
    rung: int
    edge_count: int
    layers: tuple[int, ...]
    per_sae_warnings: tuple[Mapping[str, Any], ...]
    serveable: bool
    is_active: bool
    serving_mode: ServingMode | None
    intensity: float | None
    slice_profile_id: str | None
    provenance: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime

    @property
    def only_persistence(self) -> bool:
        """Whether every edge of its document is persistence; False where it can no longer be read. Parses it."""
        try:
            edges = json.loads(self.definition).get("edges") or []
            return {edge.get("type") for edge in edges} == {"persistence"}
        except (ValueError, AttributeError, TypeError):
            return False


@dataclass(frozen=True)
class NewCircuit:
    """A circuit before it has a row; fields as in :class:`CircuitRecord`."""

    name: str
    definition: str
    description: str | None = None
    rung: int = 0
    edge_count: int = 0
    layers: tuple[int, ...] = ()
    per_sae_warnings: tuple[Mapping[str, Any], ...] = ()
    serveable: bool = False
    intensity: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CircuitPage:
    """A part of the circuits; ``total`` counts all that fit the question."""

    circuits: tuple[CircuitRecord, ...]
    total: int


@dataclass(frozen=True)
class ClaimRecord:
    """A layer that a circuit holds. ``composed``: another circuit holds it too; ``steering_keys`` rise."""

    circuit_id: str
    circuit_name: str
    layer: int
    composed: bool
    steering_keys: tuple[int, ...]
    claimed_at: datetime
