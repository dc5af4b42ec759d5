"""The length of what is added: of the sum of decoder rows, never the sum of strengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.steering import transitions
from engine.steering.push import Push, dial_end, first_strength, length_of, pushes, told
from engine.steering.strengths import SteeredSet
from tests.engine.steering.made import attachment, make_desk

PLACE = ("a", 2)


@pytest.mark.parametrize(
    ("strengths", "length"),
    [
        # Features 0 and 1 are unit rows at right angles, feature 4 is twice feature 0.
        ({0: 3.0, 1: 4.0}, 5.0),
        ({0: 3.0, 4: 2.0}, 7.0),
        ({0: 3.0, 4: -2.0}, 1.0),
        ({0: -3.0}, 3.0),
        ({0: 1.0, 1: 2.0, 2: 2.0}, 3.0),
    ],
)
def test_the_length_is_that_of_the_sum(strengths: dict[int, float], length: float) -> None:
    (found,) = pushes([SteeredSet.of("a", 2, strengths)], [attachment("a", 2)], {2: 20.0})
    assert (found.layer, found.length, found.share) == (2, length, length / 20)


def test_the_dial_scales_it_and_a_clamped_strength_counts_as_it_is_added() -> None:
    """At λ 2 strengths 120 and 160 of orthogonal rows are 200 and 200: 200·√2 long, not 400."""
    one, two = (
        pushes([SteeredSet.of("a", 2, {0: 120.0, 1: 160.0}, intensity)], [attachment("a", 2)], {})[0]
        for intensity in (1.0, 2.0)
    )
    assert (one.length, one.share) == (200.0, None)
    assert two.length == pytest.approx(282.8427, abs=1e-4)


def test_two_saes_of_one_layer_add_one_vector_and_layers_stand_apart() -> None:
    attached = [attachment("a", 2), attachment("b", 2), attachment("c", 5)]
    sets = [SteeredSet.of("b", 2, {1: 4.0}), SteeredSet.of("c", 5, {0: 1.0}), SteeredSet.of("a", 2, {0: 3.0})]
    assert pushes(sets, attached, {2: 10.0}) == (Push(2, 5.0, 10.0), Push(5, 1.0, None))
    assert pushes([SteeredSet.of("a", 2, {})], attached, {}) == ()


def test_a_plan_knows_how_long_its_vectors_are() -> None:
    desk = make_desk(PLACE)
    assert dict(desk.live_plan.lengths) == {}
    desk.apply(transitions.set_values(PLACE, {0: 3.0, 1: 4.0}))
    assert dict(desk.live_plan.lengths) == {2: 5.0}
    desk.apply(transitions.set_enabled(PLACE, False))
    assert dict(desk.live_plan.lengths) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_format(dtype: Any) -> None:
    assert length_of(torch.tensor([3.0, 0.0, -4.0], dtype=dtype)) == 5.0


def test_in_words() -> None:
    assert told([Push(15, 38.955, 173.0), Push(20, 12.0)]) == "39 at layer 15, 0.23 × typical norm; 12 at layer 20"


@pytest.mark.parametrize(
    ("row", "norm", "first", "end"),
    [
        (1.0, 172.67, 25.9, 103.6),
        (2.0, 100.0, 7.5, 30.0),
        (0.5, 900.0, 200.0, 200.0),
        (1.0, None, 1.0, 50.0),
        (0.0, 100.0, 1.0, 50.0),
    ],
)
def test_the_first_strength_and_the_end_of_a_dial(row: float, norm: float | None, first: float, end: float) -> None:
    """0.15 and 0.6 of the norm in lengths of the row, within ±200; stated values where there is nothing to go by."""
    assert (first_strength(row, norm), dial_end(row, norm)) == (first, end)
