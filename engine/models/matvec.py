"""Products of one row in bfloat16 on a CPU, which is what writing alone consists of.

torch gives bfloat16 products to oneDNN, which arranges the weights anew for each of them. For many rows that pays; for
one row it takes longer than the product. torch's own kernel reads the weights as they lie and sums in float32 too: a
step of SmolLM2-135M takes 30 instead of 53 ms, and is as far from float32's logits (divergence 9e-4 for both).

It holds for matrices that lie as ``torch.nn.Linear`` has them; others are much slower without oneDNN, so a model with
any is left alone. The switch is one for the process: it is off only inside a pass, and on again for who reads along
there. Only the engine thread turns it. What another thread computes in bfloat16 meanwhile is right, and slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import Embedding, Linear, Module


class OneRowPasses:
    """Whether passes of one row on one model go without oneDNN."""

    def __init__(self, model: Module, device: torch.device, dtype: torch.dtype) -> None:
        self.applies = device.type == "cpu" and dtype is torch.bfloat16 and _is_linear(model)

    def passing(self, tokens: int, rows: int) -> Any:
        """A context for a pass of ``tokens`` on each of ``rows``."""
        return _onednn(False) if self.applies and tokens == rows == 1 else nullcontext()


def reading_along() -> Any:
    """A context for work of others inside a pass: with oneDNN, as outside of it."""
    return nullcontext() if torch._C._get_mkldnn_enabled() else _onednn(True)


@contextmanager
def _onednn(wanted: bool) -> Iterator[None]:
    # Not `torch.backends.mkldnn.flags`: that sets other switches too and warns of one of them.
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(wanted)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _is_linear(model: Module) -> bool:
    """Whether all matrices belong to plain linear layers and embeddings."""
    return all(
        type(module) in (Linear, Embedding) or isinstance(module, Embedding)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
        if parameter.dim() > 1
    )
