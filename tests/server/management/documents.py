"""Documents that fit the two made-up SAEs ``a`` (layer 1) and ``b`` (layer 2), 64 features each. Fresh copies."""

from __future__ import annotations

from typing import Any


def cluster(**changes: Any) -> dict[str, Any]:
    """Two features of ``a``; its dial goes from 0.25 to 1.75."""
    return {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": "Harbour",
        "narrative": "Words of the sea.",
        "display_token": "quay",
        "sae": {"mistudio_sae_id": "a", "layer": 1, "n_features": 64, "d_model": 32},
        "members": [
            {"feature_idx": 3, "label": "ships", "strength": 4.0},
            {"feature_idx": 5, "strength": -6.0, "sign": -1},
        ],
        "budget": {"B": 10.0, "formula_id": "demo@1", "intensity": 1.0, "intensity_range": [0.25, 1.75]},
        "x_own": {"kept": [1, 2.5, None, "ü"]},
        **changes,
    }


def bundle(*definitions: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "mistudio.cluster-bundle", "schema_version": "1", "definitions": list(definitions)}


def circuit(
    name: str = "question → hedge", *, rung: int = 2, features: tuple[int, int] = (17, 40), **changes: Any
) -> dict[str, Any]:
    """One feature on each of both layers and an edge between them."""
    up, down = features
    return {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": name,
        "narrative": "Questions make the answer careful.",
        "saes": [
            {"mistudio_sae_id": "a", "layer": 1, "n_features": 64, "d_model": 32},
            {"mistudio_sae_id": "b", "layer": 2, "n_features": 64, "d_model": 32},
        ],
        "members": [
            {"layer": 1, "feature": {"feature_idx": up, "label": "question", "strength": 9.0, "sign": 1}},
            {"layer": 2, "feature": {"feature_idx": down, "strength": 5.0, "sign": -1}},
        ],
        "edges": [
            {
                "up": {"layer": 1, "kind": "feature", "feature_idx": up},
                "down": {"layer": 2, "kind": "feature", "feature_idx": down},
                "type": "computed",
                "rung": rung,
                "effect_size": 0.33,
            }
        ],
        "budget": {"intensity": 0.5, "intensity_range": [0.2, 1.4]},
        "x_own": {"kept": None},
        **changes,
    }
