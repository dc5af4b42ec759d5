"""Layers that two circuits want: refusals, sharing by consent, what is left when one goes; and races."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.actions.lock import SteeringLock
from engine.actions.steering.circuits import CircuitActions
from engine.config import EngineSettings
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.errors import CircuitLayerContention
from engine.wire import wire
from tests.engine.actions.steering.stage import ELEVEN, SIX, Stage, circuit, make_stage, member, one_layer, raw
from tests.engine.library.test_durability import together
from tests.engine.steering.made import attachment, deltas


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


@pytest.fixture
def sharing(library: Library) -> Stage:
    """Circuits may share layers."""
    return make_stage(library, SIX, ELEVEN, CIRCUIT_ALLOW_CONCURRENT=True)


def imported(stage: Stage, document: dict[str, Any]) -> str:
    return stage.circuits.import_document(raw(document)).id


def wide(name: str, six: int, eleven: int) -> dict[str, Any]:
    """A circuit of one feature at each of both layers."""
    members = [{"layer": 6, "feature": member(six, 4.0)}, {"layer": 11, "feature": member(eleven, 4.0)}]
    edges = [{"up": {"layer": 6, "feature_idx": six}, "down": {"layer": 11, "feature_idx": eleven}, "rung": 3}]
    return circuit(name, members=members, edges=edges, budget={"intensity": 1.0})


def test_a_held_layer_is_refused_and_nothing_changes(stage: Stage) -> None:
    first, second = imported(stage, one_layer("first", 11, 1)), imported(stage, wide("second", 1, 2))
    stage.circuits.activate(first)
    before = stage.everything()
    for allow in (False, True):
        with pytest.raises(CircuitLayerContention) as caught:
            stage.circuits.activate(second, allow_layer_overlap=allow)
        details = caught.value.details
        assert details["contended_layers"] == [11]
        assert details["incumbent"] == {"id": first, "name": "first"}
        assert details["requested"] == {"id": second, "name": "second"}
        assert (details["overridable"], details["colliding_keys"]) == (False, [])
        assert "override_param" not in details and details["measured_hazard"]["one_layer_at_strength_5"]
        assert stage.everything() == before and stage.desk.now is before[0]
    stage.circuits.deactivate(first)
    assert stage.circuits.activate(second).steering is True
    stage.agrees()


def test_all_incumbents_are_named(sharing: Stage) -> None:
    first, second = imported(sharing, one_layer("first", 11, 1)), imported(sharing, one_layer("second", 6, 1))
    sharing.circuits.activate(first)
    sharing.circuits.activate(second)
    third = imported(sharing, wide("third", 2, 2))
    with pytest.raises(CircuitLayerContention) as caught:
        sharing.circuits.activate(third)
    details = caught.value.details
    assert details["all_incumbents"] == [{"id": second, "name": "second"}, {"id": first, "name": "first"}]
    assert (details["overridable"], details["override_param"]) == (True, "allow_layer_overlap")
    assert details["rung_header_suppressed_if_overridden"] is True


def test_one_feature_of_two_circuits_is_never_shared(sharing: Stage) -> None:
    first, second = imported(sharing, one_layer("first", 11, 1)), imported(sharing, wide("second", 1, 1))
    sharing.circuits.activate(first)
    before = sharing.everything()
    with pytest.raises(CircuitLayerContention) as caught:
        sharing.circuits.activate(second, allow_layer_overlap=True)
    assert caught.value.details["colliding_keys"] == [{"layer": 11, "feature_idx": 1, "incumbent": first}]
    assert caught.value.details["overridable"] is False and "override_param" not in caught.value.details
    assert sharing.everything() == before


def test_shared_layers_are_composed_until_one_holder_remains(sharing: Stage) -> None:
    first, second = imported(sharing, one_layer("first", 11, 1)), imported(sharing, wide("second", 1, 2))
    sharing.circuits.activate(first)
    assert sharing.desk.live_plan.rung == 2
    version = sharing.desk.state.version
    done = sharing.circuits.activate(second, allow_layer_overlap=True)
    assert wire(done)["composed_layers"] == [11] and wire(done)["allowed_layer_overlap"] is True
    assert done.warnings == ("It shares layer 11 with 'first'; no evidence rung is claimed while it does.",)
    assert sharing.desk.state.version == version + 1
    assert deltas(sharing.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 4.0, 4.0, 0.0]}
    assert sharing.desk.live_plan.rung is None
    assert sharing.desk.live_plan.report.text().count(";composed") == 2
    sharing.agrees()
    sharing.circuits.deactivate(first)
    assert deltas(sharing.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 0.0, 4.0, 0.0]}
    assert [claim.composed for claim in sharing.circuits.claims()] == [False, False]
    assert sharing.desk.live_plan.rung == 3
    assert "composed" not in sharing.desk.live_plan.report.text()
    sharing.agrees()


def test_a_circuit_below_rung_2_needs_both_consents(sharing: Stage) -> None:
    sharing.circuits.activate(imported(sharing, one_layer("first", 11, 1)))
    low = imported(sharing, one_layer("low", 11, 2, rung=1))
    with pytest.raises(CircuitLayerContention):
        sharing.circuits.activate(low, acknowledge_unvalidated=True)
    done = sharing.circuits.activate(low, acknowledge_unvalidated=True, allow_layer_overlap=True)
    assert (done.acknowledged_unvalidated, done.composed_layers) == (True, (11,))


def test_deleting_a_sharer_gives_the_other_its_layer_back(sharing: Stage) -> None:
    first, second = imported(sharing, one_layer("first", 11, 1)), imported(sharing, one_layer("second", 11, 2))
    sharing.circuits.activate(first)
    sharing.circuits.activate(second, allow_layer_overlap=True)
    sharing.circuits.delete(first)
    assert sharing.desk.live_plan.rung == 2
    sharing.agrees()


def test_releasing_claims_stops_nothing(sharing: Stage) -> None:
    first, second = imported(sharing, one_layer("first", 11, 1)), imported(sharing, one_layer("second", 11, 2))
    sharing.circuits.activate(first)
    sharing.circuits.activate(second, allow_layer_overlap=True)
    version = sharing.desk.state.version
    assert wire(sharing.circuits.release_claims(first)) == {
        "circuit_id": first,
        "released_layers": [11],
        "warnings": ["'first' goes on steering; another circuit may now claim the same layers."],
    }
    assert deltas(sharing.desk) == {11: [0.0, 4.0, 4.0, 0.0]}
    assert sharing.desk.state.version == version
    # The one that let go may share its layers with anyone from now on, so nothing is claimed for it.
    assert [one.composed for one in sharing.desk.state.circuits] == [True, False]
    assert wire(sharing.circuits.release_claims(first))["released_layers"] == []
    assert sharing.circuits.release_claims(first).warnings == ()


def test_an_activation_that_loses_keeps_its_old_claims(stage: Stage) -> None:
    stage.desk.apply(transitions.detach("sae_a"))
    mine = imported(stage, wide("mine", 1, 1))
    stage.circuits.activate(mine)
    stage.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    theirs = imported(stage, one_layer("theirs", 6, 2))
    stage.circuits.activate(theirs)
    before = stage.everything()
    with pytest.raises(CircuitLayerContention) as caught:
        stage.circuits.activate(mine)
    assert caught.value.details["incumbent"] == {"id": theirs, "name": "theirs"}
    assert stage.everything() == before
    assert {(claim.circuit_id, claim.layer) for claim in stage.circuits.claims()} == {(mine, 11), (theirs, 6)}
    assert stage.circuits.get(mine).steering is True
    stage.agrees()


# --- races ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("locks", ["one", "each its own"])
def test_of_two_activations_at_once_one_wins(library: Library, locks: str) -> None:
    stage = make_stage(library, SIX, ELEVEN)
    ids = [imported(stage, wide("first", 1, 1)), imported(stage, wide("second", 2, 2))]
    actions = [stage.circuits, stage.circuits]
    if locks == "each its own":
        actions = [CircuitActions(EngineSettings(), library, stage.desk, stage.events, SteeringLock()) for _ in ids]
    for _ in range(5):
        version = stage.desk.state.version
        errors = together(2, lambda number: actions[number].activate(ids[number]))
        (loser,) = [number for number, error in enumerate(errors) if error is not None]
        error = errors[loser]
        assert isinstance(error, CircuitLayerContention)
        winner = ids[1 - loser]
        assert error.details["incumbent"]["id"] == winner
        assert [each.record.id for each in stage.circuits.active()] == [winner]
        assert {(claim.circuit_id, claim.layer) for claim in stage.circuits.claims()} == {(winner, 6), (winner, 11)}
        assert [one.circuit_id for one in stage.desk.state.circuits] == [winner]
        assert stage.desk.state.version == version + 1
        stage.agrees()
        stage.circuits.deactivate(winner)


def test_activations_on_different_layers_do_not_disturb_each_other(stage: Stage) -> None:
    ids = [imported(stage, one_layer("first", 6, 1)), imported(stage, one_layer("second", 11, 2))]
    for _ in range(5):
        assert together(2, lambda number: stage.circuits.activate(ids[number])) == [None, None]
        assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 0.0, 4.0, 0.0]}
        stage.agrees()
        assert together(2, lambda number: stage.circuits.deactivate(ids[number])) == [None, None]
        assert stage.desk.live_plan.is_empty and stage.circuits.claims() == ()


def test_everybody_at_once_ends_in_a_state_that_agrees(stage: Stage) -> None:
    circuits = [imported(stage, wide(f"circuit {number}", number, number)) for number in range(3)]
    profiles = [
        stage.profiles.create(f"profile {number}", steering={10 + number: 1.0}, sae_id=sae).record.id
        for number, sae in enumerate(("sae_a", "sae_b"))
    ]

    def work(number: int) -> None:
        for round_ in range(4):
            try:
                if number < 3:
                    stage.circuits.activate(circuits[number])
                    stage.circuits.deactivate(circuits[number])
                elif number < 5:
                    stage.profiles.activate(profiles[number - 3])
                else:
                    stage.desk.apply(transitions.set_values(SIX, {20: float(round_)}))
            except CircuitLayerContention:
                continue

    assert together(6, work) == [None] * 6
    stage.agrees()
    assert not stage.desk.live_plan.report.unknown


def test_a_model_that_leaves_during_an_activation_leaves_nothing_behind(stage: Stage) -> None:
    """The desk is closed by another thread while the activation holds it: one of the two comes first, whole."""
    circuit_id = imported(stage, wide("first", 1, 1))
    inside = threading.Event()

    def close() -> None:
        inside.wait(30)
        stage.desk.apply(transitions.close())

    thread = threading.Thread(target=close)
    thread.start()
    with stage.desk.changes():
        inside.set()
        stage.circuits.activate(circuit_id)
    thread.join(30)
    assert stage.desk.live_plan.is_empty and stage.desk.state.attachments == ()
    stage.circuits.release_all()
    assert stage.circuits.active() == () and stage.circuits.claims() == ()
    stage.agrees()
