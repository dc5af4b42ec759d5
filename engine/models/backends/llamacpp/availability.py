"""Whether llama.cpp is there, asked without importing it: the library is large, and the answer is needed at once."""

from __future__ import annotations

import importlib.util

from engine.library.records import EngineKind


def is_installed() -> bool:
    """Whether llama-cpp-python is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


def can_run(engine: EngineKind) -> bool:
    """Whether this program can run models of that engine here."""
    return engine is not EngineKind.LLAMACPP or is_installed()
