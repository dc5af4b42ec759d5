"""What the sweeping actions answer: a sweep as the management API tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NotRequired, Self, TypedDict

from engine.actions.sweeping.runs import SweepRun, SweepState
from engine.actions.sweeping.settings import ALWAYS_TOLD, BaseKind, CellResult, ColumnMeans, SweepBase
from engine.sampling import FIELDS
from engine.wire import made_of


@dataclass(frozen=True)
class SweepError:
    """Why a sweep ended early."""

    code: str
    message: str


@dataclass(frozen=True)
class SweepSummary:
    """A sweep without its texts. ``failed`` counts cells without an answer."""

    id: str
    state: SweepState
    base: str
    kind: BaseKind
    done: int
    total: int
    failed: int
    started_at: datetime
    ended_at: datetime | None
    error: SweepError | None

    @classmethod
    def of(cls, run: SweepRun, error: SweepError | None, **more: Any) -> Self:
        """The summary of a run, with the fields that an answer has beside it.

        ``error`` is the run's own in the face's words.
        """
        return made_of(
            cls,
            run,
            base=run.base.name,
            kind=run.base.kind,
            done=len(run.cells),
            total=run.settings.cells,
            error=error,
            **more,
        )


@dataclass(frozen=True)
class ToldPlace:
    """What is added at intensity 1 by one attached SAE; ``strengths`` are by feature index as text."""

    sae_id: str
    layer: int
    strengths: Mapping[int, float]


@dataclass(frozen=True)
class ToldBase:
    """Whose dial is turned."""

    kind: BaseKind
    id: str
    name: str
    places: tuple[ToldPlace, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, base: SweepBase) -> ToldBase:
        """Also as a record keeps it."""
        places = (ToldPlace(*place, strengths) for place, strengths in base.authored.items())
        return made_of(cls, base, places=tuple(places))


@dataclass(frozen=True)
class ToldCell:
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

    @classmethod
    def of(cls, cell: CellResult) -> ToldCell:
        """As it is told, with the perplexity that its loss is."""
        return made_of(cls, cell)


if TYPE_CHECKING:
    ToldSettings = Mapping[str, Any]
else:
    ToldSettings = TypedDict(
        "ToldSettings",
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
    ToldSettings.__doc__ = "What is asked, and how; what may be left out is told where it does something."


@dataclass(frozen=True)
class ToldSweep(SweepSummary):
    """A sweep as far as it has come."""

    turned: ToldBase
    settings: ToldSettings
    facts: Mapping[str, str]
    cells: tuple[ToldCell, ...]
    means: tuple[ColumnMeans, ...]

    @classmethod
    def of(cls, run: SweepRun, error: SweepError | None, **more: Any) -> Self:
        """A run with its means."""
        cells = tuple(map(ToldCell.of, run.cells))
        return super().of(
            run,
            error,
            turned=ToldBase.of(run.base),
            cells=cells,
            settings=run.settings.as_json(),
            means=run.means(),
            **more,
        )
