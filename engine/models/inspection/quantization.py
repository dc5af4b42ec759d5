"""At which level of precision a transformers checkpoint is held: FP32, FP16, Q8 or Q4, decided before anything loads.

FP32 and FP16 are number formats of the weights and run anywhere. Q8 and Q4 quantise while loading, by bitsandbytes, on
CUDA: 8-bit integers with outliers apart (arXiv:2208.07339), 4-bit NormalFloat (arXiv:2305.14314). A checkpoint that is
stored quantised stays as it is.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import UnsupportedQuantization

if TYPE_CHECKING:
    import torch

LEVELS = ("FP32", "FP16", "Q8", "Q4", "Q2")
"""The coarse levels of the API, finest first."""

BITS = {"Q8": 8, "Q4": 4}
EXTRA = 'pip install "millm-desktop[quant]"'

BYTES_PER_VALUE = {"FP32": 4.0, "FP16": 2.0, "Q8": 1.1, "Q4": 0.6, "Q2": 0.35}
"""Of the weights in memory. Quantised ones carry their scales, and embeddings and norms stay 16-bit: estimates."""


@dataclass(frozen=True)
class Precision:
    """How a checkpoint is loaded.

    Attributes:
        level: One of :data:`LEVELS`, or None for the checkpoint's own format.
        bits: 8 or 4 when it is quantised while loading.
    """

    level: str | None
    bits: int | None = None

    def dtype(self, placed: torch.dtype, checkpoint: torch.dtype) -> torch.dtype:
        """The number format of what is not quantised; ``placed`` is the device's and settings' choice.

        16 bits are float16 only where the checkpoint is: its range is too small for others.
        """
        import torch

        if self.level is None:
            return placed
        if self.level == "FP32":
            return torch.float32
        return torch.float16 if checkpoint is torch.float16 else torch.bfloat16

    def config(self, dtype: torch.dtype) -> Any:
        """What transformers is given to quantise while loading, or None."""
        if self.bits is None:
            return None
        from transformers import BitsAndBytesConfig

        if self.bits == 8:
            return BitsAndBytesConfig(load_in_8bit=True)
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )

    def bytes_per_value(self, dtype: torch.dtype) -> float:
        """Bytes a value of the weights takes in memory, about."""
        if self.bits is None or self.level is None:
            return float(dtype.itemsize)
        return BYTES_PER_VALUE[self.level]


STORED_BY = {
    "aqlm": ("aqlm",),
    "auto-round": ("auto_round",),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "bitsandbytes_4bit": ("bitsandbytes",),
    "bitsandbytes_8bit": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "eetq": ("kernels",),
    "gptq": ("optimum", "gptqmodel"),
    "hqq": ("hqq",),
    "nvfp4": ("kernels",),
    "quanto": ("optimum.quanto",),
    "quark": ("quark",),
    "spqr": ("spqr_quant",),
    "torchao": ("torchao",),
    "vptq": ("vptq",),
}
"""Packages without which transformers reads no checkpoint that is stored quantised by a method."""


def check_stored(path: Path, method: str | None) -> None:
    """Raise :class:`UnsupportedQuantization` when ``path`` is stored by ``method`` and a package for it is missing."""
    missing = [name for name in STORED_BY.get(method or "", ()) if not _is_there(name)]
    if missing:
        raise UnsupportedQuantization(
            f"{path.name} is stored quantised by {method}, which needs {' and '.join(missing)}: not installed here.",
            param="model",
            details={"quantization": method, "missing": missing},
            remedy="Use the model's unquantised checkpoint, or a GGUF file of it.",
        )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False  # the package it would be in is missing


def has_bitsandbytes() -> bool:
    """Whether the package is installed; it is not imported."""
    return importlib.util.find_spec("bitsandbytes") is not None


def check_quantization(
    name: str,
    level: str | None,
    *,
    stored_as: str | None,
    device_type: str,
    installed: bool | None = None,
) -> Precision:
    """How to load the model ``name`` at ``level`` on a device of ``device_type`` (``cuda``, ``cpu``, ``mps``).

    Args:
        stored_as: The method of a checkpoint that is quantised already (``gptq``); its level is what it is.
        installed: Whether bitsandbytes is there; None looks.

    Raises :class:`UnsupportedQuantization` saying what is possible here.
    """
    if level is None or stored_as is not None:
        return Precision(None)
    if level not in LEVELS:
        raise _unsupported(name, level, "there is no such level", f"Choose one of {', '.join(LEVELS[:-1])}.")
    if level == "Q2":
        raise _unsupported(
            name,
            level,
            "a checkpoint cannot be cut to 2 bits while it is loaded",
            "Choose Q4, or a GGUF file that is stored in 2 bits.",
        )
    if level not in BITS:
        return Precision(level)
    if device_type != "cuda":
        raise _unsupported(
            name,
            level,
            f"checkpoints are quantised on an NVIDIA GPU only, and this one goes to {device_type}",
            "Choose FP16 or FP32, or a GGUF file of the same model.",
        )
    if not (has_bitsandbytes() if installed is None else installed):
        raise _unsupported(name, level, "the package bitsandbytes is not installed", f"Install it: {EXTRA}")
    return Precision(level, BITS[level])


def _unsupported(name: str, level: str, why: str, remedy: str) -> UnsupportedQuantization:
    return UnsupportedQuantization(
        f"{name!r} cannot be loaded at {level}: {why}.",
        details={"quantization": level, "supported": ["FP32", "FP16"]},
        remedy=remedy,
    )
