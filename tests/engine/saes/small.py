"""One tiny SAE with numbers that can be worked out by hand, and writers for the containers sources use.

Width 2, 3 features. For x = [2, 3] without subtracting b_dec: x·W_enc = [2, 3, −1] and h = [2, 2, −0.5].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

W_ENC = [[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]
W_DEC = [[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]]
B_ENC = [0.0, -1.0, 0.5]
B_DEC = [0.5, -0.5]
THRESHOLD = [1.0, 2.5, 0.0]

LENS: Mapping[str, Any] = {"W_enc": W_ENC, "W_dec": W_DEC, "b_enc": B_ENC, "b_dec": B_DEC}
"""The four tensors as SAELens names and lays them."""

CFG: Mapping[str, Any] = {
    "architecture": "standard",
    "d_in": 2,
    "d_sae": 3,
    "dtype": "float32",
    "apply_b_dec_to_input": False,
    "normalize_activations": "none",
    "metadata": {"sae_lens_version": "6.5.0", "hook_name": "blocks.4.hook_resid_post", "model_name": "gpt2"},
}
"""A SAELens configuration for them."""

ENCODER_WEIGHT = [[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]
"""``W_ENC`` as a linear layer keeps it: [features, width]."""

DECODER_WEIGHT = [[1.0, 0.0, 0.5], [0.0, 2.0, 0.5]]
"""``W_DEC`` as a linear layer keeps it: [width, features]."""

X = torch.tensor([[2.0, 3.0]])


def tensors(values: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Lists as tensors; tensors stay what they are."""
    return {
        name: value if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype) for name, value in values.items()
    }


def write_json(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def write_safetensors(path: Path, values: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors(values, dtype).items()}, path)
    return path


def write_torch(path: Path, values: Mapping[str, Any]) -> Path:
    """Lists become tensors; all else (tensors, numbers, strings, dicts) is stored as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {name: torch.tensor(value) if isinstance(value, list) else value for name, value in values.items()}, path
    )
    return path


def write_npz(path: Path, values: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: np.array(value, dtype=np.float32) for name, value in values.items()})
    return path


def lens_folder(folder: Path, cfg: Mapping[str, Any] | None = None, weights: Mapping[str, Any] | None = None) -> Path:
    """A SAELens folder of the tiny SAE; ``cfg`` and ``weights`` replace or add keys, None as a value removes one."""
    merged = {**CFG, **(cfg or {})}
    write_json(folder / "cfg.json", {name: value for name, value in merged.items() if value is not None})
    kept = {name: value for name, value in {**LENS, **(weights or {})}.items() if value is not None}
    write_safetensors(folder / "sae_weights.safetensors", kept)
    return folder
