"""What the window's probe works with: SAEs of random features as folders, and documents over them.

What a feature means does not matter here; how large the files are does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

FEATURES = 3072
MEMBERS = 18
"""Features of the cluster; the circuit has a third of them on each layer."""


@dataclass(frozen=True)
class Stage:
    """Folders of SAEs, each for a layer of its own, and files of documents."""

    saes: tuple[Path, ...]
    documents: tuple[Path, ...]

    @classmethod
    def at(cls, folder: Path) -> Stage:
        """What :func:`build` has put into ``folder``."""
        return cls(tuple(sorted(folder.glob("sae-*"))), tuple(sorted(folder.glob("*.json"))))


def build(folder: Path, checkpoint: Path) -> None:
    """Write SAEs for three layers of ``checkpoint``, a cluster and a circuit into ``folder``."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    d_model, n_layers = config["hidden_size"], config["num_hidden_layers"]
    layers = (n_layers // 3, n_layers // 2, 2 * n_layers // 3)
    for layer in layers:
        _write_sae(folder / f"sae-{layer:02}", layer, d_model)
    references = [
        {
            "mistudio_sae_id": f"sae-{layer:02}--layer_{layer}",
            "layer": layer,
            "n_features": FEATURES,
            "d_model": d_model,
        }
        for layer in layers
    ]
    budget = {"intensity": 1.0, "intensity_range": [0.0, 2.0]}
    cluster = {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": "Measured cluster",
        "sae": references[0],
        "members": [_member(index) for index in range(MEMBERS)],
        "budget": budget,
    }
    share = MEMBERS // len(layers)
    circuit = {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": "Measured circuit",
        "saes": references,
        "members": [
            {"layer": layer, "member_kind": "feature_ref", "feature": _member(index)}
            for layer in layers
            for index in range(share)
        ],
        "edges": [
            {"up": {"layer": low, "feature_idx": index}, "down": {"layer": high, "feature_idx": index}, "rung": 1}
            for low, high in pairwise(layers)
            for index in range(share)
        ],
        "budget": budget,
    }
    for name, document in (("one.cluster.json", cluster), ("two.circuit.json", circuit)):
        (folder / name).write_text(json.dumps(document), encoding="utf-8")


def _member(index: int) -> dict[str, Any]:
    return {"feature_idx": index, "label": f"made up, number {index}", "strength": 0.5, "sign": 1}


def _write_sae(folder: Path, layer: int, d_model: int) -> None:
    import torch
    from safetensors.torch import save_file

    draw = torch.Generator().manual_seed(layer)
    rows = torch.nn.functional.normalize(torch.randn(FEATURES, d_model, generator=draw), dim=1)
    weights = {
        "W_enc": rows.T.contiguous(),
        "W_dec": rows,
        "b_enc": torch.zeros(FEATURES),
        "b_dec": torch.zeros(d_model),
    }
    config = {
        "architecture": "topk",
        "k": 32,
        "d_in": d_model,
        "d_sae": FEATURES,
        "dtype": "bfloat16",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "metadata": {"hook_name": f"blocks.{layer}.hook_resid_post"},
    }
    folder.mkdir()
    (folder / "cfg.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({name: value.bfloat16() for name, value in weights.items()}, folder / "sae_weights.safetensors")
