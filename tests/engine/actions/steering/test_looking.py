"""Clusters and circuits held against what is attached; what is missing; deleting with a way back; dials of profiles."""

from __future__ import annotations

from typing import Any

import pytest

from engine.library.database import Library
from engine.library.errors import CircuitAlreadyExists, ProfileAlreadyExists
from engine.library.records import SaeRecord, SaeSource
from engine.steering.errors import NoActiveCircuit, SteeringInvalid
from engine.wire import wire
from tests.engine.actions.steering.stage import ELEVEN, SIX, Stage, circuit, cluster, make_stage, one_layer, raw
from tests.engine.steering.made import values


@pytest.fixture
def stage(library: Library) -> Stage:
    """Layer 11 alone has its SAE."""
    return make_stage(library, ELEVEN)


def imported(stage: Stage, document: dict[str, Any] | None = None) -> str:
    return stage.circuits.import_document(raw(document or circuit())).id


def add_sae(library: Library, sae_id: str, **facts: Any) -> None:
    library.saes.add(SaeRecord(sae_id, sae_id, SaeSource.LOCAL, **facts))


def test_a_circuit_says_what_it_needs_and_what_is_there(stage: Stage, library: Library) -> None:
    imported(stage)
    (view,) = stage.circuits.views()
    assert view.verdict is not None and not view.verdict.serveable
    assert [(each.layer, each.available, each.attached) for each in view.saes] == [(6, None, None), (11, None, "sae_b")]
    assert view.to_attach == () and [each.layer for each in view.missing] == [6]
    # The only one of that layer and size will do, until there are two.
    add_sae(library, "other", trained_layer=6, d_sae=48)
    assert stage.circuits.views()[0].to_attach == (("other", 6),)
    add_sae(library, "third", trained_layer=6, d_sae=48)
    assert stage.circuits.views()[0].to_attach == ()
    add_sae(library, "sae_a", trained_layer=6, d_sae=48)
    assert stage.circuits.views()[0].to_attach == (("sae_a", 6),)


def test_a_circuits_calibration_and_claims_are_at_hand(library: Library) -> None:
    stage = make_stage(library, SIX, ELEVEN)
    document = circuit(calibration={"onset": 0.25, "sweet_spot": 0.5, "cliff": 1.5})
    stage.circuits.activate(imported(stage, document))
    (view,) = stage.circuits.views()
    assert (view.advice.onset, view.advice.sweet_spot, view.advice.cliff) == (0.25, 0.5, 1.5)
    assert view.advice.provisional is True
    assert (view.envelope.floor, view.envelope.ceiling) == (0.25, 1.5)
    assert [claim.layer for claim in view.claims] == [6, 11]
    assert view.summary.steering is True


def test_a_damaged_circuit_is_seen_as_such(stage: Stage) -> None:
    imported(stage)
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("UPDATE circuits SET definition = '{\"members\": 7}'")
    (view,) = stage.circuits.views()
    assert view.document is None and view.verdict is None
    assert view.problem is not None and "can no longer be read" in view.problem


def test_a_cluster_is_held_against_what_is_attached_now(library: Library) -> None:
    stage = make_stage(library)
    key = stage.clusters.import_document(raw(cluster(calibration={"onset": 0.5, "cliff": "high"}))).results[0]
    (view,) = stage.clusters.views()
    assert view.verdict is not None and not view.verdict.binding.serves and view.to_attach is None
    assert (view.advice.onset, view.advice.cliff) == (0.5, None)
    add_sae(library, "sae_a", trained_layer=6, d_sae=48)
    assert stage.clusters.views()[0].to_attach == ("sae_a", 6)
    attached = make_stage(library, SIX)
    assert key.profile_id is not None
    attached.clusters.activate(key.profile_id)
    (view,) = attached.clusters.views()
    assert view.verdict is not None and view.verdict.binding.serves
    assert view.steers and view.to_attach is None and view.slice_of is None


