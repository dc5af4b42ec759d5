"""Process-wide environment that must stand before torch, Qt or the hub library are first imported.

Called on the first lines of every entry point; imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import MutableMapping
from urllib.parse import urlsplit

if sys.platform != "win32":
    import resource

THREAD_RULES = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""torch and llama.cpp share an OpenMP runtime whose barriers spin: with any other busy process two threads then take a
hundred times longer than one. Passive waiting avoids it and cannot be chosen after the runtime is loaded."""

QUIET_LIBRARIES = {
    "TOKENIZERS_PARALLELISM": "false",  # its thread pool warns after every fork and gains nothing on one prompt
    "TQDM_DISABLE": "1",  # progress is reported as events; a bar would be drawn across the program's own lines
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}

HUB_ADDRESS = "HF_ENDPOINT"
"""Read by the hub's library as it is imported."""

OPEN_FILES = 8192
"""Files and sockets the process may have open: macOS starts programs with 256, most Linux systems with 1,024. More is
refused by macOS, and nothing here needs it."""


def prepare(environ: MutableMapping[str, str] | None = None) -> None:
    """Put the rules in force; a value the person has set stays."""
    target = os.environ if environ is None else environ
    for name, value in {**THREAD_RULES, **QUIET_LIBRARIES}.items():
        target.setdefault(name, value)
    try:
        urlsplit(target.get(HUB_ADDRESS, ""))
    except ValueError:
        # The hub's library cannot even be imported then, nor transformers, and no model would load any more.
        target[HUB_ADDRESS] = f"no-address:{target[HUB_ADDRESS]}"


def allow_open_files(wanted: int = OPEN_FILES) -> int | None:
    """Raise the soft limit of open files towards ``wanted``, as far as the hard one lets us; the limit in force.

    None where the platform has none. A limit that cannot be raised stays: the server takes fewer connections then.
    """
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None if soft == resource.RLIM_INFINITY else soft
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
