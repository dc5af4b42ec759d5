from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.steering.errors import SteeringInvalid
from engine.steering.strengths import SteeredSet, applied, check_typed, clamp, combined

NOT_FINITE = [float("nan"), float("inf"), float("-inf")]
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SETS = st.dictionaries(st.integers(0, 2**31 - 1), FINITE, max_size=12)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0.0), (12.5, 12.5), (200.0, 200.0), (200.5, 200.0), (-200.5, -200.0), (1e308, 200.0), (-1e308, -200.0)],
)
def test_clamp(value: float, expected: float) -> None:
    assert clamp(value) == expected


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_is_not_finite_is_refused_and_never_clamped(value: float) -> None:
    with pytest.raises(SteeringInvalid):
        clamp(value)
    with pytest.raises(SteeringInvalid):
        applied({3: value})
    with pytest.raises(SteeringInvalid):
        applied({3: value}, 0.0)
    with pytest.raises(SteeringInvalid):
        applied({3: 1.0}, value)
    with pytest.raises(SteeringInvalid):
        applied({}, value)


def test_strengths_are_scaled_clamped_counted_and_freed_of_zeros() -> None:
    result = applied({900: 0.0, 12: -0.0, 5: 0.1, 77: -2.5, 3: 500.0, 4: -101.0}, 2.0)
    assert result.strengths == ((3, 200.0), (4, -200.0), (5, 0.2), (77, -5.0))
    assert result.clamped == 2


def test_clamping_is_not_carried_over() -> None:
    authored = {1: 150.0}
    assert applied(authored, 2.0).strengths == ((1, 200.0),)
    assert applied(authored, 1.0).strengths == ((1, 150.0),)


def test_a_value_exactly_on_the_bound_is_not_counted() -> None:
    assert applied({1: 100.0}, 2.0) == applied({1: 200.0})
    assert applied({1: 100.0}, 2.0).clamped == 0


def test_intensity_0_is_nothing() -> None:
    assert applied({1: 5.0, 2: -5.0}, 0.0).strengths == ()


def test_a_product_too_large_for_a_double_is_clamped() -> None:
    assert applied({1: 1e308, 2: -1e308}, 2.0).strengths == ((1, 200.0), (2, -200.0))


@given(FINITE)
def test_clamped_values_stay_inside_and_inside_values_stay(value: float) -> None:
    clamped = clamp(value)
    assert -200.0 <= clamped <= 200.0
    assert clamp(clamped) == clamped
    if -200.0 <= value <= 200.0:
        assert clamped == value
    else:
        assert abs(clamped) == 200.0 and math.copysign(1, clamped) == math.copysign(1, value)


@given(SETS, st.floats(0, 2))
def test_what_is_applied_is_always_a_valid_set(authored: dict[int, float], intensity: float) -> None:
    steered = SteeredSet.of("a", 1, authored, intensity)
    assert all(value != 0 and math.isfinite(value) and abs(value) <= 200 for value in steered.values.values())
    assert [index for index, _ in steered.strengths] == sorted(steered.values)
    assert set(steered.values) <= set(authored)
    assert steered.clamped <= len(steered.strengths)
    for index, value in steered.strengths:
        assert math.copysign(1, value) == math.copysign(1, authored[index])


@given(SETS)
def test_applying_again_changes_nothing(authored: dict[int, float]) -> None:
    once = applied(authored)
    assert applied(dict(once.strengths)).strengths == once.strengths
    assert applied(dict(once.strengths)).clamped == 0


@pytest.mark.parametrize(
    "strengths", [((1, 0.0),), ((1, -0.0),), ((1, 201.0),), ((2, 1.0), (1, 1.0)), ((1, 1.0), (1, 2.0)), ((-1, 1.0),)]
)
def test_a_set_that_could_not_have_been_applied_is_refused(strengths: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError):
        SteeredSet("a", 1, strengths)


def test_a_set_may_be_empty() -> None:
    assert SteeredSet("a", 1, ()).is_empty
    assert not SteeredSet.of("a", 1, {1: 1.0}).is_empty


@pytest.mark.parametrize("value", [200.0, -200.0, 0.0, 12.5])
def test_typed_values_inside(value: float) -> None:
    assert check_typed(value, param="value") == value


@pytest.mark.parametrize("value", [200.01, -201.0, *NOT_FINITE])
def test_typed_values_outside_are_refused(value: float) -> None:
    with pytest.raises(SteeringInvalid) as caught:
        check_typed(value, param="value")
    assert caught.value.param == "value" and caught.value.code == "validation_error"


def test_owners_steer_together() -> None:
    assert combined([("circuit:a", {1: 2.0}), ("circuit:b", {3: -4.0})]) == {1: 2.0, 3: -4.0}
    assert combined([]) == {}


def test_two_owners_of_one_feature_are_refused() -> None:
    with pytest.raises(SteeringInvalid) as caught:
        combined([("circuit:a", {1: 2.0, 3: 1.0}), ("circuit:b", {3: -4.0})])
    assert caught.value.details == {"feature_idx": 3, "owners": ["circuit:a", "circuit:b"]}
