"""Small SAEs with figures one can check by hand, and passes that show them residual vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.monitor.rows import Observers, RowInfo
from engine.saes.attachment import Attachment
from engine.saes.config import Architecture, SaeConfig, SourceFormat
from engine.saes.sae import Sae


def plain_sae() -> Sae:
    """Width 3, four features: f = relu(x0), relu(x1), relu(2·x2 − 1), relu(x0 − x1)."""
    return make_sae([[1, 0, 0, 1], [0, 1, 0, -1], [0, 0, 2, 0]], b_enc=[0, 0, -1, 0])


def ramp_sae(features: int = 40, *, architecture: Architecture = Architecture.STANDARD, k: int | None = None) -> Sae:
    """Width 1: feature i of x is relu(x · i)."""
    return make_sae([list(range(features))], architecture=architecture, k=k)


def make_sae(
    w_enc: list[list[float]],
    *,
    b_enc: list[float] | None = None,
    architecture: Architecture = Architecture.STANDARD,
    k: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Sae:
    """An SAE of these encoder weights; its decoder is the encoder's transpose."""
    weights = torch.tensor(w_enc, dtype=dtype)
    d_in, d_sae = weights.shape
    config = SaeConfig(architecture, d_in, d_sae, SourceFormat.SAELENS, k=k)
    return Sae(
        config,
        {
            "W_enc": weights,
            "W_dec": weights.T.contiguous(),
            "b_dec": torch.zeros(d_in, dtype=dtype),
            "b_enc": torch.zeros(d_sae, dtype=dtype) if b_enc is None else torch.tensor(b_enc, dtype=dtype),
        },
    )


def attached(sae: Sae, sae_id: str = "toy", layer: int = 2) -> Attachment:
    """``sae`` at a layer."""
    return Attachment(sae_id, layer, sae, f"model.layers.{layer}", sae.nbytes)


def row(request_id: str, position: int, *token_ids: int, prompt_tokens: int = 0, choice: int = 0) -> RowInfo:
    """A row whose first token stands at ``position``."""
    return RowInfo(request_id, position, token_ids, choice, prompt_tokens)


def residual(*rows: Sequence[Sequence[float]]) -> Tensor:
    """[rows, width, d_model] of literal vectors."""
    return torch.tensor(rows, dtype=torch.float32)


def show(observers: Observers, layer: int, before: Tensor, after: Tensor | None = None) -> None:
    """Let a layer's output be read as the engine thread does; without steering both sides are the same."""
    with torch.inference_mode():
        for observer in observers.get(layer, ()):
            observer.observe(layer, before, before if after is None else after)
