"""Sweeps: what is asked, how far it is, what came out."""

from engine.actions.sweeping.export import as_csv, as_markdown, facts_of
from engine.actions.sweeping.measures import topic_words
from engine.actions.sweeping.results import SweepError, SweepSummary, ToldSweep
from engine.actions.sweeping.runs import SweepRun, SweepState
from engine.actions.sweeping.settings import (
    MOST_COLUMNS,
    MOST_PROMPTS,
    MOST_TOKENS,
    PLAIN,
    SWEEP_SAMPLING,
    BaseChoice,
    BaseKind,
    CellResult,
    ColumnMeans,
    SweepBase,
    SweepOutcome,
    SweepSettings,
    means,
    parse_intensities,
)

__all__ = [
    "MOST_COLUMNS",
    "MOST_PROMPTS",
    "MOST_TOKENS",
    "PLAIN",
    "SWEEP_SAMPLING",
    "BaseChoice",
    "BaseKind",
    "CellResult",
    "ColumnMeans",
    "SweepBase",
    "SweepError",
    "SweepOutcome",
    "SweepRun",
    "SweepSettings",
    "SweepState",
    "SweepSummary",
    "ToldSweep",
    "as_csv",
    "as_markdown",
    "facts_of",
    "means",
    "parse_intensities",
    "topic_words",
]
