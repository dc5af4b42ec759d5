"""From a path to an SAE: detect, read the values, and set the layer where the caller knows better."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from engine.saes.config import SaeConfig
from engine.saes.formats.detection import Detected, detect
from engine.saes.formats.materialize import materialize
from engine.saes.sae import Sae


def load_sae(
    path: Path,
    *,
    layer: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Sae:
    """The SAE at ``path``, its weights in ``dtype`` (None: as stored) on ``device``.

    ``layer`` is the block whose output it is to read, where the files do not say or say otherwise; a difference is
    noted among what was assumed. Raises the errors of :func:`detect`, and :class:`SaeLoadFailed` for values that are
    missing, not finite, or lie in an order that cannot be told.
    """
    return load_detected(detect(path), layer=layer, device=device, dtype=dtype)


def load_detected(
    detected: Detected,
    *,
    layer: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Sae:
    """:func:`load_sae` for what :func:`detect` has already found."""
    sae = materialize(detected.draft, detected.weights, device=torch.device(device), dtype=dtype)
    if layer is None or layer == sae.config.layer:
        return sae
    return sae.with_config(_on_layer(sae.config, layer))


def _on_layer(config: SaeConfig, layer: int) -> SaeConfig:
    stated = "do not say one" if config.layer is None else f"say {config.layer}"
    note = f"Layer {layer} was given by hand; the files {stated}."
    return replace(config, layer=layer, assumed=(*config.assumed, note))
