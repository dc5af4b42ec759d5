"""Attention masks for a step of the slab: one boolean or additive 4-D tensor per kind of attention layer.

A 4-D mask is passed through by transformers' models as it is. Models with one kind of layer take the tensor, models
that mix kinds take a dict keyed by the kind. Every query sees at least itself, so no row is ever fully masked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.models.backends.kv import Step

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
MASKABLE = frozenset({FULL, SLIDING, CHUNKED})


def attention_kinds(config: Any) -> tuple[str, ...]:
    """The kinds of layer a decoder mixes, by its config: ``layer_types`` where declared, else the one kind there is."""
    declared = getattr(config, "layer_types", None)
    if declared:
        return tuple(dict.fromkeys(declared))
    # `use_sliding_window` is Qwen2's switch; absent means the window applies where one is set.
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return (SLIDING,)
    return (FULL,)


def allowed(kind: str, step: Step, config: Any) -> Tensor:
    """True where a query may look, ``[rows, 1, width, slots]``.

    A query at position p sees slots j ≤ p; with a window w only j > p − w (the window counts the query itself, as in
    transformers' ``sliding_window_overlay``); with chunks of c only slots of its own chunk.
    """
    slots = torch.arange(step.end, device=step.positions.device)
    positions = step.positions[:, None, :, None]
    mask = slots <= positions
    if kind == SLIDING:
        mask &= slots > positions - config.sliding_window
    elif kind == CHUNKED:
        chunk = config.attention_chunk_size
        mask &= slots // chunk == positions // chunk
    return mask


def step_masks(
    kinds: tuple[str, ...], step: Step, config: Any, *, additive: torch.dtype | None, floor: float | None = None
) -> Any:
    """The ``attention_mask`` argument for a forward: a tensor for one kind, a dict for several.

    Args:
        additive: None for boolean masks. A dtype for masks that are added to the scores.
        floor: What is added where a query may not look; None: the least finite number.
    """
    masks = {kind: allowed(kind, step, config) for kind in kinds}
    if additive is not None:
        floor = torch.finfo(additive).min if floor is None else floor
        masks = {
            kind: torch.zeros(mask.shape, dtype=additive, device=mask.device).masked_fill_(~mask, floor)
            for kind, mask in masks.items()
        }
    return masks if len(masks) > 1 else next(iter(masks.values()))
