"""What a live state comes to: what adds up, which rung may be claimed, what a dial may act on."""

from __future__ import annotations

import pytest

from engine.steering import transitions
from engine.steering.desk import SteeringDesk
from engine.steering.dial import CircuitBase, LiveBase, ProfileBase
from engine.steering.errors import SteeringInvalid
from engine.steering.live import (
    LiveState,
    bases,
    circuit_steers,
    profile_steers,
    redialled_profile,
    scaled_manual,
    together,
)
from engine.steering.strengths import SteeredSet
from tests.engine.steering.made import make_desk, serving_circuit, serving_profile

A, B = ("a", 2), ("b", 5)


def desk_with(*circuits: object, **changes: object) -> SteeringDesk:
    desk = make_desk(A, B)
    for each in circuits:
        desk.apply(transitions.serve_circuit(each))  # type: ignore[arg-type]
    return desk


def test_what_is_off_adds_nothing() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 2.0}, B: {1: 3.0}})))
    assert together(desk.state) == (
        SteeredSet("a", 2, ((0, 1.0), (1, 2.0))),
        SteeredSet("b", 5, ((1, 3.0),)),
    )
    desk.apply(transitions.set_enabled(A, False))
    assert together(desk.state) == (SteeredSet("b", 5, ((1, 3.0),)),)


def test_a_sum_of_owners_on_one_feature_is_refused_naming_them() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {1: 1.0}))
    with pytest.raises(SteeringInvalid) as caught:
        desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 2.0}})))
    assert caught.value.details == {"feature_idx": 1, "owners": ["hand-set values", "circuit circ_1"]}


# --- rungs ------------------------------------------------------------------------------------------------------------

ONE = serving_circuit("circ_1", {A: {1: 2.0}, B: {1: 3.0}}, rung=2)


def test_the_rung_of_the_one_circuit_that_steers_is_claimed() -> None:
    assert desk_with(ONE).live_plan.rung == 2
    assert desk_with(serving_circuit("circ_1", {A: {1: 2.0}}, rung=0)).live_plan.rung == 0
    assert desk_with().live_plan.rung is None


def test_a_rung_is_claimed_beside_other_steering() -> None:
    desk = desk_with(ONE)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    assert desk.live_plan.rung == 2


def test_a_circuit_that_adds_nothing_is_in_nobodys_way() -> None:
    assert desk_with(ONE, serving_circuit("circ_2", {A: {3: 1.0}}, rung=3, intensity=0.0)).live_plan.rung == 2


@pytest.mark.parametrize(
    "circuits",
    [
        [serving_circuit("circ_1", {A: {1: 2.0}}, intensity=0.0)],
        [serving_circuit("circ_1", {A: {1: 2.0}}, rung=None)],
        [serving_circuit("circ_1", {A: {1: 2.0}}, composed=True)],
        [ONE, serving_circuit("circ_2", {A: {3: 1.0}})],
    ],
    ids=["adds nothing", "document unreadable", "shares a layer", "one of two"],
)
def test_no_rung_is_claimed(circuits: list[object]) -> None:
    assert desk_with(*circuits).live_plan.rung is None


def test_no_rung_for_a_circuit_that_is_not_whole() -> None:
    desk = desk_with(ONE)
    desk.apply(transitions.set_enabled(A, False))
    assert desk.live_plan.rung is None
    desk.apply(transitions.set_enabled(A, True))
    assert desk.live_plan.rung == 2


def test_what_is_left_of_a_circuit_claims_nothing() -> None:
    """The evidence is the whole circuit's; with a layer's SAE detached nobody has measured what remains."""
    desk = desk_with(ONE)
    assert desk.live_plan.rung == 2
    desk.apply(transitions.detach("a"))
    assert not desk.live_plan.is_empty
    assert desk.live_plan.rung is None
    desk.apply(transitions.detach("b"))
    assert desk.live_plan.rung is None


# --- what a dial may act on -------------------------------------------------------------------------------------------


def test_nothing_is_a_base_without_values() -> None:
    assert bases(make_desk(A).state) == ([], None, LiveBase(has_values=False, enabled=False))
    assert bases(LiveState()) == ([], None, LiveBase(has_values=False, enabled=False))


def test_hand_set_values_are_a_base_while_they_are_on() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    assert bases(desk.state)[2] == LiveBase(has_values=True, enabled=True)
    desk.apply(transitions.set_enabled(A, False))
    assert bases(desk.state)[2] == LiveBase(has_values=True, enabled=False)
    desk.apply(transitions.set_enabled(B, True))
    assert bases(desk.state)[2] == LiveBase(has_values=True, enabled=False)


def test_the_active_profile_is_a_base() -> None:
    desk = make_desk(A)
    desk.apply(
        transitions.activate_profile(
            serving_profile(A, {0: 1.0}, is_cluster=True, intensity=0.5, declared=(0.25, 1.75))
        )
    )
    assert bases(desk.state)[1] == ProfileBase(True, True, 0.5, (0.25, 1.75), enabled=True)
    desk.apply(transitions.set_enabled(A, False))
    active = bases(desk.state)[1]
    assert active is not None and not active.enabled
    desk.apply(transitions.detach("a"))
    active = bases(desk.state)[1]
    assert active is not None and not active.enabled


def test_circuits_are_bases_and_say_whether_they_steer() -> None:
    desk = desk_with(
        serving_circuit("circ_1", {A: {1: 2.0}}, declared=(0.2, 1.4)),
        serving_circuit("circ_2", {B: {1: 2.0}}, intensity=0.0),
    )
    assert bases(desk.state)[0] == [CircuitBase((0.2, 1.4), steers=True), CircuitBase(None, steers=False)]
    desk.apply(transitions.set_enabled(A, False))
    assert [circuit_steers(desk.state, one) for one in desk.state.circuits] == [False, False]


def test_a_profile_steers_with_values_that_are_on() -> None:
    desk = make_desk(A)
    assert not profile_steers(desk.state)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    assert profile_steers(desk.state)
    desk.apply(transitions.set_enabled(A, False))
    assert not profile_steers(desk.state)
    desk.apply(transitions.activate_profile(serving_profile(None, {})))
    assert not profile_steers(desk.state)


def test_values_are_scaled_by_place() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 150.0}))
    desk.apply(transitions.activate_profile(serving_profile(B, {1: 120.0}, intensity=2.0)))
    assert scaled_manual(desk.state, 2.0) == {A: {0: 200.0}, B: {1: 200.0}}
    assert redialled_profile(desk.state, 0.5) == {A: {0: 150.0}, B: {1: 60.0}}
