"""One layer of a circuit served as a cluster, where the others have no SAE."""

from __future__ import annotations

from typing import Any

import pytest

from engine.library.database import Library
from engine.steering import transitions
from engine.steering.errors import CircuitLayerContention, SaeSetIncomplete
from engine.wire import wire
from tests.engine.actions.steering.stage import (
    ELEVEN,
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
    """Layer 11 alone has its SAE."""
    return make_stage(library, ELEVEN)


def imported(stage: Stage, document: dict[str, Any] | None = None) -> str:
    return stage.circuits.import_document(raw(document or circuit())).id


def test_the_first_bound_layer_is_served_as_a_cluster(stage: Stage) -> None:
    circuit_id = imported(stage)
    version = stage.desk.state.version
    stage.names()
    done = wire(stage.circuits.activate(circuit_id))
    slice_id = done["slice_profile_id"]
    assert (done["serving_mode"], done["slice_layer"], done["bound_layers"]) == ("slice_fallback", 11, [11])
    assert (done["serveable"], done["steering"], done["hazards"]) == (False, True, [])
    assert done["applied_per_layer"] == {"11": {"2": 2.0, "3": -1.0}}
    assert done["warnings"] == [
        "Layer 6: no SAE is attached at layer 6.",
        "Only layer 11 is served, as the cluster 'question → hedge [L11 slice]'; layers 6 are not.",
    ]
    assert deltas(stage.desk) == {11: [0.0, 0.0, 2.0, -1.0]}
    assert stage.desk.live_plan.rung is None
    assert stage.desk.live_plan.report.text().startswith(
        'profile;name="question %E2%86%92 hedge [L11 slice]";source=active;'
    )
    assert stage.desk.state.version == version + 1
    assert [(claim.layer, sorted(claim.steering_keys)) for claim in stage.circuits.claims()] == [(11, [2, 3])]
    assert stage.circuits.get(circuit_id).record.slice_profile_id == slice_id
    assert stage.names() == ["steering:update", "circuits:changed", "clusters:changed", "profiles:changed"]
    stage.agrees()
    cluster_row = stage.clusters.get(slice_id).record
    assert (cluster_row.is_active, cluster_row.bound, cluster_row.intensity) == (True, True, 0.5)
    exported = stage.clusters.export(slice_id)
    assert exported["budget"] == {"intensity": 0.5, "intensity_range": [0.25, 1.5]}
    assert exported["provenance"]["parent_rung"] == 2 and exported["provenance"]["partial"] is True
    assert exported["provenance"]["source_note"].startswith(
        "Partial slice of 'question → hedge': layer 11 of a circuit"
    )


def test_deactivating_the_circuit_stops_its_cluster(stage: Stage) -> None:
    circuit_id = imported(stage)
    slice_id = stage.circuits.activate(circuit_id).slice_profile_id
    assert slice_id is not None
    assert stage.circuits.deactivate(circuit_id).cleared_steering is True
    assert stage.desk.live_plan.is_empty and stage.profiles.active() is None
    assert stage.clusters.get(slice_id).record.is_active is False
    assert stage.circuits.claims() == ()
    stage.agrees()


def test_the_slice_that_served_before_serves_again(stage: Stage) -> None:
    circuit_id = imported(stage)
    first = stage.circuits.activate(circuit_id)
    stage.circuits.deactivate(circuit_id)
    again = stage.circuits.activate(circuit_id, intensity=1.0)
    assert again.slice_profile_id == first.slice_profile_id
    assert values(stage.desk, ELEVEN) == {2: 4.0, 3: -2.0}
    assert len(stage.clusters.list().clusters) == 1
    now = stage.desk.now
    stage.circuits.activate(circuit_id, intensity=1.0)
    assert stage.desk.now is now
    assert first.slice_profile_id is not None
    stage.clusters.delete(first.slice_profile_id)
    fresh = stage.circuits.activate(circuit_id)
    assert fresh.slice_profile_id not in (None, first.slice_profile_id)
    stage.agrees()


@pytest.mark.parametrize("route", ["deactivate", "delete", "another profile", "another cluster", "label"])
def test_the_cluster_leaving_takes_the_circuit_along(stage: Stage, route: str) -> None:
    circuit_id = imported(stage)
    slice_id = stage.circuits.activate(circuit_id).slice_profile_id
    assert slice_id is not None
    other = stage.profiles.create("calm", steering={0: 1.0}, sae_id="sae_b").record.id
    if route == "deactivate":
        warnings = stage.clusters.deactivate(slice_id).warnings
    elif route == "delete":
        warnings = stage.profiles.delete(slice_id).warnings
    elif route == "another profile":
        warnings = stage.profiles.activate(other).warnings
    elif route == "label":
        warnings = stage.profiles.activate(other, apply_steering=False).warnings
    else:
        found = stage.clusters.import_document(raw(cluster(sae={"layer": 11})), activate=True)
        warnings = found.results[0].warnings
    assert any(each.startswith("The circuit 'question → hedge' was deactivated") for each in warnings)
    assert stage.circuits.active() == () and stage.circuits.claims() == ()
    assert stage.circuits.get(circuit_id).record.serving_mode is None
    stage.agrees()


def test_the_clusters_dial_is_the_slices(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id)
    assert stage.clusters.set_active_intensity(1.5).reapplied is True
    assert values(stage.desk, ELEVEN) == {2: 6.0, 3: -3.0}
    now = stage.desk.now
    done = wire(stage.circuits.set_intensity(1.0))
    assert (done["intensity"], done["reapplied"], done["superseded"]) == (1.0, False, False)
    assert done["warnings"] == ["Not applied: a slice of it is served by a cluster, whose own dial decides."]
    assert stage.desk.now is now
    assert stage.circuits.get(circuit_id).record.intensity == 1.0


def test_a_long_name_still_slices(stage: Stage) -> None:
    both = {"layer": 11, "feature": member(7, 1.0), "expanded_members": [member(8, 2.0), member(7, 9.0)]}
    document = circuit("n" * 200, members=[{"layer": 6, "feature": member(1, 8.0)}, both], edges=[])
    for number in (1, 2):
        circuit_id = imported(stage, document)
        done = stage.circuits.activate(circuit_id, acknowledge_unvalidated=True)
        assert done.applied_per_layer == {11: {7: 0.5, 8: 1.0}}
        assert done.slice_profile_id is not None
        name = stage.clusters.get(done.slice_profile_id).record.name
        assert len(name) <= 120 and name.endswith("[L11 slice]" if number == 1 else "[L11 slice] (2)")
        stage.circuits.deactivate(circuit_id)


def test_one_slice_serves_at_a_time(stage: Stage) -> None:
    stage.desk.apply(transitions.attach([attachment("sae_c", 12)]))
    stage.circuits.activate(imported(stage))
    second = circuit("second", saes=[{"layer": 9}, {"layer": 12}], edges=[])
    second["members"][0]["layer"], second["members"][1]["layer"] = 9, 12
    second_id = imported(stage, second)
    before = stage.everything()
    with pytest.raises(CircuitLayerContention) as caught:
        stage.circuits.activate(second_id, acknowledge_unvalidated=True, allow_layer_overlap=True)
    assert caught.value.details["reason"] == "slice_fallback_is_single_active"
    assert caught.value.details["incumbent"]["name"] == "question → hedge"
    assert stage.everything() == before
    stage.circuits.activate(imported(stage, one_layer("full", 12, 1)))
    assert deltas(stage.desk) == {11: [0.0, 0.0, 2.0, -1.0], 12: [0.0, 4.0, 0.0, 0.0]}
    stage.agrees()


def test_a_slice_leaves_full_circuits_serving_and_replaces_the_active_profile(stage: Stage) -> None:
    stage.desk.apply(transitions.attach([attachment("sae_c", 12)]))
    full = imported(stage, one_layer("full", 12, 1))
    stage.circuits.activate(full)
    stage.desk.apply(transitions.set_values(ELEVEN, {0: 1.0}))
    calm = stage.profiles.create("calm", steering={0: 1.0}, sae_id="sae_b").record.id
    stage.profiles.activate(calm)
    stage.circuits.activate(full)
    done = stage.circuits.activate(imported(stage))
    assert "'calm' was deactivated: one profile or cluster is active at a time." in done.warnings
    assert deltas(stage.desk) == {11: [0.0, 0.0, 2.0, -1.0], 12: [0.0, 4.0, 0.0, 0.0]}
    assert [each.record.name for each in stage.circuits.active()] != []
    assert len(stage.circuits.active()) == 2
    stage.agrees()


def test_once_every_layer_has_its_sae_the_circuit_is_served_in_full(stage: Stage) -> None:
    circuit_id = imported(stage)
    slice_id = stage.circuits.activate(circuit_id).slice_profile_id
    stage.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    done = stage.circuits.activate(circuit_id)
    assert (done.record.serving_mode, done.slice_layer) == ("full", None)
    assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0], 11: [0.0, 0.0, 2.0, -1.0]}
    assert stage.profiles.active() is None
    stage.agrees()
    stage.desk.apply(transitions.detach("sae_a"))
    back = stage.circuits.activate(circuit_id)
    assert (back.record.serving_mode, back.slice_profile_id) == ("slice_fallback", slice_id)
    assert deltas(stage.desk) == {11: [0.0, 0.0, 2.0, -1.0]}
    stage.agrees()


