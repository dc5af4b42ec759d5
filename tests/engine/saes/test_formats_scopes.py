"""Llama Scope, OpenMOSS, Qwen Scope, Goodfire and OpenAI, from files built by hand; expectations worked out likewise."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from engine.saes.config import Architecture, HookKind, NormalizeActivations, SourceFormat
from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed
from engine.saes.formats import detect, load_sae
from tests.engine.saes.small import (
    B_DEC,
    B_ENC,
    DECODER_WEIGHT,
    ENCODER_WEIGHT,
    W_DEC,
    W_ENC,
    X,
    write_torch,
)
from tests.engine.saes.sources import (
    MOSS,
    llama_scope,
    openmoss,
)

# --- Llama Scope, OpenMOSS --------------------------------------------------------------------------------------------


def test_llama_scope_scales_encoder_and_threshold_and_decodes_back(tmp_path: Path) -> None:
    folder = llama_scope(tmp_path / "Llama3_1-8B-Base-L8R-8x")
    detected = detect(folder)
    assert detected.format is SourceFormat.LLAMA_SCOPE
    assert detected.folder == folder
    assert (detected.config.layer, detected.config.source_l0) == (8, 50.0)
    assert detected.config.model_name == "meta-llama/Llama-3.1-8B"
    assert detected.config.metadata["norm_scaling_factor"] == pytest.approx(2.0)
    sae = load_sae(folder)
    # 2·[2, 3, −1] + b_enc = [4, 5, −1.5]; the threshold is 2.
    assert sae.encode(X)[0].tolist() == pytest.approx([4.0, 5.0, 0.0])
    assert sae.encode(torch.tensor([[0.9, 1.6]]))[0].tolist() == pytest.approx([0.0, 2.2, 0.0])
    # Halved: 2·[1, 0] + 2.5·[0, 2] + [0.25, −0.25].
    assert sae.reconstruct(X)[0].tolist() == pytest.approx([2.25, 4.75])
    assert sae.decoder_row(1).tolist() == [0.0, 2.0]


def test_llama_scope_thresholds_may_count_the_decoders_norm(tmp_path: Path) -> None:
    sae = load_sae(llama_scope(tmp_path / "sae", sparsity_include_decoder_norm=True))
    assert sae.tensors["threshold"].tolist() == pytest.approx([2.0, 1.0, 2.0 * math.sqrt(2.0)])
    assert any("Thresholds were divided" in line for line in sae.config.assumed)


def test_llama_scope_from_its_weight_file(tmp_path: Path) -> None:
    folder = llama_scope(tmp_path / "sae")
    assert detect(folder / "checkpoints" / "final.safetensors").folder == folder


def test_openmoss_has_saelens_file_name_and_other_tensors(tmp_path: Path) -> None:
    folder = openmoss(tmp_path / "L15R")
    detected = detect(folder)
    config = detected.config
    assert detected.format is SourceFormat.OPENMOSS
    assert (config.architecture, config.layer, config.hook) == (Architecture.JUMPRELU, 15, HookKind.RESID_POST)
    sae = load_sae(folder)
    # 2·[2, 3, −1] + b_enc = [4, 5, −1.5] against thresholds [1, 5.5, 1].
    assert sae.encode(X)[0].tolist() == pytest.approx([4.0, 0.0, 0.0])
    assert sae.reconstruct(X)[0].tolist() == pytest.approx([2.25, -0.25])


def test_openmoss_for_inference_has_its_scaling_folded(tmp_path: Path) -> None:
    sae = load_sae(openmoss(tmp_path, MOSS, norm_activation="inference", act_fn="relu"))
    assert sae.encode(X).tolist() == [[2.0, 2.0, 0.0]]
    assert "feature_scale" not in sae.tensors


def test_openmoss_per_token_norms_and_newer_names(tmp_path: Path) -> None:
    weights = {"W_E": W_ENC, "b_E": B_ENC, "W_D": W_DEC, "b_D": B_DEC}
    folder = openmoss(tmp_path, weights, norm_activation="token-wise", act_fn="topk", top_k=2)
    config = detect(folder).config
    assert config.normalize_activations is NormalizeActivations.CONSTANT_NORM_RESCALE
    assert (config.architecture, config.k) == (Architecture.TOPK, 2)
    assert load_sae(folder).W_enc.tolist() == W_ENC


@pytest.mark.parametrize("norm", [0.0, math.inf, 1e30])
def test_a_mean_norm_that_cannot_be_is_refused(tmp_path: Path, norm: float) -> None:
    key = "dataset_average_activation_norm.blocks.15.hook_resid_post"
    weights = {**MOSS, "log_jumprelu_threshold": [0.0, 0.0, 0.0], key: torch.tensor(norm)}
    with pytest.raises(SaeLoadFailed, match="which cannot be"):
        detect(openmoss(tmp_path, weights))


# --- Qwen Scope, Goodfire, OpenAI -------------------------------------------------------------------------------------


def test_qwen_scope_takes_k_from_the_repository(tmp_path: Path) -> None:
    weights = {"W_enc": ENCODER_WEIGHT, "W_dec": DECODER_WEIGHT, "b_enc": B_ENC, "b_dec": B_DEC}
    folder = tmp_path / "SAE-Res-Qwen3-1.7B-Base-W32K-L0_1"
    file = write_torch(folder / "layer7.sae.pt", weights)
    config = detect(file).config
    assert (config.source_format, config.architecture, config.k) == (SourceFormat.QWEN_SCOPE, Architecture.TOPK, 1)
    assert (config.layer, config.model_name) == (7, "Qwen/Qwen3-1.7B-Base")
    assert load_sae(file).encode(torch.tensor([[3.0, 3.0]])).tolist() == [[3.0, 0.0, 0.0]]
    other = write_torch(tmp_path / "elsewhere" / "layer7.sae.pt", weights)
    with pytest.raises(SaeFormatUnknown, match="only in its repository's name"):
        detect(other)


def test_goodfire(tmp_path: Path) -> None:
    weights = {
        "encoder_linear.weight": ENCODER_WEIGHT,
        "encoder_linear.bias": B_ENC,
        "decoder_linear.weight": DECODER_WEIGHT,
        "decoder_linear.bias": B_DEC,
    }
    file = write_torch(tmp_path / "Llama-3.1-8B-Instruct-SAE-l19.pth", weights)
    config = detect(file).config
    assert (config.source_format, config.layer) == (SourceFormat.GOODFIRE, 19)
    assert config.model_name == "meta-llama/Llama-3.1-8B-Instruct"
    assert load_sae(file).encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_openai_topk_means_layer_normed_inputs(tmp_path: Path) -> None:
    weights = {
        "pre_bias": B_DEC,
        "latent_bias": B_ENC,
        "encoder.weight": ENCODER_WEIGHT,
        "decoder.weight": DECODER_WEIGHT,
        "activation": "TopK",
        "activation_state_dict": {"k": 2, "postact_fn": "ReLU"},
    }
    config = detect(write_torch(tmp_path / "layer_6.pt", weights)).config
    assert (config.source_format, config.k, config.layer) == (SourceFormat.OPENAI, 2, 6)
    assert config.normalize_activations is NormalizeActivations.LAYER_NORM
    file = write_torch(tmp_path / "relu" / "layer_6.pt", {**weights, "activation": "ReLU"})
    assert load_sae(file).encode(X).tolist() == [[1.5, 2.5, 0.0]]
