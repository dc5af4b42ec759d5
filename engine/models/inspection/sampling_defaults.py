"""How a model's makers say it reads best: the sampling part of its ``generation_config.json``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

from engine.files import read_text

FILE = "generation_config.json"
MOST_BYTES = 1_000_000
_BOUNDS = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1_000_000),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 2.0),
}


@dataclass(frozen=True)
class SamplingDefaults:
    """What is suggested; None where nothing is said. Names and bounds are those of a request."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    @property
    def says_something(self) -> bool:
        return any(getattr(self, each.name) is not None for each in fields(self))


def read_sampling_defaults(folder: Path) -> SamplingDefaults:
    """The suggestions that lie in a model's folder; none for a file that is missing or no such file. What is out of a
    request's bounds is left out. ``do_sample: false`` says that the likeliest word is meant to be taken.
    """
    try:
        given = json.loads(read_text(folder / FILE, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return SamplingDefaults()
    if not isinstance(given, dict):
        return SamplingDefaults()
    found: dict[str, float] = {}
    for name, (low, high) in _BOUNDS.items():
        value = given.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        if low <= value <= high and (name != "top_k" or isinstance(value, int)):
            found[name] = value
    if given.get("do_sample") is False:
        found = {name: value for name, value in found.items() if name == "repetition_penalty"}
        found["temperature"] = 0.0
    return SamplingDefaults(**found)  # type: ignore[arg-type]
