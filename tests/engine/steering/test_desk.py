"""The desk: atomic changes, the number of the live plan, owners that leave without taking others along."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from engine.errors import SaeNotAttached
from engine.events import EventBus
from engine.saes.errors import InvalidFeatureIndex
from engine.steering import transitions
from engine.steering.desk import Snapshot, SteeringDesk
from engine.steering.errors import SteeringInvalid
from engine.steering.live import LiveState
from tests.engine.steering.made import (
    attachment,
    deltas,
    heard,
    make_desk,
    serving_circuit,
    serving_profile,
    stream,
    updates,
    values,
)

A, B = ("a", 2), ("b", 5)
"""Two SAEs at their layers."""


# --- values -----------------------------------------------------------------------------------------------------------


def test_hand_set_values_merge_and_switch_on() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 2.0, 5: -1.5}))
    desk.apply(transitions.set_values(A, {5: 3.0, 1: 250.0}))
    assert values(desk, A) == {0: 2.0, 5: 3.0, 1: 200.0}
    assert deltas(desk) == {2: [2.0, 206.0, 0.0, 0.0]}
    desk.apply(transitions.set_values(A, {2: 1.0}, replace_all=True))
    assert values(desk, A) == {2: 1.0}


def test_the_last_feature_leaving_switches_off() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 2.0, 1: 1.0}))
    desk.apply(transitions.remove_value(A, 0))
    assert desk.state.entry(A).enabled
    desk.apply(transitions.remove_value(A, 1))
    assert not desk.state.entry(A).enabled
    assert desk.live_plan.is_empty


def test_off_keeps_the_values() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.set_enabled(A, False))
    assert values(desk, A) == {0: 2.0}
    assert desk.live_plan.is_empty
    desk.apply(transitions.set_enabled(A, True))
    assert deltas(desk) == {2: [2.0, 0.0, 0.0, 0.0]}


def test_clear_takes_values_out_and_switches_off() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.set_values(B, {0: 3.0}))
    desk.apply(transitions.clear(A))
    assert values(desk, A) == {} and not desk.state.entry(A).enabled
    assert deltas(desk) == {5: [3.0, 0.0, 0.0, 0.0]}


def test_minus_zero_is_zero_and_zero_adds_nothing() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: -0.0}))
    assert str(values(desk, A)) == "{0: 0.0}"
    assert desk.live_plan.is_empty


def test_restore_brings_values_back_but_not_those_of_an_sae_that_is_gone() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.set_values(B, {1: 3.0}))
    before = desk.state
    desk.apply(transitions.clear(A))
    desk.apply(transitions.detach("b"))
    desk.apply(transitions.restore(before))
    assert values(desk, A) == {0: 2.0} and values(desk, B) == {}
    assert deltas(desk) == {2: [2.0, 0.0, 0.0, 0.0]}


# --- refusals ---------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[SteeringDesk], object], type[Exception]]] = {
    "an index outside": (lambda desk: desk.apply(transitions.set_values(A, {0: 1.0, 48: 1.0})), InvalidFeatureIndex),
    "NaN": (lambda desk: desk.apply(transitions.set_values(A, {0: float("nan")})), SteeringInvalid),
    "infinity": (lambda desk: desk.apply(transitions.set_values(A, {0: float("inf")})), SteeringInvalid),
    "nobody there": (lambda desk: desk.apply(transitions.set_values(("c", 2), {0: 1.0})), SaeNotAttached),
    "another layer": (lambda desk: desk.apply(transitions.clear(("a", 5))), SaeNotAttached),
    "a profile without its SAE": (
        lambda desk: desk.apply(transitions.activate_profile(serving_profile(("c", 2), {0: 1.0}))),
        SaeNotAttached,
    ),
    "a circuit without one of its SAEs": (
        lambda desk: desk.apply(
            transitions.serve_circuit(serving_circuit("circ_2", {A: {9: 1.0}, ("c", 9): {1: 1.0}}))
        ),
        SaeNotAttached,
    ),
    "a hand-set feature of a circuit": (lambda desk: desk.apply(transitions.set_values(A, {7: 1.0})), SteeringInvalid),
    "a circuit on a hand-set feature": (
        lambda desk: desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {B: {3: 1.0}, A: {0: 1.0}}))),
        SteeringInvalid,
    ),
    "two circuits on one feature": (
        lambda desk: desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {A: {7: 1.0}}))),
        SteeringInvalid,
    ),
    "a profile on a circuit's feature": (
        lambda desk: desk.apply(transitions.activate_profile(serving_profile(A, {7: 1.0}))),
        SteeringInvalid,
    ),
    "a profile with a NaN strength": (
        lambda desk: desk.apply(transitions.activate_profile(serving_profile(A, {1: float("nan")}))),
        SteeringInvalid,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_change_leaves_everything_as_it_was(case: str) -> None:
    events = EventBus()
    desk = make_desk(A, B, events=events)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {7: 1.0}, B: {1: 4.0}})))
    before, found = desk.now, heard(events)
    change, error = REFUSED[case]
    with pytest.raises(error):
        change(desk)
    assert desk.now is before
    assert found == []


def test_a_sum_that_the_number_format_cannot_hold_is_refused() -> None:
    desk = SteeringDesk(EventBus())
    desk.apply(transitions.open_for(stream(dtype=torch.float16)))
    desk.apply(transitions.attach([attachment("a", 2, scale=1000.0)]))
    desk.apply(transitions.set_values(A, {0: 60.0}))
    before = desk.now
    with pytest.raises(SteeringInvalid) as caught:
        desk.apply(transitions.set_values(A, {0: 66.0}))
    assert "layer 2" in caught.value.message and "float16" in caught.value.message
    assert desk.now is before


# --- the number of the live plan --------------------------------------------------------------------------------------


def test_every_change_raises_the_number_by_one_and_is_announced_once() -> None:
    events = EventBus()
    desk = SteeringDesk(events)
    found = heard(events)
    desk.apply(transitions.open_for(stream()))
    assert (desk.state.version, found) == (0, [])
    changes: list[Callable[[], object]] = [
        lambda: desk.apply(transitions.attach([attachment("a", 2), attachment("b", 5)])),
        lambda: desk.apply(transitions.set_values(A, {0: 2.0})),
        lambda: desk.apply(transitions.set_enabled(A, False)),
        lambda: desk.apply(transitions.set_enabled(A, True)),
        lambda: desk.apply(transitions.remove_value(A, 0)),
        lambda: desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0}))),
        lambda: desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}}))),
        lambda: desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}}, intensity=0.5))),
        lambda: desk.apply(transitions.stop_circuit("circ_1")),
        lambda: desk.apply(transitions.deactivate_profile("prof_1")),
        lambda: desk.apply(transitions.detach("b")),
        lambda: desk.apply(transitions.close()),
    ]
    for number, change in enumerate(changes, 1):
        change()
        assert (desk.state.version, desk.live_plan.version, len(found)) == (number, number, number)
    assert [each.version for each in updates(found)] == list(range(1, 13))


def test_a_change_that_changes_nothing_is_none() -> None:
    events = EventBus()
    desk = make_desk(A, B, events=events)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {A: {9: 1.0}})))
    before, found = desk.now, heard(events)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.set_enabled(A, True))
    desk.apply(transitions.remove_value(A, 3))
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}})))
    desk.apply(transitions.mark_composed({"circ_1": False, "circ_9": True}))
    desk.apply(transitions.stop_circuit("circ_9"))
    desk.apply(transitions.deactivate_profile("prof_9"))
    desk.apply(transitions.detach("c"))
    desk.apply(transitions.restore(desk.state))
    empty = make_desk(A, B)
    empty_before = empty.now
    empty.apply(transitions.clear(A))
    empty.apply(transitions.set_enabled(A, False))
    assert empty.now is empty_before
    assert desk.now is before
    assert found == []


def test_claims_and_labels_change_what_is_said_and_not_the_number() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}})))
    version = desk.state.version
    desk.apply(transitions.mark_composed({"circ_1": True}))
    desk.apply(transitions.relabel_profile(serving_profile(None, {0: 1.0}, name="calmer", intensity=0.25)))
    assert desk.state.version == desk.live_plan.version == version
    text = desk.live_plan.report.text()
    assert text.startswith('circuit;id="circ_1";intensity="1.0";composed, profile;name="calmer";source=active;')
    assert desk.live_plan.rung is None
    assert desk.state.profile is not None and (desk.state.profile.place, desk.state.profile.intensity) == (A, 1.0)


def test_the_announcement_has_the_first_sae_and_all_places() -> None:
    events = EventBus()
    desk = make_desk(A, B, events=events)
    found = heard(events)
    desk.apply(transitions.set_values(B, {10: 2.0, 9: -1.0}))
    (update,) = updates(found)
    assert update.data() == {
        "enabled": False,
        "values": {},
        "active_count": 2,
        "version": 2,
        "report": desk.live_plan.report.text(),
        "entries": [
            {"sae_id": "a", "layer": 2, "enabled": False, "values": {}},
            {"sae_id": "b", "layer": 5, "enabled": True, "values": {"9": -1.0, "10": 2.0}},
        ],
    }


# --- several changes as one -------------------------------------------------------------------------------------------


def test_several_changes_are_one() -> None:
    events = EventBus()
    desk = make_desk(A, B, events=events)
    before, found = desk.now, heard(events)
    with desk.changes() as draft:
        desk.apply(transitions.set_values(A, {0: 2.0}))
        desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}})))
        assert [each.sae_id for each in desk.apply(transitions.detach("a")).attachments] == ["b"]
        assert desk.apply(transitions.stop_circuit("circ_1")) == desk.apply(transitions.stop_circuit("circ_1"))
        assert draft.state.circuits == ()
        desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {B: {0: 1.0}})))
        assert desk.now is before
        assert [each.sae_id for each in draft.state.attachments] == ["b"]
        assert found == []
    assert desk.state.version == draft.state.version == before.state.version + 1
    assert deltas(desk) == {5: [1.0, 0.0, 0.0, 0.0]}
    assert len(found) == 1


def test_an_error_undoes_all_of_them() -> None:
    events = EventBus()
    desk = make_desk(A, B, events=events)
    before, found = desk.now, heard(events)

    def fail_late() -> None:
        with desk.changes():
            desk.apply(transitions.set_values(A, {0: 2.0}))
            desk.apply(transitions.close())
            raise KeyError

    with pytest.raises(KeyError):
        fail_late()
    assert desk.now is before and found == []
    desk.apply(transitions.set_values(A, {0: 2.0}))
    assert desk.state.version == before.state.version + 1


def test_a_failed_part_may_be_caught_and_is_undone_alone() -> None:
    desk = make_desk(A, B)

    def part() -> None:
        with desk.changes():
            desk.apply(transitions.set_values(A, {1: 2.0}))
            desk.apply(transitions.set_values(A, {2: float("nan")}))

    with desk.changes():
        desk.apply(transitions.set_values(A, {0: 2.0}))
        with pytest.raises(SteeringInvalid):
            part()
    assert values(desk, A) == {0: 2.0}


def test_changes_that_cancel_out_are_none() -> None:
    desk = make_desk(A, B)
    before = desk.now
    with desk.changes():
        desk.apply(transitions.set_values(A, {0: 2.0}))
        desk.apply(transitions.clear(A))
    assert desk.now is before


def test_others_wait_and_readers_do_not() -> None:
    desk = make_desk(A, B)
    before = desk.now
    reading: list[Snapshot] = []
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(30)
        reading.append(desk.now)
        done.set()
        desk.apply(transitions.set_values(B, {1: 1.0}))

    thread = threading.Thread(target=other)
    thread.start()
    with desk.changes():
        desk.apply(transitions.set_values(A, {0: 2.0}))
        inside.set()
        assert done.wait(30)
        assert reading == [before]
    thread.join(30)
    assert (values(desk, A), values(desk, B)) == ({0: 2.0}, {1: 1.0})
    assert desk.state.version == before.state.version + 2


# --- attachments ------------------------------------------------------------------------------------------------------


def test_detaching_an_sae_on_two_layers_cleans_both() -> None:
    desk = make_desk(("a", 2), ("a", 5), ("b", 2))
    desk.apply(transitions.set_values(("a", 2), {0: 1.0}))
    desk.apply(transitions.set_values(("a", 5), {0: 1.0}))
    desk.apply(transitions.set_values(("b", 2), {1: 1.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {("a", 5): {9: 1.0}, ("b", 2): {9: 1.0}})))
    desk.apply(transitions.detach("a"))
    assert [(each.sae_id, each.layer) for each in desk.state.attachments] == [("b", 2)]
    assert list(desk.state.entries) == [("b", 2)]
    assert dict(desk.state.circuits[0].authored) == {("b", 2): {9: 1.0}}
    assert deltas(desk) == {2: [0.0, 4.0, 0.0, 0.0]}


def test_a_profile_whose_sae_is_detached_has_no_place() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.detach("a"))
    assert desk.state.profile is not None and desk.state.profile.place is None
    assert desk.live_plan.is_empty
    desk.apply(transitions.attach([attachment("a", 2)]))
    assert desk.live_plan.is_empty
    desk.apply(transitions.deactivate_profile("prof_1"))
    assert desk.state.profile is None


def test_a_closed_desk_is_empty_and_its_number_goes_on() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.activate_profile(serving_profile(B, {0: 1.0})))
    version = desk.state.version
    desk.apply(transitions.close())
    assert desk.state == LiveState(version=version + 1)
    assert desk.live_plan.is_empty and desk.live_plan.report.text() == "none"
    with pytest.raises(SaeNotAttached):
        desk.attachment()


def test_the_first_attached_is_the_one_meant_when_none_is_named() -> None:
    desk = make_desk(A, B)
    assert desk.attachment().sae_id == "a"
    assert desk.attachment(layer=5).sae_id == "b"
    assert desk.attachment("b").layer == 5
    desk.apply(transitions.attach([attachment("a", 2)]))
    assert desk.attachment().sae_id == "a"
    with pytest.raises(SaeNotAttached) as caught:
        desk.attachment("c", 2)
    assert caught.value.message == "The SAE 'c' is not attached at layer 2."
    assert caught.value.details["attached_sae_ids"] == ["a", "b"]


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_is_the_whole_set_of_its_place() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 2.0, 1: 1.0}))
    desk.apply(transitions.set_values(B, {0: 3.0}))
    desk.apply(transitions.activate_profile(serving_profile(A, {5: 150.0, 2: 0.0}, intensity=2.0)))
    assert values(desk, A) == {5: 200.0}
    assert values(desk, B) == {0: 3.0}


def test_clamping_is_not_undone_by_dividing() -> None:
    desk = make_desk(A)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 150.0}, intensity=2.0)))
    assert values(desk, A) == {0: 200.0}
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 150.0}, intensity=1.0)))
    assert values(desk, A) == {0: 150.0}
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: -150.0}}, intensity=2.0)))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: -150.0}}, intensity=1.0)))
    assert deltas(desk) == {2: [150.0, -150.0, 0.0, 0.0]}


@pytest.mark.parametrize("off", [{"intensity": 0.0}, {"authored": {}}])
def test_nothing_to_add_clears_and_switches_off(off: dict[str, object]) -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    fields: dict[str, object] = {"authored": {0: 1.0}, **off}
    desk.apply(transitions.activate_profile(serving_profile(A, **fields)))  # type: ignore[arg-type]
    assert values(desk, A) == {} and not desk.state.entry(A).enabled
    assert desk.state.profile is not None


def test_another_profile_takes_the_values_of_the_one_before_along() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.activate_profile(serving_profile(B, {0: 1.0}, profile_id="prof_2")))
    assert values(desk, A) == {} and values(desk, B) == {0: 1.0}
    desk.apply(transitions.activate_profile(serving_profile(None, {}, profile_id="prof_3")))
    assert values(desk, B) == {}


def test_a_deactivated_profile_may_leave_its_values_behind() -> None:
    desk = make_desk(A)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.deactivate_profile("prof_1", clear=False))
    assert values(desk, A) == {0: 1.0}
    assert desk.live_plan.report.text().startswith('manual;sae="a";layer=2;')


def test_edited_strengths_are_no_longer_the_profile_that_runs() -> None:
    desk = make_desk(A)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.relabel_profile(serving_profile(None, {0: 4.0})))
    assert deltas(desk) == {2: [1.0, 0.0, 0.0, 0.0]}
    assert desk.live_plan.report.text().startswith("manual;")
    desk.apply(transitions.relabel_profile(serving_profile(None, {0: 9.0}, profile_id="prof_2")))
    assert desk.state.profile is not None and dict(desk.state.profile.authored) == {0: 4.0}


# --- circuits ---------------------------------------------------------------------------------------------------------


def test_one_circuit_leaving_leaves_the_others_as_they_are() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}, B: {1: 4.0}})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {A: {2: 5.0}})))
    assert deltas(desk) == {2: [2.0, 3.0, 5.0, 0.0], 5: [0.0, 4.0, 0.0, 0.0]}
    desk.apply(transitions.stop_circuit("circ_1"))
    assert deltas(desk) == {2: [2.0, 0.0, 5.0, 0.0]}
    assert not desk.state.entry(B).enabled
    desk.apply(transitions.stop_circuit("circ_2"))
    assert deltas(desk) == {2: [2.0, 0.0, 0.0, 0.0]}
    assert desk.state.entry(A).enabled


def test_a_layer_that_a_circuit_no_longer_serves_is_rebuilt() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}, B: {1: 4.0}})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {B: {2: 5.0}})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 4.0}})))
    assert deltas(desk) == {5: [0.0, 4.0, 5.0, 0.0]}
    assert (desk.state.entry(A).enabled, desk.state.entry(B).enabled) == (False, True)
    assert [one.circuit_id for one in desk.state.circuits] == ["circ_1", "circ_2"]


def test_a_circuit_at_intensity_0_is_off_and_comes_back() -> None:
    desk = make_desk(A, B)
    circuit = {A: {1: 3.0}, B: {1: 4.0}}
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", circuit, intensity=0.0)))
    assert desk.live_plan.is_empty
    assert not desk.state.entry(A).enabled and not desk.state.entry(B).enabled
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", circuit, intensity=0.5)))
    assert deltas(desk) == {2: [0.0, 1.5, 0.0, 0.0], 5: [0.0, 2.0, 0.0, 0.0]}


def test_clearing_by_hand_leaves_a_circuit_on() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}})))
    desk.apply(transitions.clear(A))
    assert deltas(desk) == {2: [0.0, 3.0, 0.0, 0.0]}
    desk.apply(transitions.set_values(A, {0: 2.0}))
    desk.apply(transitions.remove_value(A, 0))
    assert deltas(desk) == {2: [0.0, 3.0, 0.0, 0.0]}
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0}, intensity=0.0)))
    assert deltas(desk) == {2: [0.0, 3.0, 0.0, 0.0]}
