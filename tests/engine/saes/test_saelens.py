"""SAELens configurations: older keys, hooks, normalisation, scaling factors, other programs' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    LENS,
    THRESHOLD,
    X,
    lens_folder,
    write_json,
    write_safetensors,
)


def test_version_6_as_it_is_written(tmp_path: Path) -> None:
    detected = detect(lens_folder(tmp_path / "mine"))
    config = detected.config
    assert detected.format is SourceFormat.SAELENS
    assert detected.label == "SAELens"
    assert [path.name for path in detected.files] == ["sae_weights.safetensors", "cfg.json"]
    assert (config.layer, config.hook, config.model_name) == (4, HookKind.RESID_POST, "gpt2")
    assert config.prepend_bos is None
    assert config.assumed == ()
    assert config.metadata["metadata"]["sae_lens_version"] == "6.5.0"
    assert load_sae(tmp_path / "mine").encode(X).tolist() == [[2.0, 2.0, 0.0]]


@pytest.mark.parametrize(
    ("cfg", "architecture", "k"),
    [
        ({"activation_fn": "topk", "activation_fn_kwargs": {"k": 2}}, Architecture.TOPK, 2),
        ({"activation_fn_str": "topk", "activation_fn_kwargs": {"k": 2.0}}, Architecture.TOPK, 2),
        ({"architecture": "topk", "k": 3}, Architecture.TOPK, 3),
        ({"activation_fn": "relu"}, Architecture.STANDARD, None),
    ],
)
def test_the_activation_function_may_decide(
    tmp_path: Path, cfg: dict[str, Any], architecture: Architecture, k: int | None
) -> None:
    config = detect(lens_folder(tmp_path, cfg)).config
    assert (config.architecture, config.k) == (architecture, k)


def test_flat_keys_from_before_version_6(tmp_path: Path) -> None:
    older = {
        "metadata": None,
        "architecture": None,
        "apply_b_dec_to_input": None,
        "hook_point": "blocks.6.hook_resid_pre",
        "hook_point_layer": 6,
        "model_name": "gemma-2b",
        "normalize_activations": True,
        "context_size": 512,
    }
    config = detect(lens_folder(tmp_path, older)).config
    assert config.architecture is Architecture.STANDARD
    assert config.apply_b_dec_to_input is True
    assert config.normalize_activations is NormalizeActivations.EXPECTED_AVERAGE_ONLY_IN
    assert (config.layer, config.hook, config.hook_name) == (5, HookKind.RESID_PRE, "blocks.6.hook_resid_pre")
    assert (config.prepend_bos, config.context_size, config.model_name) == (True, 512, "gemma-2b")
    said = " ".join(config.assumed)
    assert "The architecture is not stated; standard was assumed" in said
    assert "SAELens's default, yes, was assumed" in said
    assert "Scaling unknown" in said


def test_the_hugging_face_name_of_a_hook_is_preferred(tmp_path: Path) -> None:
    metadata = {"hf_hook_name": "model.layers.7", "hook_name": "blocks.99.hook_resid_post", "sae_lens_version": "6.1"}
    config = detect(lens_folder(tmp_path, {"metadata": metadata})).config
    assert (config.layer, config.hook_name) == (7, "model.layers.7")


def test_a_bare_layer_is_taken_as_the_residual_stream_and_says_so(tmp_path: Path) -> None:
    config = detect(lens_folder(tmp_path, {"metadata": None, "hook_layer": 3})).config
    assert (config.layer, config.hook, config.hook_name) == (3, HookKind.RESID_POST, None)
    assert (
        "Only the layer, 3, is stated; that the residual stream after the block is read was assumed." in config.assumed
    )


def test_a_layer_given_by_hand_is_noted(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    assert load_sae(tmp_path, layer=4).config.assumed == ()
    config = load_sae(tmp_path, layer=9).config
    assert config.layer == 9
    assert config.assumed == ("Layer 9 was given by hand; the files say 4.",)


def test_a_scaling_factor_of_ones_means_nothing(tmp_path: Path) -> None:
    sae = load_sae(lens_folder(tmp_path, weights={"scaling_factor": [1.0, 1.0, 1.0]}))
    assert "feature_scale" not in sae.tensors
    assert sae.config.assumed == ()


def test_another_scaling_factor_needs_the_configurations_word(tmp_path: Path) -> None:
    factor = {"scaling_factor": [2.0, 1.0, 1.0]}
    with pytest.raises(SaeLoadFailed, match="finetuning_scaling_factor"):
        detect(lens_folder(tmp_path / "without", weights=factor))
    sae = load_sae(lens_folder(tmp_path / "with", {"finetuning_scaling_factor": True}, factor))
    assert sae.encode(X).tolist() == [[2.0, 2.0, 0.0]]
    assert sae.reconstruct(X).tolist() == [[4.5, 3.5]]
    assert sae.decoder_row(0).tolist() == [1.0, 0.0]


def test_sparsity_is_optional_and_gives_the_expected_l0(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "sparsity.safetensors", {"sparsity": [0.0, -1.0, -1.0]})
    assert detect(lens_folder(tmp_path)).config.source_l0 == pytest.approx(1.2)
    write_safetensors(tmp_path / "sparsity.safetensors", {"sparsity": [0.0, -1.0]})
    config = detect(tmp_path).config
    assert config.source_l0 is None
    assert config.assumed[0].startswith("The optional sparsity.safetensors was left out")
    (tmp_path / "sparsity.safetensors").write_bytes(b"cut")
    assert detect(tmp_path).config.source_l0 is None


def test_centred_writing_weights_are_honoured(tmp_path: Path) -> None:
    metadata = {
        "hook_name": "blocks.4.hook_resid_post",
        "model_from_pretrained_kwargs": {"center_writing_weights": True, "fold_ln": True},
    }
    sae = load_sae(lens_folder(tmp_path, {"metadata": metadata}))
    assert sae.config.center_input is True
    assert sae.encode(torch.tensor([[5.0, 1.0]])).tolist() == [[2.0, 0.0, 4.5]]


def test_other_programs_names_are_understood(tmp_path: Path) -> None:
    weights = {
        "encoder.weight": ENCODER_WEIGHT,
        "encoder.bias": B_ENC,
        "decoder.weight": DECODER_WEIGHT,
        "decoder.bias": B_DEC,
    }
    write_safetensors(tmp_path / "model.safetensors", weights)
    write_json(tmp_path / "config.json", {"d_model": 2, "d_hidden": 3, "hook_layer": 1, "apply_b_dec_to_input": False})
    detected = detect(tmp_path)
    assert detected.format is SourceFormat.SAELENS
    assert load_sae(tmp_path).encode(X).tolist() == [[2.0, 2.0, 0.0]]
    write_json(tmp_path / "config.json", {"d_model": 2, "d_hidden": 4})
    with pytest.raises(SaeLoadFailed, match="number of features is 4"):
        detect(tmp_path)


def test_short_names_in_saelens_layout(tmp_path: Path) -> None:
    weights = {"W_e": LENS["W_enc"], "b_e": B_ENC, "W_d": LENS["W_dec"], "b_d": B_DEC}
    write_safetensors(tmp_path / "sae.safetensors", weights)
    write_json(tmp_path / "sae_config.json", {"input_dim": 2, "num_features": 3, "apply_b_dec_to_input": False})
    assert load_sae(tmp_path).encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_thresholds_decide_where_no_architecture_is_stated(tmp_path: Path) -> None:
    sae = load_sae(lens_folder(tmp_path, {"architecture": None}, {"threshold": THRESHOLD}))
    assert sae.config.architecture is Architecture.JUMPRELU
    assert "The architecture is not stated; jumprelu was assumed from the tensors." in sae.config.assumed
    assert sae.encode(X).tolist() == [[2.0, 0.0, 0.0]]


def test_thresholds_beside_a_standard_architecture_are_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(SaeLoadFailed, match="the weights hold thresholds"):
        detect(lens_folder(tmp_path, weights={"threshold": THRESHOLD}))


def test_tensors_without_meaning_are_said(tmp_path: Path) -> None:
    config = detect(lens_folder(tmp_path, weights={"ghost": [1.0]})).config
    assert config.assumed == ("Tensors without a known meaning were left out: ghost.",)


def test_half_precision_stays_as_stored_unless_asked(tmp_path: Path) -> None:
    lens_folder(tmp_path)
    write_safetensors(tmp_path / "sae_weights.safetensors", LENS, torch.bfloat16)
    assert detect(tmp_path).config.dtype == "bfloat16"
    assert load_sae(tmp_path).dtype == torch.bfloat16
    assert load_sae(tmp_path, dtype=torch.float32).encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_weights_without_a_configuration_do_not_say_enough(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "sae_weights.safetensors", LENS)
    with pytest.raises(SaeFormatUnknown) as caught:
        detect(tmp_path)
    assert "no configuration lies beside it" in caught.value.message
    assert caught.value.remedy is not None and "cfg.json" in caught.value.remedy


@pytest.mark.parametrize(
    ("cfg", "named"),
    [
        ({"d_in": 5}, "the width is 5"),
        ({"d_sae": 7}, "the number of features is 7"),
        ({"d_in": "two"}, "d_in"),
        ({"apply_b_dec_to_input": "yes"}, "apply_b_dec_to_input"),
        ({"metadata": ["a", "list"]}, "metadata"),
        ({"architecture": "topk"}, "does not say k"),
        ({"architecture": "topk", "k": 0}, "k = 0"),
        ({"architecture": "topk", "k": 1.5}, "k = 1.5"),
        ({"architecture": "topk", "k": 4}, "k from 1 to 3"),
        ({"activation_fn": "jumprelu"}, "activation function is jumprelu"),
        ({"metadata": {"hook_name": 7}}, "metadata.hook_name"),
        ({"metadata": {"hook_name": "x" * 1001}}, "metadata.hook_name .* at most 1,000 characters"),
    ],
)
def test_values_that_cannot_be_are_named(tmp_path: Path, cfg: dict[str, Any], named: str) -> None:
    with pytest.raises(SaeLoadFailed, match=named):
        detect(lens_folder(tmp_path, cfg))


@pytest.mark.parametrize("version", ["9" * 5000, "²", "6²", "-7"])
def test_a_version_that_is_no_number_counts_as_none(tmp_path: Path, version: str) -> None:
    # Before version 6 no version was written, and texts began with a BOS without being said to.
    assert detect(lens_folder(tmp_path, {"metadata": {"sae_lens_version": version[:1000]}})).config.prepend_bos is True


@pytest.mark.parametrize("name", ["scaling_factor", "finetuning_scaling_factor", "W_enc", "b_enc", "b_dec"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.int64])
def test_tensors_in_formats_that_nothing_computes_with(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    weights = {**LENS, name: torch.ones(torch.tensor(LENS.get(name, B_ENC)).shape).to(dtype)}
    with pytest.raises(SaeLoadFailed, match=f"{name} as torch.{str(dtype).removeprefix('torch.')}, not as floating"):
        load_sae(lens_folder(tmp_path, {"finetuning_scaling_factor": True}, weights))


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.complex64])
def test_a_table_of_frequencies_in_such_a_format_is_left_out(tmp_path: Path, dtype: torch.dtype) -> None:
    lens_folder(tmp_path)
    write_safetensors(tmp_path / "sparsity.safetensors", {"sparsity": torch.ones(3).to(dtype)})
    config = detect(tmp_path).config
    assert config.source_l0 is None
    assert any("sparsity.safetensors was left out" in line for line in config.assumed)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaeFormatUnknown, match="'quantum'"):
        detect(lens_folder(tmp_path, {"architecture": "quantum"}))
