"""Profiles: stored, saved from what steers, put in force and taken out; a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import InvalidParameter, LibraryUnusable, MillmError, SaeNotAttached
from engine.library.database import Library
from engine.library.errors import ProfileAlreadyExists, ProfileNotFound
from engine.library.records import ProfileKind
from engine.steering import transitions
from engine.steering.errors import SteeringInvalid
from engine.wire import wire
from tests.engine.actions.steering.stage import (
    ELEVEN,
    SIX,
    Stage,
    circuit,
    cluster,
    make_stage,
    one_layer,
    raw,
    refused,
)
from tests.engine.steering.made import deltas, values


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


def create(stage: Stage, name: str = "calm", steering: Any = None, **fields: Any) -> str:
    return stage.profiles.create(name, steering={0: 2.0} if steering is None else steering, **fields).record.id


# --- making -----------------------------------------------------------------------------------------------------------


def test_a_profile_as_it_travels(stage: Stage) -> None:
    made = stage.profiles.create(
        "calm", description="Slow.", steering={"7": 1.5, 42: -300}, model_id="tiny", sae_id="sae_a", layer=6
    )
    travelling = wire(made)
    assert travelling.pop("id") == made.record.id and len(made.record.id) == 17
    assert travelling.pop("created_at") == travelling.pop("updated_at") == made.record.created_at.isoformat()
    assert travelling == {
        "name": "calm",
        "description": "Slow.",
        "model_id": "tiny",
        "sae_id": "sae_a",
        "layer": 6,
        "steering": {"7": 1.5, "42": -300.0},
        "is_active": False,
        "source_kind": "manual",
        "intensity": 1.0,
        "sensing_enabled": False,
    }
    assert stage.names() == ["profiles:changed"]
    assert stage.profiles.get(made.record.id) == made
    assert stage.profiles.create("empty").record.steering == {}


@pytest.mark.parametrize(
    "steering",
    [
        {-1: 1.0},
        {"-1": 1.0},
        {"1.5": 1.0},
        {"x": 1.0},
        {1: True},
        {1: "2"},
        {1: float("nan")},
        {1: None},
        {True: 1.0},
        {"1": 1.0, 1: 2.0},
        {2**31: 1.0},
        [1, 2],
        "1",
    ],
)
def test_strengths_that_are_none_are_refused(stage: Stage, steering: Any) -> None:
    with pytest.raises(SteeringInvalid) as caught:
        stage.profiles.create("calm", steering=steering)
    assert caught.value.code == "validation_error"
    assert str(caught.value.param).startswith("steering")
    assert wire(stage.profiles.list()) == {"profiles": [], "total": 0, "active_profile_id": None}


def test_names_are_unique_over_profiles_and_clusters(stage: Stage) -> None:
    create(stage)
    with pytest.raises(ProfileAlreadyExists):
        create(stage)
    stage.clusters.import_document(raw(cluster("calm")))
    assert [each.record.name for each in stage.profiles.list().profiles] == ["calm", "calm (2)"]
    assert [each.record.name for each in stage.profiles.list(ProfileKind.MANUAL).profiles] == ["calm"]


def test_a_profile_that_is_not_there(stage: Stage) -> None:
    calls: list[Callable[[str], object]] = [
        stage.profiles.get,
        stage.profiles.activate,
        stage.profiles.deactivate,
        stage.profiles.delete,
        stage.profiles.export,
        lambda name: stage.profiles.update(name, {"name": "x"}),
    ]
    for call in calls:
        with pytest.raises(ProfileNotFound):
            call("prof_000000000000")


# --- saving what steers -----------------------------------------------------------------------------------------------


def test_save_current_takes_values_sae_and_layer(stage: Stage) -> None:
    stage.desk.apply(transitions.set_values(ELEVEN, {5: -2.0, 1: 3.0}))
    stage.desk.apply(transitions.set_enabled(ELEVEN, False))
    saved = stage.profiles.save_current("now", "As it is.").record
    assert (saved.sae_id, saved.layer, saved.model_id, saved.description) == ("sae_b", 11, "tiny", "As it is.")
    assert dict(saved.steering) == {1: 3.0, 5: -2.0}
    assert (saved.intensity, saved.is_active) == (1.0, False)


def test_save_current_without_values_is_of_the_first_sae(stage: Stage) -> None:
    saved = stage.profiles.save_current("now").record
    assert (saved.sae_id, saved.layer, dict(saved.steering)) == ("sae_a", 6, {})


def test_save_current_of_several_saes_must_name_one(library: Library) -> None:
    stage = make_stage(library, SIX, ELEVEN, ("sae_a", 11))
    for place in (SIX, ELEVEN, ("sae_a", 11)):
        stage.desk.apply(transitions.set_values(place, {1: 1.0}))
    with pytest.raises(InvalidParameter) as caught:
        stage.profiles.save_current("now")
    assert caught.value.message == (
        "A profile holds the values of one SAE, and several are steered: "
        "'sae_a' at layer 6, 'sae_b' at layer 11, 'sae_a' at layer 11."
    )
    with pytest.raises(InvalidParameter):
        stage.profiles.save_current("now", sae_id="sae_a")
    assert stage.profiles.save_current("b", sae_id="sae_b").record.layer == 11
    assert stage.profiles.save_current("a", sae_id="sae_a", layer=11).record.layer == 11
    with pytest.raises(SaeNotAttached):
        stage.profiles.save_current("now", sae_id="sae_b", layer=6)
    assert wire(stage.profiles.list())["total"] == 2


def test_save_current_needs_an_sae(library: Library) -> None:
    with pytest.raises(SaeNotAttached):
        make_stage(library).profiles.save_current("now")


# --- activation -------------------------------------------------------------------------------------------------------


def test_activation_replaces_the_set_of_its_sae(stage: Stage) -> None:
    stage.desk.apply(transitions.set_values(SIX, {9: 1.0}))
    stage.desk.apply(transitions.set_values(ELEVEN, {9: 1.0}))
    version = stage.desk.state.version
    profile = create(stage, steering={0: 2.0, 5: 150.0, 6: 0.0}, sae_id="sae_b", layer=11)
    stage.names()
    done = stage.profiles.activate(profile)
    assert wire(done) == {
        "profile_id": profile,
        "applied_steering": True,
        "feature_count": 2,
        "warnings": [],
    }
    assert values(stage.desk, ELEVEN) == {0: 2.0, 5: 150.0}
    assert values(stage.desk, SIX) == {9: 1.0}
    assert stage.desk.state.version == version + 1
    assert stage.names() == ["steering:update", "profiles:changed", "clusters:changed"]
    active = stage.profiles.active()
    assert active is not None and active.record.id == profile and stage.profiles.list().active_profile_id == profile
    stage.agrees()
    stage.profiles.activate(profile)
    assert stage.desk.state.version == version + 1


def test_one_profile_is_active_at_a_time(stage: Stage) -> None:
    first = create(stage, sae_id="sae_a", layer=6)
    second = create(stage, "loud", {1: 3.0}, sae_id="sae_b", layer=11)
    stage.profiles.activate(first)
    stage.profiles.activate(second)
    assert (values(stage.desk, SIX), values(stage.desk, ELEVEN)) == ({}, {1: 3.0})
    assert [each.record.is_active for each in stage.profiles.list().profiles] == [False, True]
    stage.agrees()


@pytest.mark.parametrize(
    ("reference", "place", "remark"),
    [
        ({"sae_id": "sae_b", "layer": 11}, ELEVEN, None),
        ({"sae_id": "sae_b"}, ELEVEN, None),
        ({"layer": 6}, SIX, None),
        (
            {"sae_id": "gone", "layer": 6},
            SIX,
            "Runs with a remark: substituted: made with 'gone', runs on 'sae_a' at layer 6.",
        ),
    ],
)
def test_a_profile_acts_on_its_own_sae_not_on_the_first(
    stage: Stage, reference: dict[str, Any], place: tuple[str, int], remark: str | None
) -> None:
    profile = create(stage, **reference)
    done = stage.profiles.activate(profile)
    assert values(stage.desk, place) == {0: 2.0}
    assert done.warnings == (() if remark is None else (remark,))
    record = stage.profiles.get(profile).record
    assert (record.sae_id, record.layer) == (reference.get("sae_id"), reference.get("layer"))


def test_a_profile_of_no_sae_acts_on_the_only_one(library: Library) -> None:
    stage = make_stage(library, ELEVEN)
    stage.profiles.activate(create(stage))
    assert values(stage.desk, ELEVEN) == {0: 2.0}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a layer where nobody is": ({"sae_id": "sae_a", "layer": 7}, "sae_not_attached"),
    "an SAE that is not there": ({"sae_id": "gone"}, "sae_not_attached"),
    "several would do": ({}, "invalid_parameter"),
    "an index outside": ({"sae_id": "sae_a", "layer": 6, "steering": {0: 1.0, 48: 1.0, 99: 1.0}}, "validation_error"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_activation_leaves_everything_as_it_was(stage: Stage, case: str) -> None:
    fields, code = REFUSED[case]
    stage.circuits.activate(stage.circuits.import_document(raw(one_layer("first", 11, 9))).id)
    stage.profiles.activate(create(stage, "before", {3: 1.0}, sae_id="sae_a", layer=6))
    stage.circuits.activate(stage.circuits.import_document(raw(one_layer("second", 11, 9))).id)
    stage.desk.apply(transitions.set_values(ELEVEN, {1: 1.0}))
    profile = create(stage, **{"steering": {0: 1.0}, **fields})
    before = stage.everything()
    stage.names()
    with pytest.raises(MillmError) as caught:
        stage.profiles.activate(profile)
    assert caught.value.code == code
    assert stage.everything() == before and stage.desk.now is before[0]
    assert stage.names() == []
    stage.agrees()


def test_indices_outside_are_named(stage: Stage) -> None:
    profile = create(stage, steering=dict.fromkeys(range(40, 80), 1.0), sae_id="sae_a", layer=6)
    with pytest.raises(SteeringInvalid) as caught:
        stage.profiles.activate(profile)
    assert caught.value.details["bad_indices"] == list(range(48, 68))
    assert caught.value.details["attached_d_sae"] == 48


def test_values_need_an_sae_and_an_empty_profile_does_not(library: Library) -> None:
    stage = make_stage(library)
    with pytest.raises(SaeNotAttached):
        stage.profiles.activate(create(stage, sae_id="sae_a", layer=6))
    empty = create(stage, "empty", {})
    assert wire(stage.profiles.activate(empty)) == {
        "profile_id": empty,
        "applied_steering": False,
        "feature_count": 0,
        "warnings": [],
    }
    stage.agrees()


def test_an_empty_profile_clears_its_sae(stage: Stage) -> None:
    stage.desk.apply(transitions.set_values(SIX, {1: 1.0}))
    stage.desk.apply(transitions.set_values(ELEVEN, {1: 1.0}))
    done = stage.profiles.activate(create(stage, "empty", {}, sae_id="sae_a", layer=6))
    assert (done.applied_steering, done.feature_count) == (False, 0)
    assert (values(stage.desk, SIX), values(stage.desk, ELEVEN)) == ({}, {1: 1.0})
    assert not stage.desk.state.entry(SIX).enabled


def test_clamped_strengths_are_said(stage: Stage) -> None:
    done = stage.profiles.activate(create(stage, steering={0: 250.0, 1: -900.0}, sae_id="sae_a"))
    assert values(stage.desk, SIX) == {0: 200.0, 1: -200.0}
    assert done.warnings == ("2 strengths on 'sae_a' at layer 6 are clamped to ±200.",)


def test_every_active_circuit_is_deactivated_first_with_a_warning_each(stage: Stage) -> None:
    full = stage.circuits.import_document(raw(one_layer("full", 11, 0))).id
    sliced = stage.circuits.import_document(
        raw(
            circuit(
                "sliced",
                saes=[{"layer": 6}, {"layer": 9}],
                edges=[],
                members=[
                    {"layer": 6, "feature": {"feature_idx": 4, "strength": 1.0}},
                    {"layer": 9, "feature": {"feature_idx": 4, "strength": 1.0}},
                ],
            )
        )
    ).record.id
    stage.circuits.activate(full)
    stage.circuits.activate(sliced, acknowledge_unvalidated=True)
    version = stage.desk.state.version
    profile = create(stage, sae_id="sae_b", layer=11)
    stage.names()
    done = stage.profiles.activate(profile)
    assert sorted(done.warnings) == [
        "The circuit 'full' was deactivated: 'calm' takes its place.",
        "The circuit 'sliced' was deactivated: 'calm' takes its place.",
    ]
    assert deltas(stage.desk) == {11: [2.0, 0.0, 0.0, 0.0]}
    assert stage.desk.state.version == version + 1
    assert stage.library.claims.live() == [] and stage.circuits.active() == ()
    assert stage.names() == ["steering:update", "profiles:changed", "clusters:changed", "circuits:changed"]
    stage.agrees()


def test_without_applying_only_the_rows_change(stage: Stage) -> None:
    first, second = create(stage, sae_id="sae_a"), create(stage, "loud", {9999: 3.0}, sae_id="gone")
    stage.profiles.activate(first)
    stage.circuits.activate(stage.circuits.import_document(raw(one_layer("full", 11, 0))).id)
    before = deltas(stage.desk)
    done = stage.profiles.activate(second, apply_steering=False)
    assert (done.applied_steering, done.feature_count, done.warnings) == (False, 0, ())
    assert deltas(stage.desk) == before
    assert stage.profiles.list().active_profile_id == second
    assert [each.record.name for each in stage.circuits.active()] == ["full"]
    assert "manual;" in stage.desk.live_plan.report.text()
    stage.agrees()
    now = stage.desk.now
    stage.profiles.activate(second, apply_steering=False)
    assert stage.desk.now is now


def test_labelling_the_active_profile_again_leaves_it_steering(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    stage.profiles.activate(profile)
    now = stage.desk.now
    stage.profiles.activate(profile, apply_steering=False)
    assert stage.desk.now is now and values(stage.desk, SIX) == {0: 2.0}


def test_a_library_that_cannot_be_written_leaves_the_steering_as_it_was(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    before = stage.desk.now
    stage.library.close()
    with pytest.raises(LibraryUnusable):
        stage.profiles.activate(profile)
    assert stage.desk.now is before


# --- deactivation and removal -----------------------------------------------------------------------------------------


def test_deactivating_clears_what_it_steered(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    stage.desk.apply(transitions.set_values(ELEVEN, {1: 1.0}))
    stage.profiles.activate(profile)
    stage.names()
    assert wire(stage.profiles.deactivate(profile)) == {
        "profile_id": profile,
        "cleared_steering": True,
        "warnings": [],
    }
    assert deltas(stage.desk) == {11: [0.0, 1.0, 0.0, 0.0]}
    assert stage.names() == ["steering:update", "profiles:changed"]
    stage.agrees()


def test_deactivating_one_that_is_not_active_touches_nothing(stage: Stage) -> None:
    active, other = create(stage, sae_id="sae_a"), create(stage, "loud", sae_id="sae_a")
    stage.profiles.activate(active)
    before = stage.everything()
    assert stage.profiles.deactivate(other).cleared_steering is False
    assert stage.everything() == before
    stage.profiles.deactivate(active)
    version = stage.desk.state.version
    assert stage.profiles.deactivate(active).cleared_steering is False
    assert stage.desk.state.version == version


def test_deactivating_may_leave_the_values(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    stage.profiles.activate(profile)
    assert stage.profiles.deactivate(profile, clear_steering=False).cleared_steering is False
    assert values(stage.desk, SIX) == {0: 2.0}
    assert stage.profiles.active() is None
    stage.agrees()


def test_deleting_the_active_profile_clears_what_it_steered(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    stage.profiles.activate(profile)
    assert wire(stage.profiles.delete(profile)) == {
        "profile_id": profile,
        "deleted": True,
        "cleared_steering": True,
        "warnings": [],
    }
    assert stage.desk.live_plan.is_empty
    assert stage.profiles.list().profiles == ()
    stage.agrees()


def test_deleting_another_profile_clears_nothing(stage: Stage) -> None:
    active, other = create(stage, sae_id="sae_a"), create(stage, "loud", sae_id="sae_a")
    stage.profiles.activate(active)
    version = stage.desk.state.version
    assert stage.profiles.delete(other).cleared_steering is False
    assert (values(stage.desk, SIX), stage.desk.state.version) == ({0: 2.0}, version)


def test_release_all_makes_nothing_active(stage: Stage) -> None:
    stage.profiles.activate(create(stage, sae_id="sae_a"))
    stage.desk.apply(transitions.close())
    assert stage.profiles.release_all() == ()
    assert stage.profiles.active() is None
    stage.agrees()


def test_what_cannot_be_released_does_not_keep_the_rest(stage: Stage) -> None:
    stage.profiles.activate(create(stage, sae_id="sae_a"))
    stage.library.close()
    assert stage.profiles.release_all() == ("the profiles",)
    assert stage.desk.state.profile is None and stage.desk.live_plan.is_empty


# --- editing ----------------------------------------------------------------------------------------------------------


def test_editing_sets_what_is_named(stage: Stage) -> None:
    profile = create(stage, description="Slow.", sae_id="sae_a", layer=6)
    edited = stage.profiles.update(profile, {"steering": {"3": 4}, "name": "calmer"}).record
    assert (edited.name, edited.description, dict(edited.steering)) == ("calmer", "Slow.", {3: 4.0})
    assert stage.profiles.update(profile, {"description": None, "layer": None}).record.description is None
    with pytest.raises(InvalidParameter) as caught:
        stage.profiles.update(profile, {"is_active": True})
    assert refused(caught.value) == ("invalid_parameter", "is_active")
    with pytest.raises(SteeringInvalid):
        stage.profiles.update(profile, {"steering": {"-1": 4}})


def test_editing_the_active_profile_leaves_what_steers(stage: Stage) -> None:
    profile = create(stage, sae_id="sae_a")
    stage.profiles.activate(profile)
    version = stage.desk.state.version
    stage.profiles.update(profile, {"name": "calmer"})
    assert 'profile;name="calmer";source=active' in stage.desk.live_plan.report.text()
    stage.profiles.update(profile, {"steering": {0: 7.0}})
    assert values(stage.desk, SIX) == {0: 2.0}
    assert stage.desk.live_plan.report.text().startswith("manual;")
    assert stage.desk.state.version == version
    stage.profiles.activate(profile)
    assert values(stage.desk, SIX) == {0: 7.0}


def test_the_strengths_of_a_cluster_are_not_edited(stage: Stage) -> None:
    item = stage.clusters.import_document(raw(cluster())).results[0]
    assert item.profile_id is not None
    with pytest.raises(SteeringInvalid) as caught:
        stage.profiles.update(item.profile_id, {"steering": {0: 7.0}, "name": "other"})
    assert refused(caught.value) == ("validation_error", "steering")
    assert stage.profiles.update(item.profile_id, {"name": "Port"}).record.name == "Port"
