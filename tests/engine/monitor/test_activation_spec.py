"""``return_sae_activations`` as a request writes it."""

from __future__ import annotations

import pytest

from engine.config import EngineSettings
from engine.monitor.activation_spec import (
    ActivationSpec,
    CaptureLimits,
    PositionChoice,
    PositionRange,
    ReadPoint,
    require_one_answer,
)
from engine.monitor.errors import SaeActivationsRefused


def test_the_least_a_request_must_say() -> None:
    spec = ActivationSpec.from_wire({"top_k": 8, "positions": "last"})
    assert spec == ActivationSpec(8, PositionChoice.LAST, None, None, ReadPoint.POST_STEERING)


def test_everything_a_request_can_say() -> None:
    spec = ActivationSpec.from_wire(
        {
            "sae_id": "toy",
            "features": [12, 99, 12],
            "top_k": 8,
            "positions": {"start": 2, "end": 5},
            "read_point": "pre_steering",
        }
    )
    assert spec == ActivationSpec(8, PositionRange(2, 5), "toy", (12, 99), ReadPoint.PRE_STEERING)


def test_null_means_left_out() -> None:
    wire = {"sae_id": None, "features": None, "top_k": 1, "positions": "all", "read_point": None}
    assert ActivationSpec.from_wire(wire) == ActivationSpec(1, PositionChoice.ALL)


@pytest.mark.parametrize(
    ("wire", "param"),
    [
        ("last", "return_sae_activations"),
        (["top_k"], "return_sae_activations"),
        (True, "return_sae_activations"),
        ({}, "return_sae_activations.top_k"),
        ({"positions": "last"}, "return_sae_activations.top_k"),
        ({"top_k": 1}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": "last", "layer": 3}, "return_sae_activations.layer"),
        ({"top_k": 0, "positions": "last"}, "return_sae_activations.top_k"),
        ({"top_k": True, "positions": "last"}, "return_sae_activations.top_k"),
        ({"top_k": 2.0, "positions": "last"}, "return_sae_activations.top_k"),
        ({"top_k": "2", "positions": "last"}, "return_sae_activations.top_k"),
        ({"top_k": 1, "positions": "first"}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": 3}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": ["last"]}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": {"start": 2}}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": {"start": 2, "end": 5, "step": 1}}, "return_sae_activations.positions"),
        ({"top_k": 1, "positions": {"start": -1, "end": 5}}, "return_sae_activations.positions.start"),
        ({"top_k": 1, "positions": {"start": False, "end": 5}}, "return_sae_activations.positions.start"),
        ({"top_k": 1, "positions": {"start": 2, "end": 2}}, "return_sae_activations.positions.end"),
        ({"top_k": 1, "positions": {"start": 2, "end": 3.5}}, "return_sae_activations.positions.end"),
        ({"top_k": 1, "positions": "last", "features": []}, "return_sae_activations.features"),
        ({"top_k": 1, "positions": "last", "features": [-1]}, "return_sae_activations.features"),
        ({"top_k": 1, "positions": "last", "features": [1.0]}, "return_sae_activations.features"),
        ({"top_k": 1, "positions": "last", "features": [[1]]}, "return_sae_activations.features"),
        ({"top_k": 1, "positions": "last", "features": 3}, "return_sae_activations.features"),
        ({"top_k": 1, "positions": "last", "sae_id": 3}, "return_sae_activations.sae_id"),
        ({"top_k": 1, "positions": "last", "sae_id": ""}, "return_sae_activations.sae_id"),
        ({"top_k": 1, "positions": "last", "read_point": "unsteered"}, "return_sae_activations.read_point"),
        ({"top_k": 1, "positions": "last", "read_point": 1}, "return_sae_activations.read_point"),
    ],
)
def test_a_wrong_shape_is_refused_naming_the_key(wire: object, param: str) -> None:
    with pytest.raises(SaeActivationsRefused) as caught:
        ActivationSpec.from_wire(wire)
    assert caught.value.code == "sae_activations_refused"
    assert caught.value.param == param


def test_a_refusal_stays_short_whatever_was_sent() -> None:
    with pytest.raises(SaeActivationsRefused) as caught:
        ActivationSpec.from_wire({"x" * 10_000: 1})
    assert len(caught.value.message) < 250
    with pytest.raises(SaeActivationsRefused) as caught:
        ActivationSpec.from_wire({"top_k": 1, "positions": "y" * 10_000})
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ({"choices": 2}, "2 choices"),
        ({"choices": 1, "prompts": 3}, "3 prompts"),
        ({"choices": 1, "extra_messages": True}, "'extra_messages'"),
    ],
)
def test_more_than_one_answer_has_no_one_axis_of_positions(shape: dict[str, int], word: str) -> None:
    with pytest.raises(SaeActivationsRefused, match=word) as caught:
        require_one_answer(**shape)  # type: ignore[arg-type]
    assert caught.value.param == "return_sae_activations"
    require_one_answer(choices=1)


def test_limits_come_from_the_settings() -> None:
    assert CaptureLimits.from_settings(EngineSettings()) == CaptureLimits(64, 65_536, 512)
    changed = EngineSettings(
        SAE_ACTIVATIONS_MAX_TOP_K=3, SAE_ACTIVATIONS_MAX_ENTRIES=40, SAE_ACTIVATIONS_ENCODE_CHUNK=2
    )
    assert CaptureLimits.from_settings(changed) == CaptureLimits(3, 40, 2)
