"""SAEs saved from inside a wrapper (compiled, data-parallel, a trainer's module): read as if they had been saved bare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.saes.formats.detection import detect
from engine.saes.formats.loading import load_sae
from tests.engine.saes.small import (
    B_DEC,
    CFG,
    LENS,
    THRESHOLD,
    X,
    write_json,
    write_npz,
    write_safetensors,
    write_torch,
)
from tests.engine.saes.sources import LINEAR, LOWER, SPARSIFY, SPARSIFY_CFG, dictionary, llama_scope, openmoss


def topk(folder: Path) -> Path:
    return dictionary(folder, "AutoEncoderTopK", {**LINEAR, "b_dec": B_DEC, "k": torch.tensor(2)}, k=2)


def gated(folder: Path) -> Path:
    plain = {"decoder_bias": B_DEC, "gate_bias": [0.1] * 3, "mag_bias": [0.2] * 3, "r_mag": [0.0] * 3}
    weights = {name: value for name, value in LINEAR.items() if name != "encoder.bias"}
    return dictionary(folder, "GatedAutoEncoder", {**weights, **plain})


def saelens(folder: Path) -> Path:
    write_safetensors(folder / "sae_weights.safetensors", LENS)
    write_json(folder / "cfg.json", CFG)
    return folder


def sparsify(folder: Path) -> Path:
    write_safetensors(folder / "layers.10" / "sae.safetensors", SPARSIFY)
    write_json(folder / "layers.10" / "cfg.json", SPARSIFY_CFG)
    return folder / "layers.10"


def gemma_scope(folder: Path) -> Path:
    return write_npz(folder / "layer_1" / "params.npz", {**LENS, "threshold": THRESHOLD}).parent


def gemma_scope_2(folder: Path) -> Path:
    return write_safetensors(folder / "layer_1_width_16k" / "params.safetensors", LOWER).parent


def goodfire(folder: Path) -> Path:
    names = {"encoder.weight": "encoder_linear.weight", "encoder.bias": "encoder_linear.bias"}
    weights = {names.get(name, "decoder_linear.weight"): value for name, value in LINEAR.items()}
    return write_torch(folder / "Llama-3.1-8B-Instruct-SAE-l19.pth", {**weights, "decoder_linear.bias": B_DEC}).parent


def openai(folder: Path) -> Path:
    weights = {"encoder.weight": LINEAR["encoder.weight"], "decoder.weight": LINEAR["decoder.weight"]}
    biases = {"pre_bias": B_DEC, "latent_bias": LINEAR["encoder.bias"]}
    return write_torch(folder / "layer_6.pt", {**weights, **biases, "activation": "ReLU"}).parent


MADE = [topk, gated, saelens, sparsify, gemma_scope, gemma_scope_2, goodfire, openai, openmoss, llama_scope]

WRAPPINGS: dict[str, Callable[[str], str]] = {
    "compiled": lambda name: f"_orig_mod.{name}",
    "parallel": lambda name: f"module.{name}",
    "compiled in parallel": lambda name: f"module._orig_mod.{name}",
    "parallel in compiled": lambda name: f"_orig_mod.module.{name}",
    "a trainer's": lambda name: f"model.{name}",
    "twice": lambda name: f"_orig_mod._orig_mod.{name}",
    "sharded": lambda name: f"_fsdp_wrapped_module.{name}",
    "compiled parts": lambda name: name.replace(".", "._orig_mod.", 1),
}


def wrap(folder: Path, rename: Callable[[str], str]) -> None:
    """Write the weights in ``folder`` once more, under other names."""
    for file in [path for path in folder.rglob("*") if path.suffix in {".pt", ".pth", ".safetensors", ".npz"}]:
        content: dict[str, Any]
        if file.suffix == ".safetensors":
            content = load_file(file)
            save_file({rename(name): value for name, value in content.items()}, file)
        elif file.suffix == ".npz":
            content = dict(np.load(file))
            np.savez(file, **{rename(name): value for name, value in content.items()})
        else:
            content = torch.load(file)
            torch.save({rename(name): value for name, value in content.items()}, file)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("made", MADE)
def test_a_wrapped_sae_is_the_bare_one(tmp_path: Path, made: Callable[[Path], Path], wrapping: str) -> None:
    folder = made(tmp_path)
    bare, values = detect(folder), load_sae(folder).encode(X)
    wrap(folder, WRAPPINGS[wrapping])
    found = detect(folder)
    assert (found.format, found.config) == (bare.format, bare.config)
    assert torch.equal(load_sae(folder).encode(X), values)


def test_names_that_would_meet_stay_as_they_are(tmp_path: Path) -> None:
    from engine.saes.formats.weights import open_weights

    both = {"W_enc": [1.0], "_orig_mod.W_enc": [2.0]}
    assert set(open_weights(write_safetensors(tmp_path / "a.safetensors", both)).tensors) == set(both)
    some = {"module.W_enc": [1.0], "b_dec": [2.0]}
    assert set(open_weights(write_safetensors(tmp_path / "b.safetensors", some)).tensors) == set(some)
