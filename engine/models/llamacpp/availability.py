"""Whether llama.cpp is there, asked without importing it: the library is large, and the answer is needed at once."""

from __future__ import annotations

import importlib.util

from engine.errors import EngineUnsupported
from engine.library.records import EngineKind

REMEDY = "Install it with 'make gguf' in the program's folder, or with 'pip install llama-cpp-python'; it is compiled."


def is_installed() -> bool:
    """Whether llama-cpp-python is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


def can_run(engine: EngineKind) -> bool:
    """Whether this program can run models of that engine here."""
    return engine is not EngineKind.LLAMACPP or is_installed()


def require_installed(name: str) -> None:
    """Raise :class:`EngineUnsupported` (``param`` ``model``) when the GGUF model ``name`` has nothing to run it."""
    if not is_installed():
        raise EngineUnsupported(
            f"{name!r} is a GGUF file, and llama.cpp, which runs those, is not installed.",
            param="model",
            details={"engine": "llamacpp", "missing": "llama-cpp-python"},
            remedy=REMEDY,
        )