def test_deleting_a_circuit_takes_the_cluster_of_its_slice_along(stage: Stage) -> None:
    key = imported(stage)
    slice_id = stage.circuits.activate(key).slice_profile_id
    assert slice_id is not None
    (view,) = stage.clusters.views()
    assert view.slice_of == key
    record, cut = stage.circuits.get(key).record, stage.clusters.get(slice_id).record
    deleted = stage.circuits.delete(key)
    assert wire(deleted) == {
        "circuit_id": key,
        "deleted": True,
        "cleared_steering": True,
        "slice_profile_id": slice_id,
    }
    assert stage.clusters.list().clusters == () and stage.desk.live_plan.is_empty
    stage.agrees()
    stage.circuits.restore(record, cut)
    assert stage.circuits.get(key).record.slice_profile_id == slice_id
    assert stage.clusters.get(slice_id).record.is_active is False
    with pytest.raises(CircuitAlreadyExists):
        stage.circuits.restore(record)
    stage.circuits.activate(key)
    assert stage.circuits.get(key).record.slice_profile_id == slice_id
    stage.agrees()


def test_a_slices_cluster_that_steers_alone_stops_with_its_circuit(stage: Stage) -> None:
    key = imported(stage)
    slice_id = stage.circuits.activate(key).slice_profile_id
    assert slice_id is not None
    stage.circuits.deactivate(key)
    stage.clusters.activate(slice_id)
    assert stage.circuits.delete(key).cleared_steering is True
    assert stage.desk.live_plan.is_empty and stage.profiles.active() is None
    stage.agrees()


def test_a_deleted_profile_comes_back_as_it_was(library: Library) -> None:
    stage = make_stage(library, SIX)
    key = stage.profiles.create("calm", steering={1: 2.0}, sae_id="sae_a", layer=6).record.id
    stage.profiles.set_intensity(key, 1.5)
    stage.profiles.activate(key)
    before = stage.profiles.get(key).record
    stage.profiles.delete(key)
    stage.profiles.create("calm")
    stage.names()
    restored = stage.profiles.restore(before).record
    assert (restored.id, restored.name, restored.is_active) == (key, "calm (2)", False)
    assert (restored.intensity, dict(restored.steering), restored.created_at) == (1.5, {1: 2.0}, before.created_at)
    assert stage.names() == ["profiles:changed"]
    with pytest.raises(ProfileAlreadyExists):
        stage.profiles.restore(before)


def test_a_profiles_dial(library: Library) -> None:
    stage = make_stage(library, SIX)
    key = stage.profiles.create("calm", steering={1: 2.0}, sae_id="sae_a", layer=6).record.id
    assert wire(stage.profiles.set_intensity(key, 2)) == {"profile_id": key, "intensity": 2.0, "reapplied": False}
    assert values(stage.desk, SIX) == {}
    stage.profiles.activate(key)
    assert values(stage.desk, SIX) == {1: 4.0}
    assert stage.profiles.set_intensity(key, 0.5).reapplied is True
    assert values(stage.desk, SIX) == {1: 1.0}
    before = stage.everything()
    with pytest.raises(SteeringInvalid):
        stage.profiles.set_intensity(key, 2.5)
    assert stage.everything() == before
    harbour = stage.clusters.import_document(raw(cluster())).results[0].profile_id
    assert harbour is not None
    with pytest.raises(SteeringInvalid):
        stage.profiles.set_intensity(harbour, 1.8)


def test_the_dial_of_one_of_several_circuits(library: Library) -> None:
    stage = make_stage(library, SIX, ELEVEN)
    first, second = imported(stage, one_layer("first", 6, 1)), imported(stage, one_layer("second", 11, 2))
    stage.circuits.activate(first)
    stage.circuits.activate(second)
    stage.circuits.set_intensity(0.5, circuit_id=second)
    assert [one.intensity for one in stage.desk.state.circuits] == [1.0, 0.5]
    stage.circuits.deactivate(first)
    with pytest.raises(NoActiveCircuit):
        stage.circuits.set_intensity(0.5, circuit_id=first)
