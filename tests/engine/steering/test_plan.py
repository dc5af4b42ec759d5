"""Plans: what is summed, cast once, and what their cache key covers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from engine.steering.plan import EMPTY_PLAN, ResidualSpec, SteeringPlan, build_plan
from engine.steering.report import NO_STEERING, describe
from engine.steering.strengths import SteeredSet
from tests.engine.steering.made import attachment, stream

ATTACHED = [attachment("a", 2), attachment("b", 2), attachment("c", 5)]


def build(*sets: SteeredSet, **changes: object) -> SteeringPlan:
    return build_plan(sets, ATTACHED, stream(**changes), report=describe(sets), rung=2, version=7)


def test_sets_of_one_layer_are_summed_in_the_streams_format() -> None:
    plan = build(
        SteeredSet("c", 5, ((0, -1.0),)),
        SteeredSet("a", 2, ((0, 2.0), (5, 3.0))),
        SteeredSet("b", 2, ((1, 0.5),)),
        dtype=torch.bfloat16,
    )
    assert {layer: delta.tolist() for layer, delta in plan.deltas.items()} == {
        2: [2.0, 6.5, 0.0, 0.0],
        5: [-1.0, 0.0, 0.0, 0.0],
    }
    assert {delta.dtype for delta in plan.deltas.values()} == {torch.bfloat16}
    assert (plan.rung, plan.version, plan.is_empty) == (2, 7, False)
    assert plan.uses("b") and not plan.uses("d")


def test_a_sum_is_cast_once() -> None:
    """In bfloat16 1 + 2⁻⁸ is 1, and 1 + 2⁻⁷ is itself: cast one by one, two halves of 2⁻⁷ would be lost."""
    half = SteeredSet("a", 2, ((0, 1.0), (4, 0.001953125)))
    assert build(half, dtype=torch.bfloat16).deltas[2].tolist() == [1.0, 0.0, 0.0, 0.0]
    both = build(half, SteeredSet("b", 2, ((0, 0.00390625),)), dtype=torch.bfloat16)
    assert both.deltas[2].tolist() == [1.0078125, 0.0, 0.0, 0.0]


def test_nothing_to_add_is_the_empty_plan_with_its_number() -> None:
    plan = build(SteeredSet("a", 2, ()))
    assert plan.is_empty and plan.digest == "" and plan.sets == ()
    assert (plan.report, plan.version) == (NO_STEERING, 7)
    assert EMPTY_PLAN.is_empty and EMPTY_PLAN.version == 0


def test_a_plan_cannot_be_changed() -> None:
    plan = build(SteeredSet("a", 2, ((0, 1.0),)))
    with pytest.raises(FrozenInstanceError):
        plan.version = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.deltas[3] = torch.zeros(4)  # type: ignore[index]


ONE = SteeredSet("a", 2, ((0, 2.0),))


def test_equal_vectors_have_equal_digests_whatever_they_are_called() -> None:
    digest = build(ONE).digest
    assert len(digest) == 64
    assert build(ONE).digest == digest
    assert build(SteeredSet("b", 2, ((0, 2.0),))).digest == digest
    assert build(SteeredSet("a", 2, ((4, 1.0),))).digest == digest
    assert replace(build(ONE), version=9).digest == digest


@pytest.mark.parametrize(
    "other",
    [
        lambda: build(SteeredSet("a", 2, ((0, 2.5),))),
        lambda: build(SteeredSet("a", 2, ((1, 2.0),))),
        lambda: build(SteeredSet("c", 5, ((0, 2.0),))),
        lambda: build(ONE, SteeredSet("c", 5, ((0, 2.0),))),
        lambda: build(ONE, dtype=torch.bfloat16),
        lambda: build(ONE, steer_first=True),
        lambda: build(ONE, model_name="other"),
    ],
    ids=["strength", "feature", "layer", "one layer more", "number format", "position rule", "model"],
)
def test_what_makes_another_answer_makes_another_digest(other: object) -> None:
    assert callable(other)
    assert other().digest != build(ONE).digest


def test_an_edited_sae_under_the_same_name_makes_another_digest() -> None:
    report = describe([ONE])
    edited = build_plan([ONE], [attachment("a", 2, scale=1.5)], stream(), report=report)
    assert edited.digest != build(ONE).digest
    assert edited.report == build(ONE).report


def test_the_position_rule_is_a_word() -> None:
    first: ResidualSpec = stream(steer_first=True)
    assert (stream().position_rule, first.position_rule) == ("all-but-first", "all")
