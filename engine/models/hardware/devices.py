"""Choosing the device, the number format and the thread count. Imports torch, so only called behind the first load."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from engine.config import DeviceChoice, DtypeChoice
from engine.errors import EngineUnsupported

MPS_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class DevicePlacement:
    """Where and in what format a model is loaded; ``reason`` says why in words."""

    device: torch.device
    dtype: torch.dtype
    reason: str


def choose_device(choice: DeviceChoice) -> torch.device:
    """The device for ``choice``; raises :class:`EngineUnsupported` when a named one is not there."""
    have_cuda = torch.cuda.is_available()
    have_mps = torch.backends.mps.is_available()
    if choice == "auto":
        return torch.device("cuda" if have_cuda else "mps" if have_mps else "cpu")
    if choice == "cuda" and not have_cuda:
        raise EngineUnsupported(
            "The setting DEVICE asks for cuda, but this torch build sees no CUDA device.",
            param="DEVICE",
            remedy="Install a CUDA build of torch (see the README) or set DEVICE to auto or cpu.",
        )
    if choice == "mps" and not have_mps:
        raise EngineUnsupported(
            "The setting DEVICE asks for mps, but this machine has no Metal device that torch can use.",
            param="DEVICE",
            remedy="Set DEVICE to auto or cpu.",
        )
    return torch.device(choice)


def cpu_has_native_bfloat16() -> bool:
    """True where the CPU multiplies bfloat16 itself (AVX512-BF16 or AMX); elsewhere bfloat16 is 2–5 times slower."""
    capabilities: dict[str, Any] = {}
    if hasattr(torch.cpu, "get_capabilities"):
        capabilities = dict(torch.cpu.get_capabilities())
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def choose_dtype(choice: DtypeChoice, device: torch.device, checkpoint: torch.dtype) -> tuple[torch.dtype, str]:
    """The number format for the weights and why.

    A GPU keeps the checkpoint's own format. A CPU computes in float32 unless it has bfloat16 arithmetic and the
    checkpoint is a half-precision one (a float32 checkpoint is never cut down unasked).
    """
    if choice != "auto":
        named: torch.dtype = getattr(torch, choice)
        return named, f"the setting DTYPE asks for {choice}"
    if device.type == "cpu":
        if checkpoint is torch.float32:
            return torch.float32, "the checkpoint is float32"
        if cpu_has_native_bfloat16():
            return torch.bfloat16, "this CPU computes bfloat16 natively"
        return torch.float32, "this CPU has no bfloat16 arithmetic"
    if device.type == "mps" and checkpoint not in MPS_DTYPES:
        return torch.float16, "Metal has no such format as the checkpoint's"
    return checkpoint, "the checkpoint's own format"


def place(
    device: DeviceChoice, dtype: DtypeChoice, checkpoint: torch.dtype, *, gpu: int | None = None
) -> DevicePlacement:
    """Device and number format for a checkpoint stored as ``checkpoint``; ``gpu`` names a card and wins."""
    chosen = choose_device(device) if gpu is None else torch.device("cuda", gpu)
    number_format, reason = choose_dtype(dtype, chosen, checkpoint)
    return DevicePlacement(chosen, number_format, reason)


def set_threads(setting: int) -> int:
    """Set torch's arithmetic threads; 0 means physical cores minus one, at least one. Returns the number.

    Two spinning OpenMP teams on all cores slow each other down by two orders of magnitude, hence the spare core.
    """
    count = setting or max(1, (psutil.cpu_count(logical=False) or 2) - 1)
    torch.set_num_threads(count)
    return count


def describe_device(device: torch.device) -> str:
    """The device for a person: ``cuda:0 (NVIDIA H200)``, ``cpu``."""
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        return f"cuda:{index} ({torch.cuda.get_device_name(index)})"
    return str(device)


def available_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``; for MPS and the CPU, the system's available memory."""
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available)


def on_device(whole_numbers: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Ids or positions as int64 on ``device``; a GPU takes them from pinned memory, so nobody waits for the copy."""
    host = torch.tensor(whole_numbers, dtype=torch.long, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def is_out_of_memory(error: BaseException) -> bool:
    """True for the ways torch says that memory is exhausted, on a GPU or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def release_cached_memory(device: torch.device) -> None:
    """Give memory that is kept for reuse back: by torch to a driver, on a CPU by glibc to the system."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
    elif sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
