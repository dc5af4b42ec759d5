"""Where a GGUF model goes and how long its context is, settled before a weight is read. Sizes are bytes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from engine.config import EngineSettings
from engine.counting import MB
from engine.errors import EngineUnsupported
from engine.models.backends.llamacpp.context import CELL_STEP, cells_for
from engine.models.backends.llamacpp.model import ALL_LAYERS
from engine.models.hardware.memory import MIN_CONTEXT, WORKING_SHARE, MemoryPlan
from engine.models.inspection.gguf_file import GgufReport

log = logging.getLogger(__name__)

BYTES_PER_VALUE = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}
"""Of keys and values; q8_0 keeps 32 values in 34 bytes."""

BUFFERS = 64_000_000
"""What llama.cpp allocates for the graph of a pass, beside a share of the weights."""

SHARED_KV = 512_000_000
"""Bytes of keys and values up to which a context is made longer than one answer needs, so that several fit in it.
``KV_MEMORY_MB`` says otherwise.
"""

FEWEST_TOKENS, MOST_TOKENS = 64, 512
"""Tokens of one call; a longer chunk of a prompt takes several. llama.cpp aborts the process when a call could hold
fewer tokens than there are sequences.
"""

SPARE_SEQUENCES = 32
MOST_SEQUENCES = 256
"""llama.cpp's own bound."""


@dataclass(frozen=True)
class GgufPlacement:
    """A settled load.

    Attributes:
        path: The file, or the first of its set.
        gpu_layers: 0, or all.
        window: Tokens one answer may have, prompt included.
        cells: Tokens all answers together may have.
        sequences: Pasts that can be held at the same time.
        batch: Tokens of one call.
        bytes_per_token: Of keys and values.
    """

    path: Path
    gpu_layers: int
    window: int
    cells: int
    sequences: int
    batch: int
    threads: int
    kv_type: str
    flash_attention: bool
    bytes_per_token: int

    @property
    def offloaded(self) -> bool:
        """Whether a GPU computes."""
        return self.gpu_layers != 0


def wants_gpu(settings: EngineSettings, *, supported: bool) -> bool:
    """Whether weights go to a GPU. Raises :class:`EngineUnsupported` when one is asked for and this build has none."""
    if settings.DEVICE == "cpu":
        return False
    if settings.DEVICE != "auto" and not supported:
        raise EngineUnsupported(
            f"The setting DEVICE asks for {settings.DEVICE}, but this build of llama.cpp runs on the CPU only.",
            param="DEVICE",
            remedy="Build llama-cpp-python for that device (see the README), or set DEVICE to auto or cpu.",
        )
    return supported


def bytes_per_token(report: GgufReport, kv_type: str) -> int:
    """Keys and values of one token in all layers."""
    width = report.kv_width or report.d_model
    return max(1, int(2 * report.n_layers * width * BYTES_PER_VALUE[kv_type]))


def need(report: GgufReport, settings: EngineSettings) -> MemoryPlan:
    """What the model needs at least: its weights, a short context, and room to compute."""
    tokens = min(MIN_CONTEXT, _longest(report, settings))
    return MemoryPlan(
        weights=report.disk_size_bytes,
        kv=tokens * bytes_per_token(report, settings.GGUF_KV_CACHE_TYPE),
        kv_tokens=tokens,
        working=int(report.disk_size_bytes * WORKING_SHARE) + BUFFERS,
    )


def place(
    report: GgufReport, settings: EngineSettings, *, available: int, threads: int, gpu_supported: bool
) -> GgufPlacement:
    """Settle a load that :func:`need` has found room for, in ``available`` bytes.

    The window is the file's own, at most ``GGUF_CONTEXT_LENGTH``, and shorter where memory is short, which is logged.
    """
    if settings.GGUF_KV_CACHE_TYPE == "q8_0" and not settings.GGUF_FLASH_ATTENTION:
        raise EngineUnsupported(
            "llama.cpp keeps keys and values as q8_0 only with flash attention.",
            param="GGUF_KV_CACHE_TYPE",
            remedy="Set GGUF_FLASH_ATTENTION to true, or GGUF_KV_CACHE_TYPE to f16.",
        )
    per_token = bytes_per_token(report, settings.GGUF_KV_CACHE_TYPE)
    wanted = _longest(report, settings)
    room = available - need(report, settings).weights - need(report, settings).working
    fitting = max(0, room // per_token) // CELL_STEP * CELL_STEP
    window = min(wanted, max(fitting, min(MIN_CONTEXT, wanted)))
    if window < wanted:
        log.warning("the context of %s is cut from %d to %d tokens: memory is short", report.path.name, wanted, window)
    shared = settings.KV_MEMORY_MB * MB or SHARED_KV
    generous = min(window * settings.MAX_LANES, max(0, min(shared, room) // per_token))
    sequences = min(MOST_SEQUENCES, 2 * settings.MAX_LANES + 2 + SPARE_SEQUENCES)
    return GgufPlacement(
        path=report.path,
        gpu_layers=ALL_LAYERS if wants_gpu(settings, supported=gpu_supported) else 0,
        window=window,
        cells=cells_for(max(window, generous // CELL_STEP * CELL_STEP)),
        sequences=sequences,
        batch=max(min(settings.PREFILL_CHUNK, MOST_TOKENS), FEWEST_TOKENS, sequences),
        threads=threads,
        kv_type=settings.GGUF_KV_CACHE_TYPE,
        flash_attention=settings.GGUF_FLASH_ATTENTION,
        bytes_per_token=per_token,
    )


def _longest(report: GgufReport, settings: EngineSettings) -> int:
    ceiling = settings.GGUF_CONTEXT_LENGTH
    return min(report.context_length, ceiling) if ceiling else report.context_length
