"""NVIDIA cards as their driver sees them: memory, load, temperature, who uses them.

Read through NVML (the optional package ``nvidia-ml-py``) or else through the ``nvidia-smi`` program. Neither opens a
CUDA context, which would take hundreds of megabytes of the card. PyTorch is asked only where it has opened one itself.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

SMI_UNIT = 2**20
"""Bytes of what ``nvidia-smi`` calls MiB."""

SMI_TIMEOUT_S = 5.0
NOT_MEASURED = "not_measured_by_torch"

_CARD_FIELDS = "index,uuid,name,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu"
_PROCESS_FIELDS = "gpu_uuid,pid,used_memory"


@dataclass(frozen=True)
class GpuProcess:
    """A process on a card; ``used_bytes`` is None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class TorchMemory:
    """What PyTorch holds on its card ``index``: allocated in tensors, reserved with its own cache."""

    index: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class GpuCard:
    """One card.

    Attributes:
        index: Its number at the driver, which is not always PyTorch's.
        utilization: Percent of the last sample period in which it computed; None where the driver does not say.
        temperature: Degrees Celsius.
        processes: Who computes on it; None where that cannot be told, and ``processes_reason`` says why.
        torch: What this program's PyTorch holds there; None while PyTorch has not opened it.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    free_bytes: int
    utilization: float | None = None
    temperature: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    processes_reason: str | None = None
    torch: TorchMemory | None = None


@dataclass(frozen=True)
class GpuReading:
    """All cards, or why there are none to show."""

    cards: tuple[GpuCard, ...] = ()
    reason: str | None = None
    source: str | None = None


@dataclass
class _Nvml:
    """NVML, initialised once for the life of the program; the driver keeps no context for that."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    module: ModuleType | None = None


_nvml = _Nvml()


def read_gpus() -> GpuReading:
    """The cards now; takes milliseconds with NVML, up to seconds with ``nvidia-smi``. Never raises."""
    problems: list[str] = []
    for source, read in (("nvml", _read_nvml), ("nvidia-smi", _read_smi)):
        try:
            cards = read()
        except _Unavailable as error:
            problems.append(str(error))
            continue
        torch = _torch_memory()
        return GpuReading(tuple(replace(card, torch=torch.get(_bare(card.uuid))) for card in cards), None, source)
    return GpuReading(reason=" ".join(problems))


class _Unavailable(Exception):
    """This way of reading cannot be used; the text says why."""


# --- NVML -------------------------------------------------------------------------------------------------------------


def _read_nvml() -> list[GpuCard]:
    nvml = _load_nvml()
    try:
        return [_nvml_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        # A driver that was replaced under us answers again only after a new start of the library.
        with _nvml.lock:
            _nvml.module = None
        raise _Unavailable(f"NVML failed: {error}.") from None


def _load_nvml() -> ModuleType:
    with _nvml.lock:
        if _nvml.module is not None:
            return _nvml.module
        try:
            import pynvml
        except ImportError:
            raise _Unavailable("The package nvidia-ml-py is not installed.") from None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _Unavailable(f"NVML cannot be used: {error}.") from None
        _nvml.module = pynvml
        return _nvml.module


def _nvml_card(nvml: ModuleType, index: int) -> GpuCard:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    utilization = _optional(nvml, lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    temperature = _optional(nvml, lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))
    processes: tuple[GpuProcess, ...] | None = None
    reason: str | None = None
    try:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError as error:
        reason = str(error)
    else:
        processes = tuple(GpuProcess(int(each.pid), each.usedGpuMemory) for each in found)
    return GpuCard(
        index,
        _text(nvml.nvmlDeviceGetUUID(handle)),
        _text(nvml.nvmlDeviceGetName(handle)),
        memory.total,
        memory.used,
        memory.free,
        utilization,
        temperature,
        processes,
        reason,
    )


def _optional(nvml: ModuleType, read: Callable[[], float]) -> float | None:
    """A figure that not every card has."""
    try:
        return read()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# --- nvidia-smi -------------------------------------------------------------------------------------------------------


def _read_smi() -> list[GpuCard]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise _Unavailable("There is no nvidia-smi on this machine.")
    rows = _query(program, f"--query-gpu={_CARD_FIELDS}")
    processes: dict[str, list[GpuProcess]] | None
    found: dict[str, list[GpuProcess]] = {}
    reason: str | None = None
    try:
        for uuid, pid, used in _query(program, f"--query-compute-apps={_PROCESS_FIELDS}"):
            found.setdefault(uuid, []).append(GpuProcess(int(pid), _bytes(used)))
    except (_Unavailable, ValueError) as error:
        processes, reason = None, str(error)
    else:
        processes = found
    try:
        return [_smi_card(row, processes, reason) for row in rows]
    except (ValueError, TypeError) as error:
        raise _Unavailable(f"nvidia-smi gave something unreadable: {error}.") from None


def _query(program: str, what: str) -> list[list[str]]:
    command = [program, what, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired:
        raise _Unavailable(f"nvidia-smi did not answer within {SMI_TIMEOUT_S:g} s.") from None
    except subprocess.CalledProcessError as error:
        said = (error.stdout or error.stderr or "").strip().splitlines()
        raise _Unavailable(f"nvidia-smi failed: {said[0] if said else error.returncode}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _Unavailable(f"nvidia-smi cannot be run: {error}.") from None
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()) if row]


def _smi_card(row: Sequence[str], processes: Mapping[str, list[GpuProcess]] | None, reason: str | None) -> GpuCard:
    index, uuid, name, total, used, free, utilization, temperature = row
    return GpuCard(
        int(index),
        uuid,
        name,
        round(float(total) * SMI_UNIT),
        round(float(used) * SMI_UNIT),
        round(float(free) * SMI_UNIT),
        _figure(utilization),
        _figure(temperature),
        None if processes is None else tuple(processes.get(uuid, ())),
        reason,
    )


def _bytes(text: str) -> int | None:
    figure = _figure(text)
    return None if figure is None else round(figure * SMI_UNIT)


def _figure(text: str) -> float | None:
    """A number, or None for ``[N/A]`` and its like."""
    try:
        return float(text)
    except ValueError:
        return None


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def _torch_memory() -> dict[str, TorchMemory]:
    """What PyTorch holds, by the card's bare uuid. Empty unless this program uses CUDA already; nothing is opened."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    found: dict[str, TorchMemory] = {}
    for index in range(torch.cuda.device_count()):
        uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        if uuid is not None:
            found[_bare(str(uuid))] = TorchMemory(
                index, torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
            )
    return found


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").lower()
