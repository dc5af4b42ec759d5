"""A load in two steps, whichever engine the model needs: what it will take, then the load itself.

The first step looks at files and settings and brings in the heavy libraries; nothing that is in memory is touched
before it is known that the new model can follow.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.config import EngineSettings
from engine.errors import EngineUnsupported
from engine.library.records import EngineKind, ModelRecord
from engine.models.hardware.memory import MemoryEstimate, plan
from engine.models.inspection.checkpoint import inspect_checkpoint

if TYPE_CHECKING:
    from engine.models.backends.backend import Backend
    from engine.models.backends.load_progress import Report
    from engine.models.hardware.devices import DevicePlacement
    from engine.models.inspection.checkpoint import CheckpointReport
    from engine.models.inspection.gguf_file import GgufReport
    from engine.models.inspection.quantization import Precision

log = logging.getLogger(__name__)

GPU_DECIDES = 1 << 50
"""Stands for the memory of a GPU, which llama.cpp itself holds a load against."""


class Opening(Protocol):
    """A model whose files are sound, about to be loaded."""

    def estimate(self, freed: int) -> MemoryEstimate:
        """What it takes, against what is free once ``freed`` bytes are given back."""
        ...

    def rehearse(self) -> None:
        """Hold what the files hold against what the model needs, by names and shapes; reads no weight.

        Raises :class:`CheckpointInvalid`. What cannot be told beforehand is left to the load.
        """
        ...

    def load(self, report: Report) -> Backend:
        """Load it. ``report`` gets (share 0–1, stage); what it raises ends the load."""
        ...


def inspect(record: ModelRecord) -> CheckpointReport | GgufReport:
    """Look at the files of ``record`` without reading a weight. Raises :class:`CheckpointInvalid` and the like."""
    path = Path(record.local_path or "")
    if record.engine is EngineKind.LLAMACPP:
        from engine.models.inspection.gguf_file import inspect_gguf

        return inspect_gguf(path)
    return inspect_checkpoint(path)


def open_model(
    record: ModelRecord, found: CheckpointReport | GgufReport, settings: EngineSettings, *, gpu: int | None = None
) -> Opening:
    """Prepare the load of what :func:`inspect` found; ``gpu`` names a card instead of the settings' choice.

    Raises :class:`EngineUnsupported` for an impossible device, :class:`UnsupportedQuantization`.
    """
    from engine.models.inspection.gguf_file import GgufReport

    if isinstance(found, GgufReport):
        return _Gguf(record.name, found, settings, gpu)
    return _Checkpoint.prepare(record, found, settings, gpu)


def import_libraries() -> None:
    """Import what the load of a checkpoint needs, and the code of the commonest family of models."""
    from transformers import LlamaForCausalLM

    from engine.models.backends import transformers_backend
    from engine.models.hardware import devices
    from engine.models.inspection import quantization

    log.debug("%s, %s, %s and %s are here", devices, quantization, transformers_backend, LlamaForCausalLM)


def import_ahead(found: CheckpointReport | GgufReport) -> None:
    """Import the model's own code, which is as much again as its library; else the load does it amid its work."""
    import transformers

    architecture = getattr(found, "architecture", "")
    try:
        getattr(transformers, architecture, None)
    except Exception:
        # What is missing is said by the load, which knows the checkpoint; some classes are not in the library at all.
        log.debug("%s could not be imported ahead", architecture, exc_info=True)


