"""Gemma Scope, sparsify and dictionary_learning, from files built by hand; expectations worked out from the tiny SAE."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.saes.config import Architecture, HookKind, SourceFormat
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats import detect, load_sae
from tests.engine.saes.small import (
    B_DEC,
    B_ENC,
    DECODER_WEIGHT,
    ENCODER_WEIGHT,
    LENS,
    THRESHOLD,
    W_DEC,
    W_ENC,
    X,
    write_json,
    write_npz,
    write_safetensors,
)
from tests.engine.saes.sources import (
    LINEAR,
    LOWER,
    SPARSIFY,
    SPARSIFY_CFG,
    dictionary,
    openmoss,
)

# --- Gemma Scope ------------------------------------------------------------------------------------------------------


def test_gemma_scope_reads_everything_else_from_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "gemma-scope-2b-pt-res" / "layer_20" / "width_16k" / "average_l0_71"
    write_npz(folder / "params.npz", {**LENS, "threshold": THRESHOLD})
    detected = detect(folder)
    config = detected.config
    assert detected.format is SourceFormat.GEMMA_SCOPE
    assert (config.architecture, config.layer, config.hook) == (Architecture.JUMPRELU, 20, HookKind.RESID_POST)
    assert config.hook_name == "blocks.20.hook_resid_post"
    assert config.model_name == "google/gemma-2-2b"
    assert config.source_l0 == 71.0
    assert config.metadata == {"width": "16k"}
    assert config.prepend_bos is True
    said = " ".join(config.assumed)
    assert "google/gemma-2-2b was taken from the path" in said
    assert "L0 of 71 was taken from the path" in said
    assert "b_dec is not subtracted" in said
    sae = load_sae(folder)
    assert sae.encode(X).tolist() == [[2.0, 0.0, 0.0]]
    assert sae.reconstruct(X).tolist() == [[2.5, -0.5]]


def test_gemma_scope_from_a_hub_cache_and_from_the_file_itself(tmp_path: Path) -> None:
    folder = tmp_path / "models--google--gemma-scope-9b-it-res" / "snapshots" / "0a1b" / "layer_9" / "width_131k"
    file = write_npz(folder / "average_l0_22" / "params.npz", {**LENS, "threshold": THRESHOLD})
    config = detect(file).config
    assert (config.model_name, config.layer, config.source_l0) == ("google/gemma-2-9b-it", 9, 22.0)


@pytest.mark.parametrize(
    ("repository", "kind"),
    [("gemma-scope-2b-pt-att", HookKind.ATTN_Z), ("gemma-scope-2b-pt-mlp", HookKind.MLP_OUT)],
)
def test_gemma_scope_of_other_sites_is_loaded_but_not_for_steering(
    tmp_path: Path, repository: str, kind: HookKind
) -> None:
    folder = tmp_path / repository / "layer_3" / "width_16k"
    write_npz(folder / "params.npz", {**LENS, "threshold": THRESHOLD})
    config = load_sae(folder).config
    assert config.hook is kind
    assert config.steering_refusal is not None


def test_an_npz_without_a_threshold_is_a_plain_relu_and_says_so(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine" / "params.npz", LENS)
    sae = load_sae(tmp_path / "mine")
    assert sae.config.architecture is Architecture.STANDARD
    assert sae.config.layer is None
    assert "There is no threshold; a plain ReLU was assumed." in sae.config.assumed
    assert "The files do not say which layer the SAE belongs to." in sae.config.assumed
    assert sae.encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_lower_case_names_in_an_npz(tmp_path: Path) -> None:
    renamed = {"w_enc": W_ENC, "w_dec": W_DEC, "b_enc": B_ENC, "b_dec": B_DEC, "threshold": THRESHOLD}
    write_npz(tmp_path / "layer_1" / "params.npz", renamed)
    assert load_sae(tmp_path / "layer_1").encode(X).tolist() == [[2.0, 0.0, 0.0]]


# --- Gemma Scope 2 ----------------------------------------------------------------------------------------------------


def test_gemma_scope_2_by_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "resid_post" / "layer_12_width_16k_l0_medium"
    write_safetensors(folder / "params.safetensors", LOWER)
    cfg = {
        "architecture": "jump_relu",
        "model_name": "google/gemma-3-1b-pt",
        "hf_hook_point_in": "model.layers.12.output",
        "l0": 60,
    }
    write_json(folder / "config.json", cfg)
    detected = detect(folder)
    config = detected.config
    assert detected.format is SourceFormat.GEMMA_SCOPE_2
    assert (config.layer, config.hook, config.hook_name) == (12, HookKind.RESID_POST, "model.layers.12.output")
    assert (config.model_name, config.source_l0) == ("google/gemma-3-1b-pt", 60.0)
    assert load_sae(folder).encode(X).tolist() == [[2.0, 0.0, 0.0]]


def test_gemma_scope_2_without_a_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "gemma-scope-2-270m-pt" / "mlp_out" / "layer_5_width_16k_l0_small"
    write_safetensors(folder / "params.safetensors", LOWER)
    config = detect(folder).config
    assert config.model_name == "google/gemma-3-270m"
    assert (config.layer, config.hook) == (5, HookKind.MLP_OUT)
    assert config.hook_name == "model.layers.5.post_feedforward_layernorm.output"
    assert config.steering_refusal == (
        "It reads the MLP's output (model.layers.5.post_feedforward_layernorm.output), not the residual stream."
    )


# --- sparsify ---------------------------------------------------------------------------------------------------------


def test_sparsify_subtracts_b_dec_and_leaves_w_dec_as_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "sae-llama" / "layers.12"
    write_safetensors(folder / "sae.safetensors", SPARSIFY)
    write_json(folder / "cfg.json", SPARSIFY_CFG)
    write_json(tmp_path / "sae-llama" / "config.json", {"model": "meta-llama/Llama-3.1-8B", "ctx_len": 2048})
    detected = detect(folder)
    config = detected.config
    assert detected.format is SourceFormat.SPARSIFY
    assert (config.architecture, config.k, config.apply_b_dec_to_input) == (Architecture.TOPK, 1, True)
    assert (config.layer, config.hook, config.hook_name) == (12, HookKind.RESID_POST, "layers.12")
    assert (config.model_name, config.context_size) == ("meta-llama/Llama-3.1-8B", 2048)
    sae = load_sae(folder)
    assert sae.encode(X).tolist() == [[0.0, 2.5, 0.0]]
    assert sae.reconstruct(X).tolist() == [[0.5, 4.5]]


def test_sparsify_on_the_mlp_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "layers.3.mlp"
    write_safetensors(folder / "sae.safetensors", SPARSIFY)
    write_json(folder / "cfg.json", {**SPARSIFY_CFG, "num_latents": 0, "expansion_factor": 1})
    with pytest.raises(SaeLoadFailed, match="number of features is 2"):
        detect(folder)
    write_json(folder / "cfg.json", SPARSIFY_CFG)
    assert detect(folder).config.hook is HookKind.MLP_OUT


# --- dictionary_learning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "weights", "architecture", "f"),
    [
        ("AutoEncoder", {**LINEAR, "bias": B_DEC}, Architecture.STANDARD, [1.5, 2.5, 0.0]),
        ("AutoEncoderNew", {**LINEAR, "decoder.bias": B_DEC}, Architecture.STANDARD, [2.0, 2.0, 0.0]),
        (
            "GatedAutoEncoder",
            {
                "encoder.weight": ENCODER_WEIGHT,
                "decoder.weight": DECODER_WEIGHT,
                "decoder_bias": B_DEC,
                "gate_bias": [-3.0, 0.0, 5.0],
                "mag_bias": [1.0, 0.0, -1.0],
                "r_mag": [0.0, math.log(2.0), 0.0],
            },
            Architecture.GATED,
            [0.0, 7.0, 0.0],
        ),
        (
            "AutoEncoderTopK",
            {**LINEAR, "b_dec": B_DEC, "k": torch.tensor(1), "threshold": torch.tensor(0.3)},
            Architecture.TOPK,
            [0.0, 2.5, 0.0],
        ),
        (
            "BatchTopKSAE",
            {**LINEAR, "b_dec": B_DEC, "k": torch.tensor(1), "threshold": torch.tensor(2.0)},
            Architecture.JUMPRELU,
            [0.0, 2.5, 0.0],
        ),
        ("JumpReluAutoEncoder", {**LENS, "threshold": THRESHOLD}, Architecture.JUMPRELU, [2.0, 0.0, 0.0]),
        (
            "MatryoshkaBatchTopKSAE",
            {**LENS, "k": torch.tensor(1), "threshold": torch.tensor(2.0), "group_sizes": torch.tensor([1, 2])},
            Architecture.JUMPRELU,
            [0.0, 2.5, 0.0],
        ),
    ],
)
def test_dictionary_learning_classes(
    tmp_path: Path, name: str, weights: dict[str, Any], architecture: Architecture, f: list[float]
) -> None:
    folder = dictionary(tmp_path / "trainer_0", name, weights, k=1)
    detected = detect(folder)
    config = detected.config
    assert detected.format is SourceFormat.DICTIONARY_LEARNING
    assert (config.architecture, config.layer, config.hook) == (architecture, 12, HookKind.RESID_POST)
    assert (config.model_name, config.context_size) == ("google/gemma-2-2b", 1024)
    sae = load_sae(folder)
    assert sae.encode(X)[0].tolist() == pytest.approx(f)
    assert sae.decoder_row(1).tolist() == [0.0, 2.0]
    assert sae.config.assumed == ()


def test_the_weights_k_wins_and_a_difference_is_said(tmp_path: Path) -> None:
    folder = dictionary(tmp_path, "AutoEncoderTopK", {**LINEAR, "b_dec": B_DEC, "k": torch.tensor(2)}, k=1)
    config = detect(folder).config
    assert config.k == 2
    assert "k is 2 in the weights and 1 in the configuration; the weights' was taken." in config.assumed


def test_a_threshold_that_was_never_set_is_refused(tmp_path: Path) -> None:
    weights = {**LINEAR, "b_dec": B_DEC, "k": torch.tensor(1), "threshold": torch.tensor(-1.0)}
    with pytest.raises(SaeLoadFailed, match="threshold is -1"):
        detect(dictionary(tmp_path, "BatchTopKSAE", weights))


@pytest.mark.parametrize(
    ("number", "named"),
    [
        (torch.tensor([], dtype=torch.long), "a single number belongs"),
        (torch.tensor([3, 4]), "a single number belongs"),
        (torch.tensor(float("nan")), "k is nan"),
        (torch.tensor(float("inf")), "k is inf"),
        (torch.tensor(1.5), "k is 1.5"),
        (torch.tensor(1 + 1j), "no plain number"),
    ],
    ids=str,
)
def test_a_number_in_the_weights_that_is_none(tmp_path: Path, number: torch.Tensor, named: str) -> None:
    with pytest.raises(SaeLoadFailed, match=named):
        detect(dictionary(tmp_path, "AutoEncoderTopK", {**LINEAR, "b_dec": B_DEC, "k": number}))


def test_a_threshold_of_complex_numbers(tmp_path: Path) -> None:
    weights = {**LINEAR, "b_dec": B_DEC, "threshold": torch.tensor(1 + 1j)}
    with pytest.raises(SaeLoadFailed, match=r"threshold as torch\.complex64, which is no plain number"):
        detect(dictionary(tmp_path, "BatchTopKSAE", weights))


def test_a_threshold_beyond_single_precision(tmp_path: Path) -> None:
    with pytest.raises(SaeLoadFailed, match=r"threshold"):
        load_sae(openmoss(tmp_path, act_fn="topk", jump_relu_threshold=1e300))


def test_an_archive_of_texts(tmp_path: Path) -> None:
    arrays = {name: np.array(values, dtype=np.float32) for name, values in {**LENS, "threshold": THRESHOLD}.items()}
    np.savez(tmp_path / "params.npz", **{**arrays, "threshold": np.array(["a", "b", "c"])})
    with pytest.raises(SaeLoadFailed, match="threshold as str32, not as floating-point numbers"):
        load_sae(tmp_path)


def test_a_layer_without_a_submodule_is_assumed_to_be_the_residual_stream(tmp_path: Path) -> None:
    folder = dictionary(tmp_path / "x", "AutoEncoder", {**LINEAR, "bias": B_DEC}, submodule_name=None)
    config = detect(folder).config
    assert (config.layer, config.hook) == (12, HookKind.RESID_POST)
    assert config.assumed == (
        "Only the layer is stated; that the residual stream after the block is read was assumed.",
    )


def test_a_submodule_that_is_not_the_residual_stream(tmp_path: Path) -> None:
    folder = dictionary(tmp_path, "AutoEncoder", {**LINEAR, "bias": B_DEC}, submodule_name="mlp_out_layer_12")
    assert detect(folder).config.hook is HookKind.MLP_OUT