def test_a_slice_moves_with_the_sae_that_is_there(stage: Stage) -> None:
    circuit_id = imported(stage)
    first = stage.circuits.activate(circuit_id).slice_profile_id
    stage.desk.apply(transitions.detach("sae_b"))
    assert stage.circuits.get(circuit_id).steering is False
    stage.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    moved = stage.circuits.activate(circuit_id)
    assert (moved.slice_layer, moved.applied_per_layer) == (6, {6: {1: 4.0}})
    assert moved.slice_profile_id != first
    assert [claim.layer for claim in stage.circuits.claims()] == [6]
    assert all("one profile" not in each for each in moved.warnings)
    stage.agrees()


def test_a_slice_that_cannot_serve_is_no_success(stage: Stage) -> None:
    document = circuit()
    document["members"][1]["expanded_members"][0]["feature_idx"] = 48
    document["edges"] = []
    circuit_id = imported(stage, document)
    before = stage.everything()
    with pytest.raises(SaeSetIncomplete) as caught:
        stage.circuits.activate(circuit_id, acknowledge_unvalidated=True)
    assert caught.value.details["offenders"] == [
        {"feature_idx": 48, "layer": 11, "reason": "slice_activation_failed"},
        {"feature_idx": 3, "layer": 11, "reason": "slice_activation_failed"},
    ]
    assert stage.everything() == before
    stage.agrees()


def test_composed_beside_a_slice_both_steer(library: Library) -> None:
    stage = make_stage(library, ELEVEN, CIRCUIT_ALLOW_CONCURRENT=True)
    sliced = imported(stage)
    stage.circuits.activate(sliced)
    other = imported(stage, one_layer("other", 11, 1))
    done = stage.circuits.activate(other, allow_layer_overlap=True)
    assert done.composed_layers == (11,)
    assert deltas(stage.desk) == {11: [0.0, 4.0, 2.0, -1.0]}
    assert {claim.circuit_id: claim.composed for claim in stage.circuits.claims()} == {sliced: True, other: True}
    assert stage.desk.live_plan.rung is None
    stage.circuits.deactivate(sliced)
    assert deltas(stage.desk) == {11: [0.0, 4.0, 0.0, 0.0]}
    assert stage.desk.live_plan.rung == 2
    stage.agrees()
