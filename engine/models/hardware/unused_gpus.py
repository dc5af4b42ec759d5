"""An NVIDIA card that is there and that this installation cannot compute on: said with the way to the build that can.

Looking imports neither torch nor llama.cpp, so that it may be done before they are needed: torch's own note of its
build is read, and the libraries that came with llama.cpp are looked at. Whether a CUDA build gets on with the driver is
known once torch is imported anyway.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.models.hardware.gpus import read_gpus

PROC = Path("/proc/driver/nvidia/gpus")
TORCH_REMEDY = (
    'Set the program up with a CUDA build of PyTorch (README, "Which PyTorch"): '
    "make setup TORCH_INDEX_URL=https://download.pytorch.org/whl/cu130"
)
DRIVER_REMEDY = 'Update the card\'s driver, or set up a build of PyTorch for it (README, "Which PyTorch").'
LLAMA_REMEDY = (
    "Compile llama.cpp for the card, with NVIDIA's CUDA toolkit installed: CMAKE_ARGS=-DGGML_CUDA=on pip install "
    "--no-deps --no-cache-dir --force-reinstall -c constraints.txt llama-cpp-python"
)
FROZEN_REMEDY = 'Install the program from its source with a CUDA build of PyTorch (README, "Which PyTorch").'


@dataclass(frozen=True)
class SeenGpus:
    """What was found on this machine.

    Attributes:
        cards: Names of its NVIDIA cards.
        torch: torch's version; None where it is not installed.
        torch_cuda: The CUDA it was built with; None for a build without.
        torch_sees: Whether it sees a card; None while it is not imported.
        llama_gpu: Whether llama.cpp came with a library for a GPU; None where it is not installed.
        frozen: An installed program, which is not set up by ``make``.
    """

    cards: tuple[str, ...] = ()
    torch: str | None = None
    torch_cuda: str | None = None
    torch_sees: bool | None = None
    llama_gpu: bool | None = None
    frozen: bool = False


@dataclass(frozen=True)
class UnusedGpu:
    """Cards that lie idle: why, and what to do."""

    problem: str
    remedy: str

    def in_words(self) -> str:
        return f"{self.problem} {self.remedy}"


@cache
def unused_gpu() -> UnusedGpu | None:
    """What lies idle on this machine, looked at once. May take seconds: not on a loop."""
    return judge(look())


def judge(seen: SeenGpus) -> UnusedGpu | None:
    """What of ``seen`` cannot be used; None where there is no card, or everything installed can compute on it."""
    if not seen.cards:
        return None
    there = seen.cards[0] if len(seen.cards) == 1 else f"{seen.cards[0]} and {len(seen.cards) - 1} more"
    problems, remedies = [], []
    if seen.torch is not None and seen.torch_cuda is None:
        problems.append(f"PyTorch {seen.torch} was built without CUDA, so transformers models run on the processor")
        remedies.append(FROZEN_REMEDY if seen.frozen else TORCH_REMEDY)
    elif seen.torch is not None and seen.torch_sees is False:
        problems.append(
            f"PyTorch {seen.torch}, built for CUDA {seen.torch_cuda}, does not get on with its driver, so transformers "
            "models run on the processor"
        )
        remedies.append(DRIVER_REMEDY)
    if seen.llama_gpu is False:
        problems.append("llama.cpp was compiled without a GPU, so GGUF models run on the processor")
        if not seen.frozen:
            remedies.append(LLAMA_REMEDY)
    if not problems:
        return None
    return UnusedGpu(f"This machine has an NVIDIA card ({there}): {'; '.join(problems)}.", ". ".join(remedies))


def look() -> SeenGpus:
    """What this machine and installation have. Never raises."""
    version, cuda = _torch_build()
    return SeenGpus(_cards(), version, cuda, _torch_sees(), _llama_gpu(), bool(getattr(sys, "frozen", False)))


def _cards() -> tuple[str, ...]:
    found = tuple(card.name for card in read_gpus().cards)
    return found or cards_in(PROC)


def cards_in(folder: Path) -> tuple[str, ...]:
    """Cards by what the kernel's driver says: ``folder`` has one folder for each, with a file of facts."""
    try:
        texts = [each.read_text(errors="replace") for each in sorted(folder.glob("*/information"))]
    except OSError:
        return ()
    names = [re.search(r"^Model:\s*(.+?)\s*$", text, re.MULTILINE) for text in texts]
    return tuple(name[1] if name else "NVIDIA" for name in names)


def _torch_build() -> tuple[str | None, str | None]:
    return torch_build(_folder_of("torch"))


def torch_build(folder: Path | None) -> tuple[str | None, str | None]:
    """(version, CUDA) by the ``version.py`` that torch ships in its ``folder``; (None, None) where it has none."""
    try:
        text = "" if folder is None else (folder / "version.py").read_text(errors="replace")
    except OSError:
        return None, None
    version = re.search(r"^__version__\s*=\s*['\"](.+?)['\"]", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b.*=\s*['\"](.+?)['\"]", text, re.MULTILINE)
    return version[1] if version else None, cuda[1] if cuda else None


def _torch_sees() -> bool | None:
    torch: Any = sys.modules.get("torch")
    try:
        return None if torch is None else bool(torch.cuda.is_available())
    except AttributeError:
        return None  # another thread is importing it


def _llama_gpu() -> bool | None:
    folder = _folder_of("llama_cpp")
    if folder is None:
        return None
    kinds = ("cuda", "vulkan", "hip", "sycl")
    return any(any((folder / "lib").glob(f"*ggml-{kind}*")) for kind in kinds)


def _folder_of(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
