"""Serving a circuit in full: the gates in their order, what is added, what makes way, what is said."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import LibraryUnusable, MillmError
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.errors import SaeSetIncomplete, SteeringInvalid, UnvalidatedCircuit
from engine.wire import wire
from tests.engine.actions.steering.stage import (
    ELEVEN,
    SIX,
    Stage,
    circuit,
    cluster,
    make_stage,
    member,
    one_layer,
    raw,
)
from tests.engine.steering.made import attachment, deltas, values


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


def imported(stage: Stage, document: dict[str, Any] | None = None) -> str:
    return stage.circuits.import_document(raw(document or circuit())).id


# --- what is added ----------------------------------------------------------------------------------------------------


def test_an_activation_as_it_travels(stage: Stage) -> None:
    circuit_id = imported(stage)
    version = stage.desk.state.version
    stage.names()
    done = wire(stage.circuits.activate(circuit_id))
    assert done["id"] == circuit_id
    assert {key: done[key] for key in ("is_active", "serving_mode", "intensity", "steering", "serveable")} == {
        "is_active": True,
        "serving_mode": "full",
        "intensity": 0.5,
        "steering": True,
        "serveable": True,
    }
    assert done["bound_layers"] == [6, 11]
    assert done["applied_per_layer"] == {"6": {"1": 4.0}, "11": {"2": 2.0, "3": -1.0}}
    assert done["hazards"] == [
        {
            "kind": "compounding",
            "up": {"layer": 6, "feature_idx": 1},
            "down": {"layer": 11, "feature_idx": 2},
            "label": "validated:ES=0.25",
            "rung": 2,
            "quantified_effect": 0.25,
        },
        {
            "kind": "cancellation",
            "up": {"layer": 6, "feature_idx": 1},
            "down": {"layer": 11, "feature_idx": 3},
            "label": "heuristic:co-steer-sign",
            "rung": None,
            "quantified_effect": None,
        },
    ]
    assert (done["warnings"], done["acknowledged_unvalidated"]) == ([], False)
    for absent in ("slice_layer", "slice_profile_id", "composed_layers", "allowed_layer_overlap"):
        assert absent not in done
    assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 0.0, 2.0, -1.0]}
    assert stage.desk.live_plan.rung == 2
    assert stage.desk.live_plan.report.text() == f'circuit;id="{circuit_id}";intensity="0.5"'
    assert stage.desk.state.version == version + 1
    assert stage.names() == ["steering:update", "circuits:changed", "clusters:changed", "profiles:changed"]
    assert wire(stage.circuits.claims()) == [
        {
            "layer": 6,
            "circuit_id": circuit_id,
            "circuit_name": "question → hedge",
            "composed": False,
            "steering_keys": [1],
        },
        {
            "layer": 11,
            "circuit_id": circuit_id,
            "circuit_name": "question → hedge",
            "composed": False,
            "steering_keys": [2, 3],
        },
    ]
    stage.agrees()


def test_activating_again_changes_nothing(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id)
    now, claims = stage.desk.now, stage.library.claims.live()
    stage.circuits.activate(circuit_id)
    assert stage.desk.now is now and stage.library.claims.live() == claims


@pytest.mark.parametrize(
    ("budget", "asked", "intensity"),
    [
        ({"intensity": 0.5}, None, 0.5),
        ({"intensity": 0.5}, 1.25, 1.25),
        ({"intensity": 0.5}, 0, 0.0),
        ({}, None, 1.0),
        (None, 2, 2.0),
    ],
)
def test_the_intensity_of_an_activation(stage: Stage, budget: Any, asked: Any, intensity: float) -> None:
    circuit_id = imported(stage, circuit(budget=budget))
    done = stage.circuits.activate(circuit_id, intensity=asked)
    assert done.record.intensity == intensity
    stage.agrees()


def test_the_documents_intensity_comes_before_the_rows(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id)
    stage.circuits.set_intensity(1.5)
    stage.circuits.deactivate(circuit_id)
    assert stage.circuits.activate(circuit_id).record.intensity == 0.5
    undialled = imported(stage, circuit("undialled", budget=None))
    stage.circuits.deactivate(circuit_id)
    stage.circuits.activate(undialled, intensity=1.5)
    stage.circuits.deactivate(undialled)
    assert stage.circuits.activate(undialled).record.intensity == 1.5


def test_configured_bounds_hold_the_intensity(library: Library) -> None:
    stage = make_stage(library, SIX, ELEVEN, CIRCUIT_INTENSITY_MIN=0.75, CIRCUIT_INTENSITY_MAX=1.25)
    circuit_id = imported(stage)
    assert stage.circuits.activate(circuit_id).record.intensity == 0.75
    assert stage.circuits.activate(circuit_id, intensity=2).record.intensity == 1.25
    assert stage.circuits.activate(circuit_id, intensity=0).record.intensity == 0.0


def test_off_reports_nothing_applied(stage: Stage) -> None:
    circuit_id = imported(stage)
    done = wire(stage.circuits.activate(circuit_id, intensity=0))
    assert (done["applied_per_layer"], done["hazards"], done["steering"]) == ({}, [], False)
    assert done["is_active"] is True and stage.desk.live_plan.is_empty
    assert not stage.desk.state.entry(SIX).enabled
    assert [claim.layer for claim in stage.circuits.claims()] == [6, 11]
    stage.agrees()


def test_the_first_of_a_feature_counts_and_clamps_are_said(stage: Stage) -> None:
    both = {
        "layer": 11,
        "feature": member(2, 250.0),
        "expanded_members": [member(2, 1.0), member(3, 1.0, sign=-1)],
    }
    document = circuit(members=[{"layer": 6, "feature": member(1, 8.0)}, both], budget={"intensity": 1.0})
    done = stage.circuits.activate(imported(stage, document))
    assert done.applied_per_layer == {6: {1: 8.0}, 11: {2: 200.0, 3: -1.0}}
    assert done.warnings == (
        "At intensity 2 these strengths are clamped to ±200: #2 (250).",
        "Feature 2 on layer 11 is named twice; the first counts.",
        "1 strength on 'sae_b' at layer 11 is clamped to ±200.",
    )


def test_a_substitute_serves_and_is_said(library: Library) -> None:
    stage = make_stage(library, SIX, ("other", 11))
    circuit_id = imported(stage)
    done = stage.circuits.activate(circuit_id)
    assert done.warnings == ("Layer 11: substituted: made with 'sae_b', runs on 'other' at layer 11.",)
    assert done.record.per_sae_warnings[1]["verdict"] == "warn"
    stage.desk.apply(transitions.detach("other"))
    stage.desk.apply(transitions.attach([attachment("sae_b", 11)]))
    assert stage.circuits.activate(circuit_id).record.per_sae_warnings[1]["verdict"] == "bind"
    assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 0.0, 2.0, -1.0]}


def test_verdicts_are_refreshed_by_an_activation(library: Library) -> None:
    stage = make_stage(library)
    circuit_id = imported(stage)
    assert stage.circuits.get(circuit_id).record.serveable is False
    stage.desk.apply(transitions.attach([attachment("sae_a", 6), attachment("sae_b", 11)]))
    stage.circuits.activate(circuit_id)
    record = stage.circuits.get(circuit_id).record
    assert (record.serveable, [each["verdict"] for each in record.per_sae_warnings]) == (True, ["bind", "bind"])


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", [0, 1, "?"])
def test_below_rung_2_an_acknowledgement_is_needed(stage: Stage, rung: Any) -> None:
    circuit_id = imported(stage, circuit(rung=rung))
    before = stage.everything()
    with pytest.raises(UnvalidatedCircuit) as caught:
        stage.circuits.activate(circuit_id)
    assert caught.value.details["circuit_id"] == circuit_id
    assert set(caught.value.details) == {"circuit_id", "rung", "rung_language", "next_step"}
    assert stage.everything() == before
    done = wire(stage.circuits.activate(circuit_id, acknowledge_unvalidated=True))
    assert done["acknowledged_unvalidated"] is True
    assert stage.desk.live_plan.rung == (1 if rung == 1 else 0)


def test_the_gates_in_their_order(stage: Stage) -> None:
    """Each refusal is reached by mending the one before it."""
    holder = imported(stage, one_layer("holder", 11, 9))
    stage.circuits.activate(holder)
    stage.desk.apply(transitions.set_values(SIX, {1: 1.0}))
    document = circuit(rung=0, budget=None)
    document["members"][0]["feature"]["feature_idx"] = 48
    circuit_id = imported(stage, document)
    options: dict[str, Any] = {}

    def code() -> str:
        before = stage.everything()
        with pytest.raises(MillmError) as caught:
            stage.circuits.activate(circuit_id, **options)
        assert stage.everything() == before and stage.desk.now is before[0]
        stage.agrees()
        return caught.value.code

    assert code() == "unvalidated_circuit"
    options["acknowledge_unvalidated"] = True
    assert code() == "circuit_layer_contention"
    stage.circuits.deactivate(holder)
    assert code() == "sae_set_incomplete"
    document["members"][0]["feature"]["feature_idx"] = 1
    stage.circuits.delete(circuit_id)
    circuit_id = imported(stage, document)
    assert code() == "validation_error"  # no intensity anywhere
    options["intensity"] = True
    assert code() == "validation_error"
    options["intensity"] = 1.0
    assert code() == "validation_error"  # a hand-set value on its feature
    stage.desk.apply(transitions.clear(SIX))
    assert stage.circuits.activate(circuit_id, **options).steering is True
    stage.agrees()


def test_all_members_in_the_way_are_named(stage: Stage) -> None:
    document = circuit()
    document["members"][0]["feature"]["feature_idx"] = 48
    document["members"][1]["expanded_members"][1]["feature_idx"] = 99
    with pytest.raises(SaeSetIncomplete) as caught:
        stage.circuits.activate(imported(stage, document))
    assert caught.value.details["offenders"] == [
        {"feature_idx": 48, "layer": 6, "sae_id": "sae_a", "reason": "index_out_of_bounds"},
        {"feature_idx": 99, "layer": 11, "sae_id": "sae_b", "reason": "index_out_of_bounds"},
    ]


def test_without_any_sae_there_is_nothing_to_serve(library: Library) -> None:
    stage = make_stage(library)
    with pytest.raises(SaeSetIncomplete) as caught:
        stage.circuits.activate(imported(stage))
    assert caught.value.details["offenders"][0] == {
        "feature_idx": 1,
        "layer": 6,
        "sae_id": "sae_a",
        "reason": "missing_or_ambiguous_sae",
    }
    empty = circuit("empty", members=[{"layer": 6, "member_kind": "cluster_ref", "cluster_name": "x"}], edges=[])
    with pytest.raises(SaeSetIncomplete) as caught:
        stage.circuits.activate(imported(stage, empty), acknowledge_unvalidated=True)
    assert caught.value.details == {"offenders": []}


def test_a_library_that_cannot_be_written_leaves_the_steering_as_it_was(stage: Stage) -> None:
    circuit_id = imported(stage)
    before = stage.desk.now
    stage.library.close()
    with pytest.raises(LibraryUnusable):
        stage.circuits.activate(circuit_id)
    assert stage.desk.now is before


# --- who makes way ----------------------------------------------------------------------------------------------------


def test_a_cluster_on_its_layers_makes_way(stage: Stage) -> None:
    item = stage.clusters.import_document(raw(cluster()), activate=True).results[0]
    version = stage.desk.state.version
    done = stage.circuits.activate(imported(stage))
    assert done.warnings == ("The cluster 'Harbour' was deactivated: the circuit takes layer 6.",)
    assert values(stage.desk, SIX) == {}
    assert stage.profiles.active() is None and item.profile_id is not None
    assert stage.clusters.get(item.profile_id).record.is_active is False
    assert stage.desk.state.version == version + 1
    stage.agrees()


def test_a_cluster_on_another_layer_stays(stage: Stage) -> None:
    stage.clusters.import_document(raw(cluster()), activate=True)
    done = stage.circuits.activate(imported(stage, one_layer("c", 11, 2)))
    assert done.warnings == ()
    assert deltas(stage.desk) == {6: [0.0, 2.0, -3.0, -1.0], 11: [0.0, 0.0, 4.0, 0.0]}
    stage.agrees()


def test_hand_set_values_stay_and_are_said(stage: Stage) -> None:
    stage.desk.apply(transitions.set_values(SIX, {9: 1.0}))
    stage.desk.apply(transitions.set_values(ELEVEN, {2: 1.0}))
    before = stage.everything()
    circuit_id = imported(stage)
    with pytest.raises(SteeringInvalid) as caught:
        stage.circuits.activate(circuit_id)
    assert caught.value.details == {"feature_idx": 2, "owners": ["hand-set values", f"circuit {circuit_id}"]}
    assert stage.desk.now is before[0] and stage.library.claims.live() == []
    stage.desk.apply(transitions.clear(ELEVEN))
    assert stage.circuits.activate(circuit_id).warnings == (
        "Hand-set values on 'sae_a' at layer 6 steer beside the circuit.",
    )
    assert deltas(stage.desk)[6] == [0.0, 7.0, 0.0, 0.0]
