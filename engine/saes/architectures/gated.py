"""Gated: one path decides whether a feature is on, another how strongly.

f = [x′·W_enc + b_gate > 0] · relu(x′·W_enc·e^r_mag + b_mag); there is no b_enc. Source: Rajamanoharan et al., 2024
(arXiv 2404.16014).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from engine.saes.architectures.base import Weights
from engine.saes.config import Architecture, SaeConfig


class Gated:
    """Gate and magnitude share one matrix; the magnitude's is scaled per feature by e^r_mag."""

    architecture = Architecture.GATED
    tensors: Mapping[str, tuple[str, ...]] = {"b_gate": ("d_sae",), "b_mag": ("d_sae",), "r_mag": ("d_sae",)}
    partial = True

    def activate(self, hidden: Tensor, weights: Weights, config: SaeConfig) -> Tensor:
        """The magnitude where the gate is open, else zero."""
        magnitude = (hidden * weights["r_mag"].exp() + weights["b_mag"]).relu()
        return magnitude * (hidden + weights["b_gate"] > 0)
