"""Documents that tests start from. Each call gives a fresh copy; values are made up."""

from __future__ import annotations

import json
from typing import Any


def cluster(**changes: Any) -> dict[str, Any]:
    """A cluster with unknown keys at every level."""
    document: dict[str, Any] = {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": "Harbour",
        "narrative": "Words of the sea.",
        "display_token": "quay",
        "model": {"hf_id": "acme/tiny-1b", "x_model": [1, {"deep": None}]},
        "sae": {
            "mistudio_sae_id": "sae_77aa",
            "layer": 9,
            "hook_type": "residual",
            "n_features": 16384,
            "d_model": 2048,
            "source_hint": "hf:acme/tiny-saes/l9",
            "x_sae": True,
        },
        "members": [
            {
                "feature_idx": 310,
                "label": "ships",
                "max_activation": 4.2,
                "activation_frequency": 0.03,
                "strength": 12.5,
                "sign": 1,
                "pinned": True,
                "meta": {"category": "topic", "top_tokens": ["boat", "quay"], "x_meta": {"a/b": "~"}},
                "x_member": 1e3,
            },
            {"feature_idx": 911, "label": "inland", "strength": -6.0, "sign": -1},
            {"feature_idx": 5, "strength": 4, "sign": -1},
        ],
        "budget": {
            "B": 18.5,
            "B_dir": 12.5,
            "formula_id": "demo@1",
            "constants": {"a": 2.0},
            "intensity": 0.75,
            "intensity_range": [0.25, 1.75],
            "x_budget": "kept",
        },
        "provenance": {"exported_at": "2026-05-01T09:00:00Z", "source_note": "demo", "x_prov": []},
        "sensing": {"epsilon": 0.2},
        "x_top": {"nested": {"deeper": [False, None, "ü"]}},
    }
    return {**document, **changes}


def circuit(**changes: Any) -> dict[str, Any]:
    """A circuit over layers 6 and 11 whose one edge is at rung 2."""
    document: dict[str, Any] = {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": "question → hedge",
        "narrative": "Questions make the answer careful.",
        "model": {"hf_id": "acme/tiny-1b"},
        "saes": [
            {"mistudio_sae_id": "sae_a", "layer": 6, "n_features": 8192, "d_model": 2048, "x_sae": "six"},
            {"mistudio_sae_id": "sae_b", "layer": 11, "n_features": 8192, "d_model": 2048},
        ],
        "members": [
            {
                "layer": 6,
                "member_kind": "feature_ref",
                "feature": {"feature_idx": 17, "label": "question", "strength": 9.0, "sign": 1, "x_member": [1]},
            },
            {
                "layer": 11,
                "member_kind": "cluster_ref",
                "cluster_name": "hedging",
                "expanded_members": [
                    {"feature_idx": 40, "strength": 5.0, "sign": 1},
                    {"feature_idx": 41, "strength": -2.0, "sign": -1},
                ],
            },
        ],
        "edges": [
            {
                "up": {"layer": 6, "kind": "feature", "feature_idx": 17},
                "down": {"layer": 11, "kind": "feature", "feature_idx": 40},
                "type": "computed",
                "rung": 2,
                "effect_size": 0.33,
                "weight_prior": 0.2,
                "x_edge": {"y": 1},
            }
        ],
        "budget": {
            "layers": {"6": {"B_dir": 9.0}, "11": {"B_dir": 5.0, "constants": {"a": 1}}},
            "intensity": 0.8,
            "intensity_range": [0.2, 1.4],
        },
        "x_top": None,
    }
    return {**document, **changes}


def profile(**changes: Any) -> dict[str, Any]:
    """A profile in the flat shape."""
    document: dict[str, Any] = {
        "version": "1.0",
        "name": "calm",
        "description": "Slow and friendly.",
        "model_id": "tiny-1b",
        "sae_id": "acme--saes--layer_9",
        "layer": 9,
        "steering": {"7": 1.5, "42": -3},
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:05Z",
    }
    return {**document, **changes}


def encoded(document: object) -> bytes:
    """The document as an import gets it. NaN is written as Python writes it."""
    return json.dumps(document, ensure_ascii=False).encode()
