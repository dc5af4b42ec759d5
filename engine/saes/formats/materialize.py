"""Reads the values a draft describes. Each tensor is copied once, already turned, cast and where it is to stay."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.draft import SaeDraft, StoredMatrix
from engine.saes.formats.orientation import settle_square
from engine.saes.formats.weights import WeightsFile, damaged
from engine.saes.sae import DTYPES, Sae, all_finite


def materialize(draft: SaeDraft, weights: WeightsFile, *, device: torch.device, dtype: torch.dtype | None) -> Sae:
    """The SAE, its weights in ``dtype`` (None: as stored) on ``device``.

    Raises :class:`SaeLoadFailed` when values are missing, not finite, not floating point, or contradict the draft.
    """
    config = draft.config
    wanted = dtype if dtype is not None else DTYPES[config.dtype]
    tensors: dict[str, Tensor] = {}
    tensors["W_enc"] = _matrix(weights, draft.encoder, device, wanted, draft.encoder_scale)
    tensors["W_dec"] = _matrix(weights, draft.decoder, device, wanted, 1.0)
    if draft.encoder.undecided or draft.decoder.undecided:
        tensors["W_enc"], tensors["W_dec"], note = settle_square(tensors["W_enc"], tensors["W_dec"])
        config = replace(config, assumed=(*config.assumed, note))
    for name, make in draft.vectors.items():
        value = make(weights)
        _require_finite(weights, name, value)
        tensors[name] = value.to(device=device, dtype=wanted, copy=True).contiguous()
    if draft.finish is not None:
        tensors, config = draft.finish(tensors, config)
    return Sae(config, {name: tensor.contiguous() for name, tensor in tensors.items()})


def _matrix(
    weights: WeightsFile, matrix: StoredMatrix, device: torch.device, dtype: torch.dtype, scale: float
) -> Tensor:
    value = weights.floats(matrix.key)
    if matrix.transposed:
        value = value.T
    # One allocation in the final layout; the values come straight out of the mapped file.
    kept = torch.empty(value.shape, dtype=dtype, device=device)
    kept.copy_(value)
    if scale != 1.0:
        kept.mul_(scale)
    if not all_finite(kept):
        _require_finite(weights, matrix.key, value)
        raise SaeLoadFailed(
            f"{matrix.key} holds values too large for {str(dtype).removeprefix('torch.')}.",
            remedy="Load the SAE in float32 or bfloat16.",
        )
    return kept


def _require_finite(weights: WeightsFile, name: str, value: Tensor) -> None:
    if not all_finite(value):
        raise damaged(weights.path, f"holds NaN or infinite values in {name}")
