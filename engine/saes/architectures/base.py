"""What every architecture offers: its tensors and how pre-activations become activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from engine.saes.config import Architecture, SaeConfig

Weights = Mapping[str, Tensor]
"""Tensors by their canonical names; see :data:`COMMON`."""

COMMON: Mapping[str, tuple[str, ...]] = {
    "W_enc": ("d_in", "d_sae"),
    "W_dec": ("d_sae", "d_in"),
    "b_dec": ("d_in",),
}
"""Tensors of every architecture and their shapes."""

FEATURE_SCALE = "feature_scale"
"""Optional [d_sae]: what activations are multiplied by when they are decoded, and only then."""


class ArchitectureRules(Protocol):
    """One way of making activations."""

    @property
    def architecture(self) -> Architecture:
        """Its name."""
        ...

    @property
    def tensors(self) -> Mapping[str, tuple[str, ...]]:
        """Tensors it has beside :data:`COMMON`, with the names of their dimensions."""
        ...

    @property
    def partial(self) -> bool:
        """Whether a few features can be encoded without the others."""
        ...

    def activate(self, hidden: Tensor, weights: Weights, config: SaeConfig) -> Tensor:
        """Activations [..., n] of ``hidden`` [..., n] = x′·W_enc; ``weights`` hold the same n features."""
        ...
