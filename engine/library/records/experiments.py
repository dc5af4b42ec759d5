"""Records of what was tried: a comparison of two answers, a sweep of a dial, a contrast of two sets of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class RecordKind(StrEnum):
    """What a record holds."""

    COMPARISON = "comparison"
    SWEEP = "sweep"
    CONTRAST = "contrast"


@dataclass(frozen=True)
class NewExperiment:
    """A record before it has a row. Of a comparison:

    ``prompt`` is the last message of the person. ``settings`` is how it was sampled, with the system prompt and the
    messages before; ``steering`` the steered answer's report; ``evidence`` the phrase and rung that could be claimed,
    empty where none could; ``versions`` name → version; ``plain_details`` and ``steered_details`` the figures.

    Of another kind ``content`` is what was found, as :mod:`engine.actions.experiments` writes and reads it, and
    ``settings`` are those of the sweep or contrast. The texts are there to be searched: of a sweep the prompts, the
    answers of its plain column and the others; of a contrast the texts without (``plain``) and with it (``steered``).
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
    kind: RecordKind = RecordKind.COMPARISON
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentRecord:
    """A record; fields as in :class:`NewExperiment`."""

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
    kind: RecordKind = RecordKind.COMPARISON
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentSummary:
    """A record without its texts, for lists."""

    id: int
    title: str
    model: str
    created_at: datetime
    kind: RecordKind = RecordKind.COMPARISON
