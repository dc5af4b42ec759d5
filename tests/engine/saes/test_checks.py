"""Measured quality, the verdicts on it, the bundled text, and whether an SAE fits a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.saes.checks import Quality, check_text, compare_with_source, measure
from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat, judge_fit
from engine.saes.errors import SaeIncompatible
from engine.saes.sae import Sae


def axis_sae(**options: Any) -> Sae:
    """Width 2: features 0 and 1 are the two axes, feature 2 is never active. It reconstructs all positive inputs."""
    config = SaeConfig(Architecture.STANDARD, d_in=2, d_sae=3, source_format=SourceFormat.SAELENS, **options)
    return Sae(
        config,
        {
            "W_enc": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
            "W_dec": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
            "b_enc": torch.tensor([0.0, 0.0, -1.0]),
            "b_dec": torch.zeros(2),
        },
    )


def test_a_perfect_reconstruction_explains_everything() -> None:
    quality = measure(axis_sae(), torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, 5.0], [4.0, 3.0]]))
    assert quality.variance_explained == pytest.approx(1.0)
    assert quality.l0 == pytest.approx(1.5)
    assert quality.dead_share == pytest.approx(1 / 3)
    assert (quality.n_tokens, quality.n_left_out) == (4, 0)
    assert quality.mean_norm == pytest.approx(5.0)
    assert quality.median_norm == pytest.approx(5.0)


def test_what_relu_cannot_express_is_missing() -> None:
    # Mean [0, 0], total 4·25; the two negative tokens are lost whole: 1 − 50/100.
    activations = torch.tensor([[3.0, 4.0], [-3.0, -4.0], [4.0, 3.0], [-4.0, -3.0]])
    quality = measure(axis_sae(), activations)
    assert quality.variance_explained == pytest.approx(0.5)
    assert quality.l0 == pytest.approx(1.0)


def test_attention_sinks_and_spoiled_tokens_are_left_out() -> None:
    ordinary = torch.tensor([[3.0, 4.0], [5.0, 0.0], [0.0, 5.0], [4.0, 3.0]])
    spoiled = torch.tensor([[-900.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [-25.0, 0.0]])
    quality = measure(axis_sae(), torch.cat([ordinary, spoiled]))
    # A norm of exactly five medians stays; the sink, the NaN and the infinity go.
    assert (quality.n_tokens, quality.n_left_out) == (5, 3)
    assert quality.mean_norm == pytest.approx(9.0)


def test_many_tokens_are_measured_in_parts() -> None:
    torch.manual_seed(0)
    quality = measure(axis_sae(), torch.rand(1000, 2) + 0.5)
    assert quality.n_tokens == 1000
    assert quality.variance_explained == pytest.approx(1.0)
    assert quality.l0 == pytest.approx(2.0)


@pytest.mark.parametrize(
    "activations",
    [torch.zeros(0, 2), torch.zeros(4, 2), torch.full((3, 2), float("nan")), torch.zeros(4, 3), torch.zeros(2)],
)
def test_what_cannot_be_measured_is_refused(activations: torch.Tensor) -> None:
    with pytest.raises(SaeIncompatible):
        measure(axis_sae(), activations)


QUALITY = Quality(
    l0=70.0, variance_explained=0.8, dead_share=0.5, n_tokens=900, n_left_out=0, mean_norm=9.0, median_norm=8.0
)
PLAIN = SaeConfig(Architecture.JUMPRELU, d_in=2, d_sae=3, source_format=SourceFormat.GEMMA_SCOPE)


@pytest.mark.parametrize(
    ("quality", "config", "expected"),
    [
        (
            {},
            {"source_l0": 71.0, "source_variance_explained": 0.78},
            [
                "Variance explained is 0.80 on the bundled text; the source states 0.78, which fits.",
                "On average 70.0 features are active per token; the source states 71, which fits.",
            ],
        ),
        (
            {"l0": 700.0, "variance_explained": 0.5},
            {"source_l0": 71.0, "source_variance_explained": 0.78},
            [
                "Variance explained is 0.50 on the bundled text; the source states 0.78. Layer, model or scaling may be "
                "wrong.",
                "On average 700.0 features are active per token, far more than the 71 the source states: the layer or "
                "the activation function may be wrong.",
            ],
        ),
        (
            {"l0": 3.0, "variance_explained": 0.1, "n_left_out": 2},
            {"source_l0": 71.0},
            [
                "Variance explained is 0.10 on the bundled text, which is low: the layer, the model or the scaling may be "
                "wrong.",
                "On average 3.0 features are active per token, far fewer than the 71 the source states: the layer or the "
                "activation function may be wrong.",
                "2 of 902 tokens were left out as attention sinks.",
            ],
        ),
        (
            {"variance_explained": -4.0},
            {},
            [
                "Variance explained is -4.00 on the bundled text: worse than the mean. Layer, model, scaling or "
                "activation function cannot be right.",
                "On average 70.0 features are active per token; the source states no figure to compare with.",
            ],
        ),
    ],
)
def test_verdicts(quality: dict[str, Any], config: dict[str, Any], expected: list[str]) -> None:
    assert compare_with_source(replace(QUALITY, **quality), replace(PLAIN, **config)) == expected


def test_top_k_is_compared_with_k() -> None:
    config = SaeConfig(Architecture.TOPK, d_in=2, d_sae=3, source_format=SourceFormat.SAELENS, k=2, source_l0=99.0)
    verdicts = compare_with_source(replace(QUALITY, l0=1.9), config)
    assert verdicts == [
        "Variance explained is 0.80 on the bundled text.",
        "On average 1.9 features are active per token, of k = 2.",
    ]


def test_the_bundled_text_is_there_and_varied() -> None:
    text = check_text()
    assert 700 <= len(text.split()) <= 1000
    assert text.isascii()
    assert len(set(text.lower().split())) > 400


# --- fit --------------------------------------------------------------------------------------------------------------

TRAINED = replace(PLAIN, layer=20, model_name="google/gemma-2-2b", hook_name="blocks.20.hook_resid_post")
MODEL: dict[str, Any] = {"layer": 20, "d_model": 2, "n_layers": 26, "model_name": "gemma-2-2b-it"}


def test_an_sae_that_fits() -> None:
    fit = judge_fit(TRAINED, **MODEL)
    assert (fit.errors, fit.warnings) == ((), ())
    fit.require("mine")


@pytest.mark.parametrize(
    ("config", "model", "errors", "warnings"),
    [
        ({}, {"d_model": 2304}, ["It reads vectors of width 2; this model's are 2304 wide."], []),
        (
            {},
            {"layer": 26},
            ["There is no layer 26: this model has layers 0 to 25."],
            ["It was trained for layer 20, not 26."],
        ),
        (
            {},
            {"layer": -1},
            ["There is no layer -1: this model has layers 0 to 25."],
            ["It was trained for layer 20, not -1."],
        ),
        ({}, {"layer": 3}, [], ["It was trained for layer 20, not 3."]),
        ({"layer": None, "model_name": None}, {}, [], []),
        ({}, {"model_name": "SmolLM2-135M"}, [], ["It was trained for google/gemma-2-2b, not SmolLM2-135M."]),
        (
            {"hook": HookKind.MLP_OUT},
            {},
            ["It reads the MLP's output (blocks.20.hook_resid_post), not the residual stream."],
            [],
        ),
    ],
)
def test_what_speaks_against_it(
    config: dict[str, Any], model: dict[str, Any], errors: list[str], warnings: list[str]
) -> None:
    fit = judge_fit(replace(TRAINED, **config), **{**MODEL, **model})
    assert list(fit.errors) == errors
    assert list(fit.warnings) == warnings
    if errors:
        with pytest.raises(SaeIncompatible) as caught:
            fit.require("mine")
        assert caught.value.details == {"errors": errors, "warnings": warnings}
