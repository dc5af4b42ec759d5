"""Records of what was tried, their exports, and the words that claim nothing beyond them."""

from engine.actions.experiments.contrasts import KeptDifference, contrast_of, record_of_contrast
from engine.actions.experiments.export import (
    KIND,
    KINDS,
    as_csv,
    as_json,
    as_markdown,
    contrast_rows,
    setting_rows,
    steered_words,
    steering_lines,
)
from engine.actions.experiments.sweeps import record_of_sweep, sweep_of
from engine.actions.experiments.words import NO_CLAIM, features, has_circuit, path_of, report_words, since, strength

__all__ = [
    "KIND",
    "KINDS",
    "NO_CLAIM",
    "KeptDifference",
    "as_csv",
    "as_json",
    "as_markdown",
    "contrast_of",
    "contrast_rows",
    "features",
    "has_circuit",
    "path_of",
    "record_of_contrast",
    "record_of_sweep",
    "report_words",
    "setting_rows",
    "since",
    "steered_words",
    "steering_lines",
    "strength",
    "sweep_of",
]
