"""Saved comparisons: a prompt, its plain and its steered answer, and everything needed to say what was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class NewExperiment:
    """A comparison before it has a row.

    ``prompt`` is the last message of the person. ``settings`` is how it was sampled, with the system prompt and the
    messages before; ``steering`` the steered answer's report; ``evidence`` the phrase and rung that could be claimed,
    empty where none could; ``versions`` name → version; ``plain_details`` and ``steered_details`` the figures.
    """

    title: str
    model: str
    prompt: str
    plain: str
    steered: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steering: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    plain_details: Mapping[str, Any] = field(default_factory=dict)
    steered_details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentRecord:
    """A saved comparison; fields as in :class:`NewExperiment`."""

    id: int
    title: str
    model: str
    prompt: str
    plain: str
    steered: str
    settings: Mapping[str, Any]
    steering: Mapping[str, Any]
    evidence: Mapping[str, Any]
    versions: Mapping[str, str]
    plain_details: Mapping[str, Any]
    steered_details: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True)
class ExperimentSummary:
    """A saved comparison without its texts, for lists."""

    id: int
    title: str
    model: str
    created_at: datetime
