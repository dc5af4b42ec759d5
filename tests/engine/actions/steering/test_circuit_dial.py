"""The persistent dial of the active circuit."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import LibraryUnusable
from engine.events import Event, SteeringUpdated
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.errors import AmbiguousActiveCircuit, NoActiveCircuit, SteeringInvalid, UnvalidatedCircuit
from engine.wire import wire
from tests.engine.actions.steering.stage import ELEVEN, SIX, Stage, circuit, make_stage, member, one_layer, raw, refused
from tests.engine.steering.made import deltas


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


def activated(stage: Stage, document: dict[str, Any] | None = None, **options: Any) -> str:
    circuit_id = stage.circuits.import_document(raw(document or circuit())).id
    stage.circuits.activate(circuit_id, **options)
    return circuit_id


def test_a_turn_of_the_dial_as_it_travels(stage: Stage) -> None:
    circuit_id = activated(stage)
    version = stage.desk.state.version
    stage.names()
    done = wire(stage.circuits.set_intensity(1))
    assert {key: done[key] for key in ("id", "intensity", "steering", "reapplied", "superseded", "warnings")} == {
        "id": circuit_id,
        "intensity": 1.0,
        "steering": True,
        "reapplied": True,
        "superseded": False,
        "warnings": [],
    }
    assert deltas(stage.desk) == {6: [0.0, 8.0, 0.0, 0.0], 11: [0.0, 0.0, 4.0, -2.0]}
    assert stage.desk.state.version == version + 1
    assert stage.names() == ["steering:update", "circuits:changed"]
    now = stage.desk.now
    assert stage.circuits.set_intensity(1).reapplied is True
    assert stage.desk.now is now
    stage.agrees()


def test_clamping_is_not_undone_by_dividing(stage: Stage) -> None:
    activated(
        stage,
        circuit(members=[{"layer": 6, "feature": member(1, 150.0)}], edges=[]),
        acknowledge_unvalidated=True,
        intensity=2,
    )
    assert deltas(stage.desk) == {6: [0.0, 200.0, 0.0, 0.0]}
    stage.circuits.set_intensity(1, acknowledge_unvalidated=True)
    assert deltas(stage.desk) == {6: [0.0, 150.0, 0.0, 0.0]}
    done = stage.circuits.set_intensity(2, acknowledge_unvalidated=True)
    assert done.warnings == ("1 strength on 'sae_a' at layer 6 is clamped to ±200.",)


def test_off_and_on_again(stage: Stage) -> None:
    activated(stage)
    done = stage.circuits.set_intensity(0)
    assert (done.reapplied, done.steering, done.record.intensity) == (True, False, 0.0)
    assert stage.desk.live_plan.is_empty and stage.circuits.active()[0].record.is_active
    assert stage.circuits.set_intensity(0.5).steering is True


@pytest.mark.parametrize("value", [2.01, -0.1, True, "1", None, float("nan"), float("inf")])
def test_what_is_no_intensity_is_refused(stage: Stage, value: Any) -> None:
    activated(stage)
    before = stage.everything()
    with pytest.raises(SteeringInvalid) as caught:
        stage.circuits.set_intensity(value)
    assert refused(caught.value) == ("validation_error", "intensity")
    assert stage.everything() == before


def test_configured_bounds_hold_it(library: Library) -> None:
    stage = make_stage(library, SIX, ELEVEN, CIRCUIT_INTENSITY_MIN=0.25, CIRCUIT_INTENSITY_MAX=1.25)
    activated(stage)
    assert [stage.circuits.set_intensity(value).record.intensity for value in (2, 0.1, 0)] == [1.25, 0.25, 0.0]


def test_without_an_active_circuit_and_with_several(stage: Stage) -> None:
    with pytest.raises(NoActiveCircuit):
        stage.circuits.set_intensity(1)
    first, second = activated(stage, one_layer("a", 6, 1)), activated(stage, one_layer("b", 11, 1))
    before = stage.everything()
    with pytest.raises(AmbiguousActiveCircuit) as caught:
        stage.circuits.set_intensity(1)
    assert sorted(caught.value.details["active_circuits"], key=lambda each: each["name"]) == [
        {"id": first, "name": "a"},
        {"id": second, "name": "b"},
    ]
    assert stage.everything() == before
    stage.circuits.deactivate(second)
    assert stage.circuits.set_intensity(1.5).record.id == first


def test_the_evidence_is_asked_at_every_turn(stage: Stage) -> None:
    activated(stage, circuit(rung=1), acknowledge_unvalidated=True)
    before = stage.everything()
    with pytest.raises(UnvalidatedCircuit):
        stage.circuits.set_intensity(1)
    assert stage.everything() == before
    assert stage.circuits.set_intensity(1, acknowledge_unvalidated=True).reapplied is True


def test_stored_without_being_applied(stage: Stage) -> None:
    circuit_id = activated(stage)
    now = stage.desk.now
    done = stage.circuits.set_intensity(1.5, reapply=False)
    assert (done.reapplied, done.superseded, done.warnings) == (False, False, ())
    assert stage.desk.now is now
    assert stage.circuits.get(circuit_id).record.intensity == 1.5


def test_what_cannot_be_applied_is_a_warning_and_no_change(stage: Stage) -> None:
    circuit_id = activated(stage)
    stage.desk.apply(transitions.detach("sae_b"))
    now = stage.desk.now
    done = stage.circuits.set_intensity(1)
    assert (done.reapplied, done.superseded) == (False, False)
    assert done.warnings[0].startswith("Not applied: 2 members of the circuit cannot be served (layers 11).")
    assert stage.desk.now is now
    assert stage.circuits.get(circuit_id).record.intensity == 1.0
    assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0]}


def test_a_collision_with_a_hand_set_value_is_a_warning(stage: Stage) -> None:
    activated(stage, intensity=0)
    stage.desk.apply(transitions.set_values(SIX, {1: 1.0}))
    now = stage.desk.now
    done = stage.circuits.set_intensity(1)
    assert done.reapplied is False
    assert "Feature 1 is steered by hand-set values" in done.warnings[0]
    assert stage.desk.now is now


def test_a_later_change_supersedes_it(stage: Stage) -> None:
    activated(stage)

    def operator(event: Event) -> None:
        if stage.desk.state.entry(SIX).enabled:
            stage.desk.apply(transitions.set_enabled(SIX, False))

    with_operator = stage.events.subscribe(operator, SteeringUpdated)
    done = stage.circuits.set_intensity(1)
    with_operator.close()
    assert (done.reapplied, done.superseded) == (True, True)
    assert wire(done)["superseded"] is True
    assert stage.circuits.set_intensity(1.5).superseded is False


def test_a_library_that_cannot_be_written_leaves_the_steering_as_it_was(stage: Stage) -> None:
    activated(stage)
    before = stage.desk.now
    stage.library.close()
    with pytest.raises(LibraryUnusable):
        stage.circuits.set_intensity(1)
    assert stage.desk.now is before
