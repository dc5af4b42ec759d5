"""Reading an SAE's weights to where the model is: whether they fit first, then the reading itself."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.config import EngineSettings
from engine.counting import MB, in_mb
from engine.errors import InsufficientMemory, MillmError
from engine.library.records import SaeRecord
from engine.models.registry import LoadedModel
from engine.saes.config import BYTES_PER_VALUE, SaeConfig
from engine.saes.errors import SaeLoadFailed

if TYPE_CHECKING:
    import torch

    from engine.saes.formats import Detected
    from engine.saes.sae import Sae

log = logging.getLogger(__name__)

ON_DISK_SHARE = 0.6
"""Of a file's size, the least that its weights are taken to need: half of float32 files and a little more."""

WORKING_ROOM = 1.1
"""Times the weights: what reading them takes beside them."""


def attach_dtype(settings: EngineSettings, loaded: LoadedModel) -> torch.dtype:
    """The number format SAEs are attached in: the model's own, unless the setting names one."""
    import torch

    named = settings.MULTISAE_ATTACH_DTYPE
    found: torch.dtype = loaded.backend.dtype if named == "model" else getattr(torch, named)
    return found


def projected_bytes(saes: Sequence[tuple[SaeRecord, SaeConfig]], dtype: torch.dtype) -> float:
    """Memory that reading ``saes`` takes: of each the larger of its matrices and a share of its files; some room."""
    size = BYTES_PER_VALUE[str(dtype).removeprefix("torch.")]
    weights = (
        max(2 * config.d_in * config.d_sae * size, ON_DISK_SHARE * (record.file_size_bytes or 0))
        for record, config in saes
    )
    return sum(weights) * WORKING_ROOM


def require_memory(saes: Sequence[tuple[SaeRecord, SaeConfig]], dtype: torch.dtype, device: torch.device) -> None:
    """Raise :class:`InsufficientMemory`, with ``projected_mb`` and ``free_mb``, unless ``saes`` fit beside the rest."""
    from engine.models.hardware import devices

    needed, free = projected_bytes(saes, dtype), devices.available_memory(device)
    if needed <= free:
        return
    names = ", ".join(repr(record.id) for record, _ in saes)
    raise InsufficientMemory(
        f"Attaching {names} needs about {needed / MB:.0f} MB on {device}; {free / MB:.0f} MB are available.",
        details={"device": str(device), "projected_mb": in_mb(int(needed)), "free_mb": in_mb(free)},
        remedy="Detach other SAEs, close other programs, or choose SAEs with fewer features.",
    )


def load_weights(detected: Detected, device: torch.device, dtype: torch.dtype) -> Sae:
    """The SAE on ``device`` in ``dtype``. Raises :class:`SaeLoadFailed` and :class:`InsufficientMemory`."""
    from engine.models.hardware.devices import describe_device, is_out_of_memory
    from engine.saes.formats import load_detected

    try:
        return load_detected(detected, device=device, dtype=dtype)
    except MillmError as error:
        _let_go(error)
        raise
    except Exception as error:  # reading and copying may fail in as many ways as there are devices
        _let_go(error)
        if is_out_of_memory(error):
            raise InsufficientMemory(
                f"{describe_device(device)} ran out of memory while {detected.files[0].name} was read.",
                details={"device": str(device), "phase": "loading"},
                remedy="Detach other SAEs, close other programs, or choose SAEs with fewer features.",
            ) from error
        log.exception("reading the SAE %s failed", detected.files[0])
        raise SaeLoadFailed(
            f"{detected.files[0].name} could not be read: {type(error).__name__}: {error}",
            details={"file": str(detected.files[0])},
            remedy="The log file has the full report.",
        ) from error


def _let_go(error: BaseException) -> None:
    """Empty the frames an error came through: whoever keeps the error would keep half an SAE with it."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
