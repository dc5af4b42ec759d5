"""What the routes answer that read texts, sweep the dial and keep comparisons; as :mod:`server.management.answers`."""

from __future__ import annotations

from typing import TypedDict

from engine.actions.sweeping.runs import SweepState
from engine.actions.sweeping.settings import BaseKind, ColumnMeans
from engine.library.records import ExperimentSummary

# --- sweeps -----------------------------------------------------------------------------------------------------------


class SweepErrorAnswer(TypedDict):
    """Why a sweep ended early."""

    code: str
    message: str


class SweepSummaryAnswer(TypedDict):
    """A sweep without its texts. ``failed`` counts cells without an answer."""

    id: str
    state: SweepState
    base: str
    kind: BaseKind
    done: int
    total: int
    failed: int
    started_at: str
    ended_at: str | None
    error: SweepErrorAnswer | None


class SweepPlaceAnswer(TypedDict):
    """What is added at intensity 1 by one attached SAE; ``strengths`` are by feature index as text."""

    sae_id: str
    layer: int
    strengths: dict[str, float]


class SweepBaseAnswer(TypedDict):
    """Whose dial is turned."""

    kind: BaseKind
    id: str
    name: str
    places: list[SweepPlaceAnswer]
    warnings: list[str]


class SweepSettingsAnswer(TypedDict):
    """What is asked, and how."""

    prompts: list[str]
    intensities: list[float]
    max_tokens: int
    temperature: float
    top_p: float
    repetition_penalty: float
    seed: int
    topic: list[str]
    system: str


class SweepCellAnswer(TypedDict):
    """One answer and its measures; null where there is none."""

    prompt: int
    intensity: float
    text: str
    tokens: int
    finish: str
    topic: float | None
    features: float | None
    perplexity: float | None
    trigrams: float | None
    clamped: int
    error: str | None


class SweepAnswer(SweepSummaryAnswer):
    """A sweep as far as it has come."""

    turned: SweepBaseAnswer
    settings: SweepSettingsAnswer
    facts: dict[str, str]
    cells: list[SweepCellAnswer]
    means: list[ColumnMeans]


class SweepsAnswer(TypedDict):
    """The sweeps of this session that are kept, newest first."""

    sweeps: list[SweepSummaryAnswer]
    total: int


class DeletedSweepAnswer(TypedDict):
    """A sweep that is forgotten."""

    id: str
    deleted: bool


class SweepChoiceAnswer(TypedDict):
    """Something a sweep can turn the dial of; ``low`` and ``high`` are the range its document declares."""

    kind: BaseKind
    id: str
    name: str
    low: float | None
    high: float | None


class SweepChoicesAnswer(TypedDict):
    """What a sweep can turn the dial of."""

    choices: list[SweepChoiceAnswer]


# --- records ----------------------------------------------------------------------------------------------------------


class ExperimentsAnswer(TypedDict):
    """The records, newest first."""

    experiments: list[ExperimentSummary]
    total: int


class DeletedExperimentAnswer(TypedDict):
    """A record that is gone."""

    id: int
    deleted: bool
