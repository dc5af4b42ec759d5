"""Folders of the other sources, built by hand from the tiny SAE's numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from tests.engine.saes.small import (
    B_DEC,
    B_ENC,
    DECODER_WEIGHT,
    ENCODER_WEIGHT,
    THRESHOLD,
    W_DEC,
    W_ENC,
    write_json,
    write_safetensors,
    write_torch,
)

LINEAR = {"encoder.weight": ENCODER_WEIGHT, "encoder.bias": B_ENC, "decoder.weight": DECODER_WEIGHT}


LOWER = {"w_enc": W_ENC, "w_dec": W_DEC, "b_enc": B_ENC, "b_dec": B_DEC, "threshold": THRESHOLD}


SPARSIFY = {"encoder.weight": ENCODER_WEIGHT, "encoder.bias": B_ENC, "W_dec": W_DEC, "b_dec": B_DEC}
SPARSIFY_CFG: dict[str, Any] = {
    "activation": "topk",
    "expansion_factor": 1,
    "normalize_decoder": True,
    "num_latents": 3,
    "k": 1,
    "multi_topk": False,
    "skip_connection": False,
    "transcode": False,
    "d_in": 2,
}


def dictionary(folder: Path, name: str, weights: dict[str, Any], **trainer: Any) -> Path:
    settings = {"dict_class": name, "activation_dim": 2, "dict_size": 3, "layer": 12, "lm_name": "google/gemma-2-2b"}
    write_torch(folder / "ae.pt", weights)
    write_json(
        folder / "config.json",
        {
            "trainer": {**settings, "submodule_name": "resid_post_layer_12", **trainer},
            "buffer": {"ctx_len": 1024},
        },
    )
    return folder


MOSS = {**LINEAR, "decoder.bias": B_DEC}
# √2 ÷ 0.70710678 = 2: inputs were doubled in training.
HYPERPARAMS: dict[str, Any] = {
    "d_model": 2,
    "d_sae": 3,
    "hook_point_in": "blocks.8.hook_resid_post",
    "hook_point_out": "blocks.8.hook_resid_post",
    "act_fn": "jumprelu",
    "jump_relu_threshold": 1.0,
    "dataset_average_activation_norm": {"in": math.sqrt(2) / 2, "out": math.sqrt(2) / 2},
    "top_k": 50,
}


def llama_scope(folder: Path, **settings: Any) -> Path:
    write_safetensors(folder / "checkpoints" / "final.safetensors", MOSS)
    write_json(folder / "hyperparams.json", {**HYPERPARAMS, **settings})
    return folder


def openmoss(folder: Path, weights: dict[str, Any] | None = None, **settings: Any) -> Path:
    config = {
        "sae_type": "sae",
        "hook_point_in": "blocks.15.hook_resid_post",
        "hook_point_out": "blocks.15.hook_resid_post",
        "d_model": 2,
        "act_fn": "jumprelu",
        "norm_activation": "dataset-wise",
        "sparsity_include_decoder_norm": False,
        "use_decoder_bias": True,
    }
    norm = {"dataset_average_activation_norm.blocks.15.hook_resid_post": torch.tensor(math.sqrt(2) / 2)}
    own = {**MOSS, "log_jumprelu_threshold": [math.log(1.0), math.log(5.5), math.log(1.0)], **norm}
    write_safetensors(folder / "sae_weights.safetensors", own if weights is None else weights)
    write_json(folder / "config.json", {**config, **settings})
    return folder