@dataclass(frozen=True)
class _Checkpoint:
    """A transformers checkpoint."""

    record: ModelRecord
    found: CheckpointReport
    settings: EngineSettings
    placement: DevicePlacement
    precision: Precision

    @classmethod
    def prepare(
        cls, record: ModelRecord, found: CheckpointReport, settings: EngineSettings, gpu: int | None
    ) -> _Checkpoint:
        from engine.models.backends.rehearsal import checkpoint_dtype
        from engine.models.hardware import devices
        from engine.models.inspection.quantization import check_quantization, check_stored

        check_stored(found.path, found.quantization_method)
        stored = checkpoint_dtype(Path(record.local_path or ""))
        placement = devices.place(settings.DEVICE, settings.DTYPE, stored, gpu=gpu)
        precision = check_quantization(
            record.name,
            record.quantization,
            stored_as=found.quantization_method,
            device_type=placement.device.type,
        )
        placement = replace(placement, dtype=precision.dtype(placement.dtype, stored))
        return cls(record, found, settings, placement, precision)

    @property
    def dtype(self) -> str:
        """The numbers it computes with, in torch's word."""
        return str(self.placement.dtype).removeprefix("torch.")

    def estimate(self, freed: int) -> MemoryEstimate:
        from engine.models.hardware import devices

        terms = plan(
            self.found.params,
            self.dtype,
            n_layers=self.found.n_layers,
            kv_width=self.found.kv_width,
            context_length=self.found.context_length,
            bytes_per_weight=self.precision.bytes_per_value(self.placement.dtype),
        )
        device = self.placement.device
        available = devices.available_memory(device) + freed
        return MemoryEstimate(terms, available, str(device), self.record.quantization or self.dtype)

    def rehearse(self) -> None:
        from engine.models.backends.rehearsal import refuse_misfits

        # Stored quantised, tensors have other names and shapes, which its own library knows.
        if self.found.quantization_method is None:
            refuse_misfits(Path(self.record.local_path or ""), trust_remote_code=self.record.trust_remote_code)

    def load(self, report: Report) -> Backend:
        from engine.models.backends.transformers_backend import TransformersBackend
        from engine.models.hardware import devices

        threads = devices.set_threads(self.settings.CPU_THREADS)
        log.info(
            "loading %s as %s on %s, %d threads: %s",
            self.record.name,
            self.dtype,
            self.placement.device,
            threads,
            self.placement.reason,
        )
        return TransformersBackend.load(
            Path(self.record.local_path or ""),
            self.placement,
            report,
            trust_remote_code=self.record.trust_remote_code,
            quantization=self.precision.config(self.placement.dtype),
        )


class _Gguf:
    """A GGUF file or split set."""

    def __init__(self, name: str, found: GgufReport, settings: EngineSettings, gpu: int | None) -> None:
        from engine.models.backends.llamacpp.binding import library
        from engine.models.backends.llamacpp.placement import wants_gpu

        self._name = name
        self._found = found
        self._settings = settings
        self._gpu = bool(library().llama_supports_gpu_offload())
        self._offloads = wants_gpu(settings, supported=self._gpu)
        if gpu is not None:
            raise EngineUnsupported(
                f"{name!r} is a GGUF file: llama.cpp chooses the cards itself, so none can be named.",
                param="gpu",
                remedy="Leave the card out, or choose it with CUDA_VISIBLE_DEVICES before the program starts.",
            )

    def estimate(self, freed: int) -> MemoryEstimate:
        from engine.models.backends.llamacpp.placement import need

        terms, label = need(self._found, self._settings), self._found.label
        if self._offloads:
            # llama.cpp places what it can on the GPU and the rest beside it, and says itself when neither holds.
            return MemoryEstimate(terms, None, "the GPU and beside it", label)
        return MemoryEstimate(terms, self._available() + freed, "cpu", label)

    def rehearse(self) -> None:
        """llama.cpp alone knows which tensors an architecture needs."""

    def load(self, report: Report) -> Backend:
        from engine.models.backends.llamacpp.backend import LlamaCppBackend
        from engine.models.backends.llamacpp.placement import place
        from engine.models.hardware import devices

        threads = devices.set_threads(self._settings.CPU_THREADS)
        placement = place(
            self._found,
            self._settings,
            available=GPU_DECIDES if self._offloads else self._available(),
            threads=threads,
            gpu_supported=self._gpu,
        )
        log.info(
            "loading %s by llama.cpp, %d threads, %d tokens of context, %s",
            self._name,
            threads,
            placement.window,
            "on the GPU" if placement.offloaded else "on the CPU",
        )
        return LlamaCppBackend.load(placement, report)

    def _available(self) -> int:
        import psutil

        return int(psutil.virtual_memory().available)
