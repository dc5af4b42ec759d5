"""How a model's makers say it reads best: the sampling part of its ``generation_config.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.files import read_text
from engine.sampling import FIELDS, fitting

FILE = "generation_config.json"
MOST_BYTES = 1_000_000
NAMES = tuple(setting.name for setting in FIELDS if setting.by_model)


def read_sampling_defaults(folder: Path) -> dict[str, Any]:
    """The suggestions that lie in a model's folder, by the name of a setting; none for a file that is missing or no
    such file. What is out of a request's bounds is left out. ``do_sample: false`` says that the likeliest word is meant
    to be taken.
    """
    try:
        given = json.loads(read_text(folder / FILE, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    found = fitting(given, NAMES)
    if isinstance(given, dict) and given.get("do_sample") is False:
        # What only shapes a draw has no part in it.
        found = {name: value for name, value in found.items() if name == "repetition_penalty"}
        found["temperature"] = 0.0
    return found
