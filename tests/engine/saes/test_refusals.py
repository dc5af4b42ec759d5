"""What is recognised and refused by name: transcoders and their kin, options that cannot be honoured, other hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.saes.errors import SaeLoadFailed, SaeNotSteerable
from engine.saes.formats import detect, load_sae
from tests.engine.saes.small import (
    B_DEC,
    B_ENC,
    CFG,
    LENS,
    lens_folder,
    write_json,
    write_npz,
    write_safetensors,
    write_torch,
)
from tests.engine.saes.sources import (
    LINEAR,
    LOWER,
    MOSS,
    SPARSIFY,
    SPARSIFY_CFG,
    dictionary,
    llama_scope,
    openmoss,
)


@pytest.mark.parametrize(
    ("cfg", "weights", "named"),
    [
        ({"architecture": "transcoder", "d_out": 2}, {}, "a transcoder"),
        ({"architecture": "jumprelu_transcoder", "d_out": 2}, {}, "a transcoder"),
        ({"architecture": "skip_transcoder"}, {}, "a skip transcoder"),
        ({"architecture": "jumprelu_skip_transcoder"}, {}, "a skip transcoder"),
        ({}, {"W_skip": [[1.0, 0.0], [0.0, 1.0]]}, "a skip transcoder"),
        ({"d_out": 2}, {}, "a transcoder"),
        (
            {"metadata": {"hook_name": "blocks.1.ln2.hook_normalized", "hook_name_out": "blocks.1.hook_mlp_out"}},
            {},
            "a transcoder",
        ),
        ({"architecture": "temporal"}, {}, "a temporal SAE"),
        ({"architecture": "matching_pursuit"}, {}, "a matching-pursuit SAE"),
        ({"architecture": "abstopk", "k": 1}, {}, "an abs-top-k SAE"),
        ({"architecture": "crosscoder"}, {}, "a crosscoder"),
        ({"architecture": "cross_layer_transcoder"}, {}, "a cross-layer transcoder"),
        ({"architecture": "batchtopk", "k": 1}, {}, "the training state of a batchtopk SAE"),
        ({"architecture": "matryoshka_batchtopk", "k": 1}, {}, "the training state of a matryoshka_batchtopk SAE"),
        ({"activation_fn": "tanh-relu"}, {}, "activation function 'tanh-relu'"),
        ({"normalize_activations": "covariance_whitening"}, {}, "unfolded covariance_whitening"),
        ({"normalize_activations": "constant_scalar_rescale"}, {}, "normalisation 'constant_scalar_rescale'"),
        ({"normalize_activations": 3}, {}, "normalisation 3"),
        ({"normalize_activations": ["layer_norm"]}, {}, "normalisation ['layer_norm']"),
        ({"normalize_activations": {"a": 1}}, {}, "normalisation {'a': 1}"),
        ({"reshape_activations": "hook_q"}, {}, "reshapes its input as 'hook_q'"),
    ],
)
def test_saelens_kinds_that_cannot_be_used(
    tmp_path: Path, cfg: dict[str, Any], weights: dict[str, Any], named: str
) -> None:
    lens_folder(tmp_path, cfg, weights)
    for call in (detect, load_sae):
        with pytest.raises(SaeNotSteerable) as caught:
            call(tmp_path)
        assert named in caught.value.message
        assert caught.value.remedy


def test_a_checkpoint_with_its_scaling_beside_it_is_not_folded(tmp_path: Path) -> None:
    lens_folder(tmp_path, {"normalize_activations": "expected_average_only_in"})
    write_json(tmp_path / "activation_scaler.json", {"scaling_factor": None})
    assert "Scaling unknown" in detect(tmp_path).config.assumed[0]
    write_json(tmp_path / "activation_scaler.json", {"scaling_factor": 3.25})
    with pytest.raises(SaeNotSteerable, match=r"scaling of 3\.25 is not folded"):
        detect(tmp_path)


@pytest.mark.parametrize(
    ("cfg", "named"),
    [
        ({"metadata": {"hook_name": "blocks.3.attn.hook_z"}, "reshape_activations": "hook_z"}, "hook_z"),
        ({"metadata": None, "hook_name": "blocks.3.attn.hook_z"}, "reshape_activations hook_z"),
        ({"metadata": {"hook_name": "blocks.3.hook_mlp_out"}}, "the MLP's output"),
        ({"metadata": {"hook_name": "blocks.0.hook_resid_pre"}}, "the embeddings"),
        ({"metadata": {"hook_name": "hook_embed"}}, "hook_embed"),
        ({"metadata": {"hook_name": "blocks.3.hook_resid_mid"}}, "blocks.3.hook_resid_mid"),
        (
            {"metadata": {"hook_name": "blocks.3.hook_resid_post", "hook_head_index": 2}},
            "one attention head",
        ),
    ],
)
def test_other_tensors_load_but_cannot_be_steered(tmp_path: Path, cfg: dict[str, Any], named: str) -> None:
    sae = load_sae(lens_folder(tmp_path, cfg))
    with pytest.raises(SaeNotSteerable) as caught:
        sae.config.require_steerable()
    assert named in caught.value.message


def test_gemma_scope_kinds(tmp_path: Path) -> None:
    npz = {**LENS, "threshold": [0.0, 0.0, 0.0]}
    write_npz(tmp_path / "gemma-scope-2b-pt-transcoders" / "layer_4" / "params.npz", npz)
    with pytest.raises(SaeNotSteerable, match="a transcoder"):
        detect(tmp_path / "gemma-scope-2b-pt-transcoders")
    write_npz(tmp_path / "gemma-scope-2b-pt-res" / "embedding" / "width_4k" / "params.npz", npz)
    with pytest.raises(SaeNotSteerable, match="embeddings"):
        detect(tmp_path / "gemma-scope-2b-pt-res")


def test_gemma_scope_2_kinds(tmp_path: Path) -> None:
    skip = {**LOWER, "affine_skip_connection": [[1.0, 0.0], [0.0, 1.0]]}
    write_safetensors(tmp_path / "skip" / "params.safetensors", skip)
    with pytest.raises(SaeNotSteerable, match="a skip transcoder"):
        detect(tmp_path / "skip")
    write_safetensors(tmp_path / "plain" / "params.safetensors", LOWER)
    hooks = {"hf_hook_point_in": "model.layers.1.pre_feedforward_layernorm.output"}
    hooks["hf_hook_point_out"] = "model.layers.1.post_feedforward_layernorm.output"
    write_json(tmp_path / "plain" / "config.json", {"architecture": "jump_relu", **hooks})
    with pytest.raises(SaeNotSteerable, match="a transcoder"):
        detect(tmp_path / "plain")
    write_safetensors(tmp_path / "wide" / "layer_0.safetensors", {**LOWER, "w_dec": torch.zeros(3, 4, 2)})
    with pytest.raises(SaeNotSteerable, match="cross-layer transcoder"):
        detect(tmp_path / "wide")


@pytest.mark.parametrize(
    ("cfg", "named"),
    [
        ({"transcode": True}, "a transcoder"),
        ({"skip_connection": True}, "a skip transcoder"),
        ({"activation": "groupmax"}, "'groupmax'"),
        ({"signed": True}, "signed"),
        ({"gram_lookup": True}, "gram_lookup"),
        ({"embed_skip": True}, "embed_skip"),
    ],
)
def test_sparsify_kinds(tmp_path: Path, cfg: dict[str, Any], named: str) -> None:
    write_safetensors(tmp_path / "layers.1" / "sae.safetensors", SPARSIFY)
    write_json(tmp_path / "layers.1" / "cfg.json", {**SPARSIFY_CFG, **cfg})
    with pytest.raises(SaeNotSteerable) as caught:
        detect(tmp_path / "layers.1")
    assert named in caught.value.message


def test_dictionary_learning_kinds(tmp_path: Path) -> None:
    dictionary(tmp_path / "cross", "CrossCoder", {**LINEAR, "decoder.bias": B_DEC})
    with pytest.raises(SaeNotSteerable, match="'CrossCoder'"):
        detect(tmp_path / "cross")
    nested = {"ae": {name: torch.tensor(value) for name, value in {**LINEAR, "bias": B_DEC}.items()}, "step": 100}
    dictionary(tmp_path / "backup", "AutoEncoder", nested)
    with pytest.raises(SaeNotSteerable, match="a backup of a training run"):
        detect(tmp_path / "backup")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sae_type": "crosscoder"}, "a crosscoder"),
        ({"sae_type": "clt"}, "a cross-layer transcoder"),
        ({"sae_type": "lorsa"}, "Lorsa"),
        ({"hook_point_out": "blocks.15.hook_mlp_out"}, "a transcoder"),
        ({"use_glu_encoder": True}, "GLU"),
        ({"act_fn": "batchtopk"}, "batch-top-k SAE without a threshold"),
        ({"act_fn": "gelu"}, "'gelu'"),
        ({"norm_activation": "batch-wise"}, "'batch-wise'"),
    ],
)
def test_openmoss_kinds(tmp_path: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(SaeNotSteerable) as caught:
        detect(openmoss(tmp_path, **settings))
    assert named in caught.value.message


def test_openmoss_without_its_scaling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SaeNotSteerable, match="input scaling is unknown"):
        detect(openmoss(tmp_path, {**MOSS, "log_jumprelu_threshold": [0.0, 0.0, 0.0]}))


def test_a_llama_scope_transcoder(tmp_path: Path) -> None:
    with pytest.raises(SaeNotSteerable, match="a transcoder"):
        detect(llama_scope(tmp_path, hook_point_in="blocks.8.ln2.hook_normalized"))


def test_openai_activations(tmp_path: Path) -> None:
    weights = {"pre_bias": B_DEC, "latent_bias": B_ENC, **{name: LINEAR[name] for name in list(LINEAR)[::2]}}
    for extra, named in (({"activation": "Identity"}, "'Identity'"), ({}, "None")):
        with pytest.raises(SaeNotSteerable, match=named):
            detect(write_torch(tmp_path / "a.pt", {**weights, **extra}))
    after = {"activation": "TopK", "activation_state_dict": {"k": 1, "postact_fn": "Identity"}}
    with pytest.raises(SaeNotSteerable, match="after top-k"):
        detect(write_torch(tmp_path / "a.pt", {**weights, **after}))
    with pytest.raises(SaeLoadFailed, match="does not say k"):
        detect(write_torch(tmp_path / "a.pt", {**weights, "activation": "TopK"}))


def test_sets_of_transcoders_and_what_else_is_known(tmp_path: Path) -> None:
    circuit_tracer = tmp_path / "set"
    write_safetensors(circuit_tracer / "layer_0.safetensors", LENS)
    (circuit_tracer / "config.yaml").write_text("feature_input_hook: mlp.hook_in\n", encoding="utf-8")
    cases = {
        circuit_tracer: "a transcoder",
        write_safetensors(
            tmp_path / "clt" / "W_enc_3.safetensors", {"W_enc_3": [[1.0]], "b_enc_3": [1.0]}
        ): "cross-layer",
        write_safetensors(
            tmp_path / "temporal" / "latest_ckpt.safetensors",
            {"D": [[1.0]], "E": [[1.0]], "b": [1.0], "attn_layers.0.k_ctx.weight": [[1.0]]},
        ): "temporal",
        write_safetensors(
            tmp_path / "cross" / "ae.safetensors",
            {"encoder.weight": torch.zeros(2, 3, 4), "decoder.weight": torch.zeros(2, 4, 3)},
        ): "crosscoder",
        write_safetensors(tmp_path / "skip" / "layer_1.safetensors", {**LENS, "W_skip": [[1.0]]}): "skip transcoder",
    }
    for path, named in cases.items():
        with pytest.raises(SaeNotSteerable) as caught:
            detect(path)
        assert named in caught.value.message


def test_the_plain_configuration_is_not_refused(tmp_path: Path) -> None:
    load_sae(lens_folder(tmp_path, dict(CFG))).config.require_steerable()
