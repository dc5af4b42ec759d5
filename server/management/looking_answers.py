"""What the routes answer that read texts, sweep the dial and keep comparisons; as :mod:`server.management.answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from engine.actions.sweeping.runs import SweepState
from engine.actions.sweeping.settings import ALWAYS_TOLD, BaseKind, ColumnMeans
from engine.generation.prefill_job import ReadingFigures
from engine.library.records import ExperimentSummary
from engine.sampling import FIELDS
from server.management.answers import ImportItemAnswer

# --- reading texts ----------------------------------------------------------------------------------------------------


class TokenReadingAnswer(TypedDict):
    """One token that was read. ``top_k`` are [feature, activation]; ``activations`` those of the chosen features."""

    position: int
    token_id: int
    text: str
    top_k: list[tuple[int, float]]
    activations: list[float]
    norm: float
    sink: bool


class ReadingAnswer(TypedDict):
    """A text as one SAE sees it. ``labels`` are by feature index as text."""

    sae_id: str
    layer: int
    model: str
    features: list[int]
    tokens: list[TokenReadingAnswer]
    labels: dict[str, str]
    figures: ReadingFigures


class DifferenceAnswer(TypedDict):
    """A feature that fires more in one set. ``strength`` adds 0.3 of the typical norm with it alone."""

    feature_idx: int
    label: str | None
    score: float
    mean: float
    share: float
    other_mean: float
    other_share: float
    density: float
    row_norm: float
    strength: float


class ContrastClusterAnswer(TypedDict):
    """A cluster document of what was found, and what became of it where it was to be stored.

    ``length`` is that of the vector it adds at intensity 1, ``share`` the same as a share of the typical norm.
    """

    document: dict[str, Any]
    stored: ImportItemAnswer | None
    length: float
    share: float


class ContrastAnswer(TypedDict):
    """What tells two sets of texts apart, by falling score. ``left_out`` features fire too often in general."""

    sae_id: str
    layer: int
    model: str
    tokens_a: int
    tokens_b: int
    typical_norm: float
    toward_a: list[DifferenceAnswer]
    toward_b: list[DifferenceAnswer]
    left_out: int
    figures: ReadingFigures
    cluster: ContrastClusterAnswer | None


# --- monitoring -------------------------------------------------------------------------------------------------------


class CostAnswer(TypedDict):
    """What reading along has cost since the statistics began; ``milliseconds_per_token`` is null before a token."""

    enabled: bool
    tokens: int
    seconds: float
    milliseconds_per_token: float | None


class PeakAnswer(TypedDict):
    """A token at which a feature fired, the last of ``token_ids``, and the text before it."""

    value: float
    position: int
    request_id: str
    token_ids: list[int]
    token: str
    before: str


class FeaturePeaksAnswer(TypedDict):
    """A feature's strongest tokens, strongest first."""

    feature_idx: int
    label: str | None
    peaks: list[PeakAnswer]


class PeaksAnswer(TypedDict):
    """Features of one SAE by their strongest token since the peaks were cleared."""

    sae_id: str
    layer: int
    features: list[FeaturePeaksAnswer]


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


if TYPE_CHECKING:
    SweepSettingsAnswer = dict[str, Any]
else:
    SweepSettingsAnswer = TypedDict(
        "SweepSettingsAnswer",
        {
            "prompts": list[str],
            "intensities": list[float],
            "max_tokens": int,
            **{
                each.name: each.json_type if each.name in ALWAYS_TOLD else NotRequired[each.json_type]
                for each in FIELDS
            },
            "topic": list[str],
            "system": str,
        },
    )
    SweepSettingsAnswer.__doc__ = "What is asked, and how; what may be left out is told where it does something."


class SweepCellAnswer(TypedDict):
    """One answer and its measures; null where there is none."""

    prompt: int
    intensity: float
    text: str
    reasoning: str
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
