"""Profiles: steering under a name. A cluster is a profile that came with a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class ProfileKind(StrEnum):
    """Made by hand, or imported as a cluster document."""

    MANUAL = "manual"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class ProfileRecord:
    """A profile. ``steering`` is strength by feature index at intensity 1, unclamped, in the order it was given.

    ``intensity`` is where its dial stands. ``cluster_meta`` is a cluster's document, the very text that was stored;
    ``extras`` are keys of an imported profile that have no field here. ``bound`` is False for a cluster that has not
    met its SAE yet. ``hub_ref`` says which hub file a cluster came from.
    """

    id: str
    name: str
    description: str | None
    model_id: str | None
    sae_id: str | None
    layer: int | None
    steering: Mapping[int, float]
    is_active: bool
    source_kind: ProfileKind
    intensity: float
    sensing_enabled: bool
    cluster_meta: str | None
    bound: bool
    warnings: tuple[str, ...]
    hub_ref: Mapping[str, Any] | None
    extras: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class NewProfile:
    """A profile before it has a row; fields as in :class:`ProfileRecord`."""

    name: str
    description: str | None = None
    model_id: str | None = None
    sae_id: str | None = None
    layer: int | None = None
    steering: Mapping[int, float] = field(default_factory=dict)
    source_kind: ProfileKind = ProfileKind.MANUAL
    intensity: float = 1.0
    sensing_enabled: bool = False
    cluster_meta: str | None = None
    bound: bool = True
    warnings: tuple[str, ...] = ()
    hub_ref: Mapping[str, Any] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
