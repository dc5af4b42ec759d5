"""What a load of a model would take, term by term, against the memory that is there: asked before anything is loaded.

The same terms as a load is held to (``engine/models/opening.py``). For a checkpoint the first question brings in the
heavy libraries, since they say which devices there are; not for a window's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config import EngineSettings
from engine.library.records import ModelRecord
from engine.models.checkpoint import CheckpointReport
from engine.models.llamacpp.availability import require_installed
from engine.models.memory import MemoryPlan, plan
from engine.models.opening import inspect


@dataclass(frozen=True)
class MemoryEstimate:
    """The terms in bytes, and what is free on ``device``. ``number_format`` is that of the weights."""

    terms: MemoryPlan
    available: int
    device: str
    number_format: str

    @property
    def fits(self) -> bool:
        """Whether a load would be let through."""
        return self.terms.total <= self.available


def estimate(record: ModelRecord, settings: EngineSettings, *, freed: int = 0) -> MemoryEstimate:
    """Estimate a load of ``record``; ``freed`` bytes are those of the model that would make room.

    Raises :class:`CheckpointInvalid` and the like for files that cannot be loaded, :class:`EngineUnsupported`,
    :class:`UnsupportedQuantization`.
    """
    found = inspect(record)
    if isinstance(found, CheckpointReport):
        return _checkpoint(record, found, settings, freed)
    require_installed(record.name)
    import psutil

    from engine.models.llamacpp.placement import need

    available = int(psutil.virtual_memory().available) + freed
    return MemoryEstimate(need(found, settings), available, "cpu", found.label or "GGUF")


def _checkpoint(record: ModelRecord, found: CheckpointReport, settings: EngineSettings, freed: int) -> MemoryEstimate:
    from engine.models import devices
    from engine.models.quantization import check_quantization
    from engine.models.transformers_backend import checkpoint_dtype

    stored = checkpoint_dtype(Path(record.local_path or ""))
    placement = devices.place(settings.DEVICE, settings.DTYPE, stored)
    precision = check_quantization(
        record.name, record.quantization, stored_as=found.quantization_method, device_type=placement.device.type
    )
    dtype = precision.dtype(placement.dtype, stored)
    terms = plan(
        found.params,
        str(dtype).removeprefix("torch."),
        n_layers=found.n_layers,
        kv_width=found.kv_width,
        context_length=found.context_length,
        bytes_per_weight=precision.bytes_per_value(dtype),
    )
    name = record.quantization or str(dtype).removeprefix("torch.")
    return MemoryEstimate(terms, devices.available_memory(placement.device) + freed, str(placement.device), name)
