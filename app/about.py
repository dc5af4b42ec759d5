"""Name and version of the program, and the versions of what it stands on."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

NAME = "miLLM Desktop"
VERSION = "0.1.0"
COMMAND = "millm-desktop" if getattr(sys, "frozen", False) else "python -m app"
"""What starts the program on a command line: installed, or from its source."""

LIBRARIES = ("torch", "transformers", "PySide6-Essentials", "quart", "hypercorn", "SQLAlchemy", "llama-cpp-python")


def versions() -> dict[str, str]:
    """Name → version of the program, Python and the libraries that matter; read from their metadata, nothing is
    imported.
    """
    found = {NAME: VERSION, "Python": platform.python_version()}
    for library in LIBRARIES:
        if (version := version_of(library)) is not None:
            found[library] = version
    return found


def version_of(distribution: str) -> str | None:
    """The version of an installed distribution; None when it is not there."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
