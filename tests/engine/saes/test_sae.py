"""The canonical SAE: every architecture by hand, decoder rows, deltas, moving and checking."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from engine.saes.config import Architecture, NormalizeActivations, SaeConfig, SourceFormat
from engine.saes.errors import InvalidFeatureIndex, SaeIncompatible, SaeLoadFailed
from engine.saes.sae import Sae
from engine.wire import wire
from tests.engine.saes.small import LENS, THRESHOLD, X, tensors


def make(architecture: Architecture = Architecture.STANDARD, *, extra: Any = None, **options: Any) -> Sae:
    weights = {**LENS, **(extra or {})}
    if architecture is Architecture.GATED:
        del weights["b_enc"]
    config = SaeConfig(architecture, d_in=2, d_sae=3, source_format=SourceFormat.SAELENS, **options)
    return Sae(config, tensors(weights))


def test_standard_is_relu_of_the_pre_activations() -> None:
    sae = make()
    f = sae.encode(X)
    assert f.tolist() == [[2.0, 2.0, 0.0]]
    assert sae.decode(f).tolist() == [[2.5, 3.5]]


def test_b_dec_is_subtracted_where_the_configuration_says_so() -> None:
    sae = make(apply_b_dec_to_input=True)
    f = sae.encode(X)
    assert f.tolist() == [[1.5, 2.5, 0.0]]
    assert sae.decode(f).tolist() == [[2.0, 4.5]]


def test_jumprelu_keeps_the_whole_value_above_its_threshold() -> None:
    sae = make(Architecture.JUMPRELU, extra={"threshold": THRESHOLD})
    assert sae.encode(X).tolist() == [[2.0, 0.0, 0.0]]


def test_jumprelu_is_off_exactly_at_its_threshold() -> None:
    sae = make(Architecture.JUMPRELU, extra={"threshold": [2.0, 1.999, 0.0]})
    assert sae.encode(X).tolist() == [[0.0, 2.0, 0.0]]


def test_gated_opens_by_one_bias_and_measures_by_another() -> None:
    extra = {"b_gate": [-3.0, 0.0, 5.0], "b_mag": [1.0, 0.0, -1.0], "r_mag": [0.0, math.log(2.0), 0.0]}
    f = make(Architecture.GATED, extra=extra).encode(X)
    assert f.tolist() == [[0.0, pytest.approx(6.0), 0.0]]


def test_topk_keeps_the_largest_and_never_a_negative() -> None:
    sae = make(Architecture.TOPK, k=1)
    assert sae.encode(torch.tensor([[3.0, 3.0]])).tolist() == [[3.0, 0.0, 0.0]]
    assert make(Architecture.TOPK, k=3).encode(X).tolist() == [[2.0, 2.0, 0.0]]


def test_topk_rescaled_chooses_by_activation_times_norm() -> None:
    sae = make(Architecture.TOPK, k=1, rescale_acts_by_decoder_norm=True)
    f = sae.encode(torch.tensor([[3.0, 3.0]]))
    assert f.tolist() == [[0.0, 4.0, 0.0]]
    assert sae.decode(f).tolist() == [[0.5, 3.5]]


def test_constant_norm_rescale_is_undone() -> None:
    sae = make(normalize_activations=NormalizeActivations.CONSTANT_NORM_RESCALE)
    x = torch.tensor([[3.0, 4.0]])
    factor = math.sqrt(2.0) / 5.0
    f = sae.encode(x)
    assert f[0].tolist() == pytest.approx([3 * factor, 4 * factor - 1.0, -1 * factor + 0.5])
    assert sae.decode(f, x)[0].tolist() == pytest.approx(
        [(f[0, 0] + 0.5 * f[0, 2] + 0.5).item() / factor, (2 * f[0, 1] + 0.5 * f[0, 2] - 0.5).item() / factor]
    )


def test_a_token_of_zeros_stays_finite() -> None:
    for mode in NormalizeActivations:
        sae = make(normalize_activations=mode)
        zeros = torch.zeros(1, 2)
        assert torch.isfinite(sae.reconstruct(zeros)).all()


def test_decoding_a_normalised_token_needs_the_token() -> None:
    sae = make(normalize_activations=NormalizeActivations.LAYER_NORM)
    with pytest.raises(ValueError, match="needs the input"):
        sae.decode(torch.zeros(1, 3))


def test_centred_input_loses_its_mean_and_gets_it_back() -> None:
    sae = make(center_input=True)
    assert sae.encode(X).tolist() == [[0.0, 0.0, 0.0]]
    assert sae.encode(torch.tensor([[5.0, 1.0]])).tolist() == [[2.0, 0.0, 4.5]]
    assert sae.decode(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[5.0, 1.0]])).tolist() == [[5.5, 2.5]]


def test_any_leading_shape_and_any_float_input() -> None:
    sae = make()
    x = X.expand(4, 5, 2).to(torch.bfloat16)
    f = sae.encode(x)
    assert f.shape == (4, 5, 3)
    assert f.dtype == torch.float32
    assert sae.decode(f).shape == (4, 5, 2)


def test_another_width_is_refused() -> None:
    with pytest.raises(SaeIncompatible) as caught:
        make().encode(torch.zeros(1, 5))
    assert caught.value.details == {"d_in": 2, "shape": [1, 5]}


def test_delta_is_the_sum_of_rows_as_stored() -> None:
    sae = make()
    delta = sae.delta({1: 3.0, 2: -2.0})
    assert delta.dtype == torch.float32
    assert delta.tolist() == [-1.0, 5.0]


def test_delta_of_nothing_and_of_zeros_is_zero() -> None:
    assert make().delta({}).tolist() == [0.0, 0.0]
    assert make().delta({0: 0.0, 1: -0.0}).tolist() == [0.0, 0.0]


def test_delta_does_not_depend_on_the_order_of_features() -> None:
    torch.manual_seed(0)
    config = SaeConfig(Architecture.STANDARD, d_in=16, d_sae=40, source_format=SourceFormat.SAELENS)
    sae = Sae(
        config,
        {
            "W_enc": torch.randn(16, 40),
            "W_dec": torch.randn(40, 16),
            "b_enc": torch.zeros(40),
            "b_dec": torch.zeros(16),
        },
    )
    strengths = {index: 0.1 * index - 1.7 for index in range(40)}
    backwards = dict(reversed(strengths.items()))
    assert torch.equal(sae.delta(strengths), sae.delta(backwards))


@pytest.mark.parametrize("strength", [math.nan, math.inf, -math.inf])
def test_delta_refuses_what_is_no_number(strength: float) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        make().delta({0: strength})


@pytest.mark.parametrize("index", [-1, 3, 10**9, True, 1.0])
def test_features_outside_are_refused_everywhere(index: Any) -> None:
    sae = make()
    for call in (sae.decoder_row, lambda i: sae.decoder_rows([i]), lambda i: sae.encode_features(X, [i])):
        with pytest.raises(InvalidFeatureIndex):
            call(index)
    with pytest.raises(InvalidFeatureIndex) as caught:
        sae.delta({index: 0.0})
    assert caught.value.details["d_sae"] == 3


def test_rows_and_norms() -> None:
    sae = make()
    assert sae.decoder_row(1).tolist() == [0.0, 2.0]
    assert sae.decoder_rows([2, 0]).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert sae.decoder_norms().tolist() == pytest.approx([1.0, 2.0, math.sqrt(0.5)])
    assert sae.decoder_norms().dtype == torch.float32


def test_top_features_come_strongest_first() -> None:
    values, indices = make().top_features(torch.tensor([[3.0, 3.0]]), 2)
    assert values.tolist() == [[3.0, 2.0]]
    assert indices.tolist() == [[0, 1]]
    assert make().top_features(X, 99)[0].shape == (1, 3)


def test_bytes_and_another_format() -> None:
    sae = make()
    assert sae.nbytes == 4 * (6 + 6 + 3 + 2)
    half = sae.to(dtype=torch.float16)
    assert half.nbytes == 2 * (6 + 6 + 3 + 2)
    assert half.encode(X).dtype == torch.float16
    assert half.encode(X).tolist() == [[2.0, 2.0, 0.0]]
    assert sae.to("cpu") is sae
    assert sae.config.memory_bytes(4) == 4 * (2 * 2 * 3 + 2 + 3)


def test_values_too_large_for_a_format_are_refused() -> None:
    sae = make(extra={"b_enc": [0.0, 1e6, 0.0]})
    with pytest.raises(SaeLoadFailed, match="b_enc"):
        sae.to(dtype=torch.float16)


def test_decoding_may_scale_features() -> None:
    sae = make(extra={"feature_scale": [2.0, 1.0, 1.0]})
    assert sae.encode(X).tolist() == [[2.0, 2.0, 0.0]]
    assert sae.decode(sae.encode(X)).tolist() == [[4.5, 3.5]]
    assert sae.delta({0: 1.0}).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"W_enc": [[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]}, "W_enc"),
        ({"b_dec": [0.0, 0.0, 0.0]}, "b_dec"),
        ({"b_enc": [0.0, math.nan, 0.0]}, "b_enc"),
        ({"W_dec": [[1.0, 0.0], [0.0, math.inf], [0.5, 0.5]]}, "W_dec"),
        ({"threshold": [0.0, 0.0, 0.0]}, "threshold"),
        ({"b_enc": torch.zeros(3, dtype=torch.float64)}, "format"),
    ],
)
def test_wrong_weights_are_refused(extra: Any, named: str) -> None:
    with pytest.raises(SaeLoadFailed, match=named):
        make(extra=extra)


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(SaeLoadFailed, match="also needs threshold"):
        make(Architecture.JUMPRELU)


@pytest.mark.parametrize(
    "options",
    [
        {"d_in": 0},
        {"d_sae": True},
        {"dtype": "int8"},
        {"k": 4, "architecture": Architecture.TOPK},
        {"k": 0, "architecture": Architecture.TOPK},
        {"architecture": Architecture.TOPK},
        {"k": 2},
        {"rescale_acts_by_decoder_norm": True},
        {"layer": -1},
        {"source_l0": math.nan},
        {"assumed": ["a list"]},
    ],
)
def test_contradictory_configurations_are_refused(options: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "architecture": Architecture.STANDARD,
        "d_in": 2,
        "d_sae": 3,
        "source_format": SourceFormat.SAELENS,
    }
    with pytest.raises(SaeLoadFailed):
        SaeConfig(**{**fields, **options})


def test_only_layer_and_assumptions_may_change_later() -> None:
    from dataclasses import replace

    sae = make(layer=3)
    other = sae.with_config(replace(sae.config, layer=4))
    assert other.config.layer == 4
    assert other.W_dec is sae.W_dec
    with pytest.raises(ValueError, match="only the layer"):
        sae.with_config(replace(sae.config, apply_b_dec_to_input=True))


def test_the_description_is_json() -> None:
    import json

    config = make(Architecture.TOPK, k=2, layer=5, assumed=("something",)).config
    stored = json.loads(json.dumps(wire(config)))
    assert stored["architecture"] == "topk"
    assert stored["normalize_activations"] == "none"
    assert stored["assumed"] == ["something"]
    assert stored["layer"] == 5
