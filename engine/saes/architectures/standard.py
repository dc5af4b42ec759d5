"""ReLU: f = relu(x′·W_enc + b_enc)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from engine.saes.architectures.base import Weights
from engine.saes.config import Architecture, SaeConfig


class Standard:
    """The first architecture: one bias and a ReLU."""

    architecture = Architecture.STANDARD
    tensors: Mapping[str, tuple[str, ...]] = {"b_enc": ("d_sae",)}
    partial = True

    def activate(self, hidden: Tensor, weights: Weights, config: SaeConfig) -> Tensor:
        """relu(hidden + b_enc)."""
        return (hidden + weights["b_enc"]).relu()
