"""Small SAEs in SAELens layout, made on the spot for the tiny models of ``tests.tiny`` (width 32, layers 0 to 3).

Weights come from a fixed seed, so figures and texts are repeatable. Used by every test that attaches an SAE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

D_IN = 32
D_SAE = 64
ARCHITECTURES = ("standard", "gated", "jumprelu", "topk")


def make_sae(
    folder: Path,
    *,
    architecture: str = "standard",
    layer: int | None = 1,
    d_in: int = D_IN,
    d_sae: int = D_SAE,
    k: int = 8,
    seed: int = 0,
    dtype: str = "float32",
    model_name: str | None = None,
    hook_name: str | None = None,
    **cfg: Any,
) -> Path:
    """Write an SAE of random features (decoder rows of length 1, the encoder their transpose) and return ``folder``.

    ``layer`` becomes ``blocks.N.hook_resid_post`` unless ``hook_name`` says otherwise; None leaves the hook out.
    ``cfg`` replaces or adds keys of ``cfg.json``.
    """
    import torch

    if architecture not in ARCHITECTURES:
        raise ValueError(f"no made-up SAE of the architecture {architecture!r}")
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(d_sae, d_in, generator=generator)
    rows = rows / rows.norm(dim=1, keepdim=True)
    weights: dict[str, Tensor] = {"W_enc": rows.T, "W_dec": rows, "b_dec": 0.1 * torch.ones(d_in)}
    if architecture == "gated":
        zeros = torch.zeros(d_sae)
        weights |= {"b_gate": zeros - 0.2, "b_mag": zeros, "r_mag": zeros + 0.1}
    else:
        weights["b_enc"] = torch.zeros(d_sae) - 0.1
    if architecture == "jumprelu":
        weights["threshold"] = torch.full((d_sae,), 0.5)
    extra = {"k": k} if architecture == "topk" else {}
    return write_sae(
        folder,
        weights,
        architecture=architecture,
        hook_name=hook_name or (None if layer is None else f"blocks.{layer}.hook_resid_post"),
        dtype=dtype,
        model_name=model_name,
        **extra,
        **cfg,
    )


def make_mirror_sae(folder: Path, *, layer: int = 1, d_in: int = D_IN, scale: float = 1.0, **cfg: Any) -> Path:
    """Write an SAE that loses nothing: feature i is coordinate i where it is positive, feature d_in + i where negative.

    Decoder rows are unit vectors (times ``scale``, which the encoder takes back), so a strength of s on feature i adds
    s × ``scale`` to coordinate i. Every token has one active feature per coordinate that is not exactly 0.
    """
    import torch

    identity = torch.eye(d_in)
    decoder = torch.cat([identity, -identity]) * scale
    weights = {
        "W_enc": torch.cat([identity, -identity]).T / scale,
        "W_dec": decoder,
        "b_enc": torch.zeros(2 * d_in),
        "b_dec": torch.zeros(d_in),
    }
    return write_sae(
        folder,
        weights,
        architecture="standard",
        hook_name=f"blocks.{layer}.hook_resid_post",
        **{"apply_b_dec_to_input": False, **cfg},
    )


def write_sae(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    *,
    architecture: str,
    hook_name: str | None,
    dtype: str = "float32",
    model_name: str | None = None,
    **cfg: Any,
) -> Path:
    """Write ``weights`` and their ``cfg.json`` as SAELens 6 lays them out, and return ``folder``."""
    import torch
    from safetensors.torch import save_file

    d_sae, d_in = weights["W_dec"].shape
    metadata = {"sae_lens_version": "6.5.0", "hook_name": hook_name, "model_name": model_name}
    config = {
        "architecture": architecture,
        "d_in": d_in,
        "d_sae": d_sae,
        "dtype": dtype,
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "metadata": {name: value for name, value in metadata.items() if value is not None},
        **cfg,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cfg.json").write_text(json.dumps(config), encoding="utf-8")
    stored = {name: value.to(getattr(torch, dtype)).contiguous().clone() for name, value in weights.items()}
    save_file(stored, folder / "sae_weights.safetensors")
    return folder
