"""JumpReLU: f = relu(h)·[h > threshold] with h = x′·W_enc + b_enc.

Source: Rajamanoharan et al., 2024 (arXiv 2407.14435). Batch-top-k SAEs are this at inference, with one
threshold for all.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from engine.saes.architectures.base import Weights
from engine.saes.config import Architecture, SaeConfig


class JumpRelu:
    """A ReLU with a threshold per feature; what passes is not reduced by it."""

    architecture = Architecture.JUMPRELU
    tensors: Mapping[str, tuple[str, ...]] = {"b_enc": ("d_sae",), "threshold": ("d_sae",)}
    partial = True

    def activate(self, hidden: Tensor, weights: Weights, config: SaeConfig) -> Tensor:
        """relu(h) where h is above the threshold, else zero."""
        pre_activations = hidden + weights["b_enc"]
        return pre_activations.relu() * (pre_activations > weights["threshold"])
