"""Process-wide environment that must stand before torch, Qt or the hub library are first imported.

Called on the first lines of every entry point; imports nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

THREAD_RULES = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""torch and llama.cpp share an OpenMP runtime whose barriers spin: with any other busy process two threads then take a
hundred times longer than one. Passive waiting avoids it and cannot be chosen after the runtime is loaded."""

QUIET_LIBRARIES = {
    "TOKENIZERS_PARALLELISM": "false",  # its thread pool warns after every fork and gains nothing on one prompt
    "TQDM_DISABLE": "1",  # progress is reported as events; a bar would be drawn across the program's own lines
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}


def prepare(environ: MutableMapping[str, str] | None = None) -> None:
    """Put the rules in force; a value the person has set stays."""
    target = os.environ if environ is None else environ
    for name, value in {**THREAD_RULES, **QUIET_LIBRARIES}.items():
        target.setdefault(name, value)
