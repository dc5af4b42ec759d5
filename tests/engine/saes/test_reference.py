"""Encoders and decoders against SAELens's own values; see ``tests/fixtures/saes/make_reference.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.saes.config import Architecture, NormalizeActivations, SourceFormat
from engine.saes.formats import detect, load_sae

FIXTURES = Path(__file__).parents[2] / "fixtures" / "saes"
CASES = sorted(folder.name for folder in (FIXTURES / "saelens").iterdir())

EXPECTED: dict[str, tuple[Architecture, bool, NormalizeActivations, int | None, bool]] = {
    "batchtopk_rescaled_saved": (Architecture.JUMPRELU, True, NormalizeActivations.NONE, None, False),
    "batchtopk_saved": (Architecture.JUMPRELU, True, NormalizeActivations.NONE, None, False),
    "before_6_topk": (Architecture.TOPK, True, NormalizeActivations.NONE, 3, False),
    "gated": (Architecture.GATED, True, NormalizeActivations.NONE, None, False),
    "gated_uncentred": (Architecture.GATED, False, NormalizeActivations.NONE, None, False),
    "jumprelu": (Architecture.JUMPRELU, False, NormalizeActivations.NONE, None, False),
    "jumprelu_centred": (Architecture.JUMPRELU, True, NormalizeActivations.NONE, None, False),
    "jumprelu_constant_norm": (Architecture.JUMPRELU, True, NormalizeActivations.CONSTANT_NORM_RESCALE, None, False),
    "standard": (Architecture.STANDARD, True, NormalizeActivations.NONE, None, False),
    "standard_constant_norm": (Architecture.STANDARD, True, NormalizeActivations.CONSTANT_NORM_RESCALE, None, False),
    "standard_expected_average": (
        Architecture.STANDARD,
        True,
        NormalizeActivations.EXPECTED_AVERAGE_ONLY_IN,
        None,
        False,
    ),
    "standard_layer_norm": (Architecture.STANDARD, False, NormalizeActivations.LAYER_NORM, None, False),
    "standard_uncentred": (Architecture.STANDARD, False, NormalizeActivations.NONE, None, False),
    "topk": (Architecture.TOPK, True, NormalizeActivations.NONE, 5, False),
    "topk_layer_norm": (Architecture.TOPK, False, NormalizeActivations.LAYER_NORM, 6, False),
    "topk_rescaled": (Architecture.TOPK, True, NormalizeActivations.NONE, 5, True),
}


def test_every_case_is_expected() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.parametrize("case", CASES)
def test_detected_as_saved(case: str) -> None:
    detected = detect(FIXTURES / "saelens" / case)
    config = detected.config
    assert detected.format is SourceFormat.SAELENS
    assert (
        config.architecture,
        config.apply_b_dec_to_input,
        config.normalize_activations,
        config.k,
        config.rescale_acts_by_decoder_norm,
    ) == EXPECTED[case]
    assert (config.d_in, config.d_sae, config.dtype) == (12, 28, "float32")
    assert config.model_name == "gpt2-small"
    assert config.prepend_bos is True
    assert config.steering_refusal is None


@pytest.mark.parametrize("case", CASES)
def test_encodes_and_decodes_as_sae_lens_does(case: str) -> None:
    sae = load_sae(FIXTURES / "saelens" / case)
    reference = load_file(FIXTURES / "reference" / f"{case}.safetensors")
    f = sae.encode(reference["x"])
    assert f.shape == (7, 28)
    assert int((reference["f"] != 0).sum()) > 0
    torch.testing.assert_close(f, reference["f"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sae.decode(f, reference["x"]), reference["x_hat"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_few_features_encode_as_in_the_whole(case: str) -> None:
    sae = load_sae(FIXTURES / "saelens" / case)
    reference = load_file(FIXTURES / "reference" / f"{case}.safetensors")
    wanted = [27, 0, 13, 13]
    some = sae.encode_features(reference["x"], wanted)
    torch.testing.assert_close(some, reference["f"][:, wanted], atol=1e-5, rtol=1e-5)
    assert sae.encodes_partially is (sae.config.architecture is not Architecture.TOPK)


def test_before_version_6_reads_the_older_keys() -> None:
    config = detect(FIXTURES / "saelens" / "before_6_topk").config
    assert config.hook_name == "blocks.8.hook_resid_pre"
    assert config.layer == 7
    assert config.context_size == 64
    assert config.assumed == (
        "Whether b_dec is subtracted from the input is not stated; SAELens's default, yes, was assumed.",
    )


def test_unfolded_scaling_is_said_to_be_unknown() -> None:
    config = detect(FIXTURES / "saelens" / "standard_expected_average").config
    assert config.assumed[0].startswith("Scaling unknown")
