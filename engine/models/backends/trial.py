"""A model is tried when it is loaded: that it takes a step, keeps two texts apart, and can go on with what it read.

Families that the test-suite compares with the library take one step, which finds what is missing on this machine. What
cannot be relied on is refused in words, before anybody is answered.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from engine.errors import EngineUnsupported, MillmError
from engine.models.hardware.devices import is_out_of_memory

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Capabilities, KVStore
    from engine.models.backends.transformers_backend import TransformersBackend

log = logging.getLogger(__name__)

ANOTHER = "Use a decoder-only model of another family, such as Llama, Qwen, Gemma or Mistral."
LENGTH, FIRST = 12, 5
"""Tokens of the text that is tried, and how many of them are read first where it is read in parts."""

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.03}


def tolerance(dtype: torch.dtype) -> float:
    """Largest difference of logits, relative to their spread, that rounding explains in a format."""
    return _TOLERANCE.get(dtype, 1e-3)


def no_cache(backend: TransformersBackend) -> EngineUnsupported:
    """The refusal of a model that takes none of the library's caches."""
    return _refused(
        backend,
        "keeps what it has read in a form of its own, not in a cache that this program can hold for each answer, so it "
        "cannot write here.",
    )


def tried(backend: TransformersBackend, *, known: bool) -> Capabilities:
    """What the model can do, having tried it. ``known``: the test-suite covers its family.

    Raises :class:`EngineUnsupported` where it takes no step, where two texts run into each other, or where going on
    with a text gives something else than reading it whole.
    """
    can = backend.capabilities
    rows = backend._vocab_rows()
    ids = [(7 * place + 3) % rows for place in range(LENGTH)]
    other = [(5 * place + 1) % rows for place in range(LENGTH)]
    try:
        alone = list(_steps(backend, backend.new_store(), ids))[-1]
        if known:
            return can
        turns = zip(_steps(backend, backend.new_store(), ids), _steps(backend, backend.new_store(), other), strict=True)
        in_turns = [mine for mine, _theirs in turns][-1]
        if _differ(backend, in_turns, alone):
            raise _refused(
                backend,
                "keeps a part of what it has read in its layers, where two texts run into each other, so it cannot "
                "write here.",
            )
        whole = backend.extend(backend.new_store(), ids)
        if not _differ(backend, _in_parts(backend, ids), whole):
            return can
        # From here on what follows a beginning is fed token by token.
        backend.capabilities = replace(can, batching=False, chunks=False)
        if _differ(backend, _in_parts(backend, ids), whole):
            raise _refused(backend, "gives other figures going on with a text than reading it whole.")
    except MillmError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        log.warning("%s takes no step", backend.architecture, exc_info=True)
        said = " ".join(str(error).split())[:300]
        raise _refused(backend, f"was loaded and takes no step here: {type(error).__name__}: {said}") from error
    log.info("%s cannot go on with several tokens at once: its prompts are read whole", backend.architecture)
    reason = can.reason or "it cannot go on with several tokens at once"
    return replace(backend.capabilities, reason=reason, reads_together=False, reads_alike=False)


def _steps(backend: TransformersBackend, store: KVStore, ids: Sequence[int]) -> Iterator[Tensor]:
    """Logits after a beginning of ``ids``, and after each of three tokens more."""
    yield backend.extend(store, ids[:FIRST])
    for token in ids[FIRST : FIRST + 3]:
        yield backend.extend(store, [token])


def _in_parts(backend: TransformersBackend, ids: Sequence[int]) -> Tensor:
    store = backend.new_store()
    backend.extend(store, ids[:FIRST])
    return backend.extend(store, ids[FIRST:])


def _differ(backend: TransformersBackend, found: Tensor, expected: Tensor) -> bool:
    """Whether they are further apart than rounding explains. Numbers that overflow say nothing of where a past is."""
    drift = float((found - expected).abs().max()) / (float(expected.std()) + 1e-6)
    return math.isfinite(drift) and drift > tolerance(backend.dtype)


def _refused(backend: TransformersBackend, why: str) -> EngineUnsupported:
    return EngineUnsupported(
        f"{backend.architecture} {why}",
        param="model",
        details={"architecture": backend.architecture, "model_type": backend.model_type},
        remedy=ANOTHER,
    )
