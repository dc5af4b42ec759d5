"""Which engines this installation has, and how to get what is missing: one text for window, API and ``doctor``.

Looking costs nothing; :func:`examine` really imports the engine and is for ``doctor``.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from engine.errors import EngineUnsupported
from engine.library.records import EngineKind
from engine.models.backends.llamacpp import availability
from engine.models.inspection.quantization import has_bitsandbytes

COMPILERS = ("c++", "g++", "clang++", "cl")
BUILD = "make gguf"

_COMPILER_BY_SYSTEM = {
    "linux": "On Debian or Ubuntu: sudo apt-get install g++.",
    "darwin": "xcode-select --install brings one.",
    "win32": "Visual Studio's Build Tools have one (the workload for C++ desktop programs).",
}

Which = Callable[[str], str | None]


@dataclass(frozen=True)
class EngineState:
    """One engine.

    Attributes:
        version: Of its library; None when it is not installed.
        problem: What is missing, as a sentence; None when it can be used.
        remedy: What to do about that.
    """

    kind: EngineKind
    title: str
    version: str | None
    problem: str | None = None
    remedy: str | None = None

    @property
    def usable(self) -> bool:
        """Whether models can be run with it."""
        return self.problem is None

    def in_words(self) -> str:
        if self.problem is None:
            return f"{self.title} {self.version or ''}".strip()
        return f"{self.problem} {self.remedy or ''}".strip()


def gguf_engine(*, installed: bool | None = None, which: Which = shutil.which) -> EngineState:
    """llama.cpp: whether it is installed, else what exactly stands in the way. Imports nothing.

    Args:
        installed: None looks.
        which: How to look for a compiler.
    """
    if availability.is_installed() if installed is None else installed:
        return EngineState(EngineKind.LLAMACPP, "llama-cpp-python", _version("llama-cpp-python"))
    if getattr(sys, "frozen", False):
        problem = "GGUF files cannot be run: this build of the program came without llama.cpp."
        return EngineState(EngineKind.LLAMACPP, "llama-cpp-python", None, problem, "Install a build that has it.")
    if not any(which(name) for name in COMPILERS):
        problem = (
            "GGUF files cannot be run yet: llama-cpp-python is not installed, and no C++ compiler is there for it."
        )
        remedy = f"{_COMPILER_BY_SYSTEM.get(sys.platform, 'Install one.')} Then: {BUILD}"
    else:
        problem = "GGUF files cannot be run yet: llama-cpp-python is not installed."
        remedy = f"Compile it (some minutes, once): {BUILD}"
    return EngineState(EngineKind.LLAMACPP, "llama-cpp-python", None, problem, remedy)


def require_installed(name: str) -> None:
    """Raise :class:`EngineUnsupported` (``param`` ``model``) when the GGUF model ``name`` has nothing to run it."""
    state = gguf_engine()
    if state.problem is not None:
        raise EngineUnsupported(
            f"{name!r} is a GGUF file. {state.problem}",
            param="model",
            details={"engine": state.kind.value, "missing": state.title},
            remedy=state.remedy,
        )


def examine_gguf_engine() -> EngineState:
    """As :func:`gguf_engine`, and import it: a library built for another machine is only noticed then."""
    state = gguf_engine()
    if not state.usable:
        return state
    try:
        importlib.import_module("llama_cpp")
    except Exception as error:  # a missing instruction or system library shows as OSError, RuntimeError, …
        said = " ".join(str(error).split())[:200]
        return EngineState(
            EngineKind.LLAMACPP,
            state.title,
            state.version,
            f"llama-cpp-python is installed and cannot be used: {said}",
            f"Compile it for this machine: {BUILD}",
        )
    return state


def quantizer_in_words() -> str:
    """Whether checkpoints can be held at 8 and 4 bits."""
    if has_bitsandbytes():
        return f"bitsandbytes {_version('bitsandbytes') or ''}: checkpoints at Q8 and Q4 on NVIDIA GPUs"
    if getattr(sys, "frozen", False):
        return "bitsandbytes, which holds checkpoints at Q8 and Q4 on NVIDIA GPUs, is not in this build of the program"
    how = 'pip install -c constraints.txt ".[quant]"'
    return f"bitsandbytes is not installed; on an NVIDIA GPU it holds checkpoints at Q8 and Q4: {how}"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
