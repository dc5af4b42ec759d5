"""What is done to an input before it is encoded, and undone after decoding. Stateless: undoing reads the input again.

Formulas as in SAELens (``normalize_activations``): √d ÷ ‖x‖ per token; or mean and standard deviation with 1e-5 added
to the deviation on the way in only. Statistics are computed in float32 for half-precision inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.saes.config import NormalizeActivations, SaeConfig

LAYER_NORM_EPS = 1e-5


def undo_needs_input(config: SaeConfig) -> bool:
    """Whether decoding needs the original input to get back to its scale."""
    per_token = {NormalizeActivations.CONSTANT_NORM_RESCALE, NormalizeActivations.LAYER_NORM}
    return config.center_input or config.normalize_activations in per_token


def normalize(x: Tensor, config: SaeConfig) -> Tensor:
    """``x`` [..., d_in] as the encoder expects it, in its own dtype."""
    if not undo_needs_input(config):
        return x
    wide = _wide(x)
    if config.center_input:
        wide = wide - wide.mean(dim=-1, keepdim=True)
    if config.normalize_activations is NormalizeActivations.CONSTANT_NORM_RESCALE:
        wide = wide * _norm_coefficient(wide, config.d_in)
    elif config.normalize_activations is NormalizeActivations.LAYER_NORM:
        mean, deviation = _moments(wide)
        wide = (wide - mean) / (deviation + LAYER_NORM_EPS)
    return wide.to(x.dtype)


def denormalize(x_hat: Tensor, x: Tensor, config: SaeConfig) -> Tensor:
    """``x_hat`` [..., d_in] brought back to the scale of the input ``x`` [..., d_in] it was encoded from."""
    wide, source = _wide(x_hat), _wide(x)
    input_mean = source.mean(dim=-1, keepdim=True)
    if config.center_input:
        source = source - input_mean
    if config.normalize_activations is NormalizeActivations.CONSTANT_NORM_RESCALE:
        wide = wide / _norm_coefficient(source, config.d_in)
    elif config.normalize_activations is NormalizeActivations.LAYER_NORM:
        mean, deviation = _moments(source)
        wide = wide * deviation + mean
    if config.center_input:
        wide = wide + input_mean
    return wide.to(x_hat.dtype)


def _norm_coefficient(x: Tensor, d_in: int) -> Tensor:
    # An all-zero token has no direction: it stays zero instead of becoming NaN.
    norm = x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).eps)
    return torch.full_like(norm, d_in**0.5) / norm


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(dim=-1, keepdim=True)
    return mean, (x - mean).std(dim=-1, keepdim=True)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in {torch.float16, torch.bfloat16} else x
