"""Top-k: of h = x′·W_enc + b_enc only the k largest per token stay, and of those only what is positive.

With ``rescale_acts_by_decoder_norm`` h is first multiplied by the decoder rows' norms, and decoding divides by them.
Source: Gao et al., 2024 (arXiv 2406.04093); the rescaling as in SAELens. Taking the ReLU before the choice, as sparsify
does, gives the same activations.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.saes.architectures.base import Weights
from engine.saes.config import Architecture, SaeConfig

DECODER_NORMS = "decoder_norms"
"""Name under which the SAE hands its decoder rows' norms [d_sae] to :meth:`TopK.activate`."""


class TopK:
    """The choice is made among all features, so none can be encoded alone."""

    architecture = Architecture.TOPK
    tensors: Mapping[str, tuple[str, ...]] = {"b_enc": ("d_sae",)}
    partial = False

    def activate(self, hidden: Tensor, weights: Weights, config: SaeConfig) -> Tensor:
        """The k largest of each token, negatives as zero."""
        assert config.k is not None
        pre_activations = hidden + weights["b_enc"]
        if config.rescale_acts_by_decoder_norm:
            pre_activations = pre_activations * weights[DECODER_NORMS]
        values, indices = torch.topk(pre_activations, k=config.k, dim=-1, sorted=False)
        return torch.zeros_like(pre_activations).scatter_(-1, indices, values.relu())
