"""Whether an SAE does what it says: active features and variance explained, measured on a bundled text.

The caller runs :func:`check_text` through the model and hands over the activations of the tensor the SAE reads; nothing
here knows a model. A wrong activation function, layer, scaling or orientation shows in these figures at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import torch
from torch import Tensor

from engine.saes.config import Architecture, SaeConfig
from engine.saes.errors import SaeIncompatible
from engine.saes.sae import Sae

SINK_FACTOR = 5.0
"""Tokens whose norm is above this many medians are attention sinks; a single one would drown all others."""

CHUNK = 256
"""Tokens encoded together."""

L0_TOLERANCE = 2.0
"""How many times more or fewer active features than the source states are still taken for the same thing."""

LOW_VARIANCE = 0.3
"""Below this share of variance explained an SAE hardly describes its layer."""


@dataclass(frozen=True)
class Quality:
    """What was measured over ``n_tokens`` tokens.

    Args:
        l0: Mean number of active features per token.
        variance_explained: 1 − Σ‖x − x̂‖² ÷ Σ‖x − mean‖²; negative when the reconstruction is worse than the mean.
        dead_share: Share of features active on none of the tokens. On a short text most rare features are silent, so
            this is an upper bound.
        n_tokens: Tokens measured.
        n_left_out: Tokens left out as attention sinks or because they held NaN or infinity.
        mean_norm, median_norm: Euclidean norms of the tokens measured.
    """

    l0: float
    variance_explained: float
    dead_share: float
    n_tokens: int
    n_left_out: int
    mean_norm: float
    median_norm: float


def check_text() -> str:
    """The bundled text: about 800 words of plain, varied English in paragraphs."""
    return resources.files("engine.saes").joinpath("data/check_text.txt").read_text(encoding="utf-8")


@torch.no_grad()
def measure(sae: Sae, activations: Tensor) -> Quality:
    """The figures of ``sae`` on ``activations`` [n, d_in], of the tensor it reads.

    Tokens whose norm is over five times the median are left out (see :data:`SINK_FACTOR`). Raises
    :class:`SaeIncompatible` for another width or when no usable token is left.
    """
    if activations.dim() != 2 or activations.shape[1] != sae.config.d_in:
        raise SaeIncompatible(
            f"The SAE reads vectors of width {sae.config.d_in}; these have shape {list(activations.shape)}.",
            details={"d_in": sae.config.d_in, "shape": list(activations.shape)},
        )
    norms = torch.linalg.vector_norm(activations, dim=-1, dtype=torch.float32)
    usable = torch.isfinite(norms)
    if bool(usable.any()):
        usable &= norms <= SINK_FACTOR * norms[usable].median()
    kept, norms = activations[usable], norms[usable]
    if not len(kept) or float(norms.max()) == 0.0:
        raise SaeIncompatible(
            "None of the activations can be measured: they are empty, zero or not finite.",
            details={"n_tokens": len(activations)},
        )
    mean = kept.double().mean(dim=0) if kept.device.type != "mps" else kept.float().mean(dim=0)
    active = torch.zeros(sae.config.d_sae, dtype=torch.bool, device=sae.device)
    count, error, total = 0, 0.0, 0.0
    for part in kept.split(CHUNK):
        f = sae.encode(part)
        x = part.to(mean.dtype)
        x_hat = sae.decode(f, part).to(device=x.device, dtype=mean.dtype)
        count += int((f != 0).sum())
        active |= (f != 0).any(dim=0)
        error += float((x - x_hat).square().sum())
        total += float((x - mean).square().sum())
    return Quality(
        l0=count / len(kept),
        variance_explained=1.0 - error / total if total > 0 else 0.0,
        dead_share=1.0 - float(active.float().mean()),
        n_tokens=len(kept),
        n_left_out=len(activations) - len(kept),
        mean_norm=float(norms.mean()),
        median_norm=float(norms.median()),
    )


def compare_with_source(quality: Quality, config: SaeConfig) -> list[str]:
    """What the figures mean beside the source's own, one sentence each, the most telling first."""
    verdicts = [_variance(quality.variance_explained, config.source_variance_explained), _l0(quality.l0, config)]
    if quality.n_left_out:
        verdicts.append(
            f"{quality.n_left_out} of {quality.n_left_out + quality.n_tokens} tokens were left out as attention sinks."
        )
    return [verdict for verdict in verdicts if verdict]


def _variance(measured: float, stated: float | None) -> str:
    text = f"Variance explained is {measured:.2f} on the bundled text"
    if measured < 0:
        return f"{text}: worse than the mean. Layer, model, scaling or activation function cannot be right."
    if stated is not None:
        if abs(measured - stated) <= 0.15:
            return f"{text}; the source states {stated:.2f}, which fits."
        return f"{text}; the source states {stated:.2f}. Layer, model or scaling may be wrong."
    if measured < LOW_VARIANCE:
        return f"{text}, which is low: the layer, the model or the scaling may be wrong."
    return f"{text}."


def _l0(measured: float, config: SaeConfig) -> str:
    text = f"On average {measured:.1f} features are active per token"
    if config.architecture is Architecture.TOPK:
        return f"{text}, of k = {config.k}."
    stated = config.source_l0
    if stated is None or stated <= 0:
        return f"{text}; the source states no figure to compare with."
    if stated / L0_TOLERANCE <= measured <= stated * L0_TOLERANCE:
        return f"{text}; the source states {stated:g}, which fits."
    way = "more" if measured > stated else "fewer"
    return (
        f"{text}, far {way} than the {stated:g} the source states: the layer or the activation function may be wrong."
    )
