from __future__ import annotations

from typing import Any

import pytest

from engine.documents.binding import AttachedSae
from engine.errors import InvalidParameter, MillmError, SaeNotAttached
from engine.saes.errors import InvalidFeatureIndex
from engine.steering.inline import InlineSteering, aim, check_combination, parse_inline
from engine.steering.strengths import SteeredSet

A6 = AttachedSae("a", 6, 100, 16)
A9 = AttachedSae("a", 9, 100, 16)
B9 = AttachedSae("b", 9, 200, 16)


def _one(index: Any = 1, strength: Any = 2.0, **more: Any) -> dict[str, Any]:
    return {"features": [{"index": index, "strength": strength, **more}]}


def test_absent() -> None:
    assert parse_inline(None) is None


def test_a_set() -> None:
    parsed = parse_inline({"sae_id": "a", "features": [{"index": 9, "strength": -3}, {"index": 0, "strength": 1.5}]})
    assert parsed == InlineSteering("a", ((0, 1.5), (9, -3.0)))
    assert parsed is not None and not parsed.is_unsteered


def test_no_features_is_explicitly_unsteered_and_needs_no_sae() -> None:
    for value in ({"features": []}, {"features": [], "sae_id": None}):
        parsed = parse_inline(value)
        assert parsed is not None and parsed.is_unsteered
        assert aim(parsed, []) is None
        assert aim(parsed, [A6, B9]) is None


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (True, "steering"),
        ([], "steering"),
        ("calm", "steering"),
        ({}, "steering.features"),
        ({"features": None}, "steering.features"),
        ({"features": {}}, "steering.features"),
        ({"features": [], "sae_id": "a"}, "steering.sae_id"),
        ({**_one(), "sae_id": 3}, "steering.sae_id"),
        ({**_one(), "sae_id": ""}, "steering.sae_id"),
        ({**_one(), "layer": 6}, "steering.layer"),
        ({"features": [1]}, "steering.features.0"),
        ({"features": [{"strength": 1}]}, "steering.features.0.index"),
        ({"features": [{"index": 1}]}, "steering.features.0.strength"),
        (_one(index=-1), "steering.features.0.index"),
        (_one(index=True), "steering.features.0.index"),
        (_one(index=1.0), "steering.features.0.index"),
        (_one(index="1"), "steering.features.0.index"),
        (_one(strength=True), "steering.features.0.strength"),
        (_one(strength="1"), "steering.features.0.strength"),
        (_one(strength=None), "steering.features.0.strength"),
        (_one(strength=float("nan")), "steering.features.0.strength"),
        (_one(strength=float("inf")), "steering.features.0.strength"),
        (_one(strength=10**400), "steering.features.0.strength"),
        (_one(gain=2), "steering.features.0.gain"),
        ({"features": [*_one()["features"], *_one(2)["features"], *_one()["features"]]}, "steering.features.2.index"),
    ],
)
def test_what_is_refused_before_anything_loads(value: Any, param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse_inline(value)
    assert caught.value.param == param
    assert param in caught.value.message


def _aim(value: dict[str, Any], *attached: AttachedSae) -> SteeredSet | None:
    parsed = parse_inline(value)
    assert parsed is not None
    return aim(parsed, attached)


def test_the_only_sae_is_meant() -> None:
    assert _aim(_one(), A6) == SteeredSet("a", 6, ((1, 2.0),))


def test_the_named_sae_is_meant() -> None:
    assert _aim({**_one(), "sae_id": "b"}, A6, B9) == SteeredSet("b", 9, ((1, 2.0),))


def test_strengths_are_clamped_and_counted_and_zeros_dropped() -> None:
    features = [(1, 500), (2, -201), (3, 0), (4, -0.0), (5, 200)]
    value = {"features": [{"index": index, "strength": strength} for index, strength in features]}
    assert _aim(value, A6) == SteeredSet("a", 6, ((1, 200.0), (2, -200.0), (5, 200.0)), clamped=2)


@pytest.mark.parametrize(
    ("value", "attached", "error", "param", "words"),
    [
        (_one(), [], SaeNotAttached, "steering", "no SAE is attached"),
        ({**_one(), "sae_id": "x"}, [A6, B9], SaeNotAttached, "steering.sae_id", "'a' at layer 6, 'b' at layer 9"),
        (_one(), [A6, B9], InvalidParameter, "steering.sae_id", "'a' at layer 6, 'b' at layer 9"),
        (
            {**_one(), "sae_id": "a"},
            [A6, A9, B9],
            InvalidParameter,
            "steering.sae_id",
            "'a' at layer 6, 'a' at layer 9",
        ),
        (_one(index=100), [A6], InvalidFeatureIndex, "steering.features", "0 to 99; the request names 100"),
    ],
)
def test_what_cannot_be_aimed(
    value: dict[str, Any], attached: list[AttachedSae], error: type[MillmError], param: str, words: str
) -> None:
    with pytest.raises(error) as caught:
        _aim(value, *attached)
    assert caught.value.param == param
    assert words in caught.value.message
    assert caught.value.remedy


def test_an_index_outside_names_the_width() -> None:
    with pytest.raises(InvalidFeatureIndex) as caught:
        _aim({"features": [{"index": index, "strength": 1} for index in (5, 300, 200)]}, A6)
    assert caught.value.details == {"feature_idx": 200, "d_sae": 100, "attached_d_sae": 100, "bad_indices": [200, 300]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"profile": "calm"}, "'profile'"),
        ({"steering_intensity": 0}, "'steering_intensity'"),
        ({"profile": "", "steering_intensity": "off"}, "'profile' and 'steering_intensity'"),
    ],
)
def test_a_set_cannot_be_combined(fields: dict[str, Any], named: str) -> None:
    absent = {"profile": None, "steering_intensity": None}
    check_combination(steering=None, **{**absent, **fields})
    check_combination(steering={"features": []}, **absent)
    with pytest.raises(InvalidParameter) as caught:
        check_combination(steering={"features": []}, **{**absent, **fields})
    assert named in caught.value.message and caught.value.param == "steering"
