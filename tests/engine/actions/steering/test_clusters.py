"""Clusters: imported as they came, bound to what is attached, dialled from what their author wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import EngineSettings
from engine.documents.errors import ClusterNotFound, DocumentInvalid, DocumentTooLarge, UnknownKind
from engine.errors import InvalidParameter, MillmError, SaeNotAttached
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.errors import NoActiveCluster, SteeringInvalid
from engine.steering.request import SteeringRequest
from engine.steering.resolve import resolve
from engine.steering.stored import dial_bounds, read_stored
from engine.wire import wire
from tests.engine.actions.steering.stage import (
    ELEVEN,
    SIX,
    Stage,
    bundle,
    circuit,
    cluster,
    make_stage,
    member,
    one_layer,
    raw,
    refused,
)
from tests.engine.steering.made import attachment, deltas, values


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


@pytest.fixture
def bare(library: Library) -> Stage:
    """Nothing is attached."""
    return make_stage(library)


def imported(stage: Stage, document: dict[str, Any] | None = None, **options: Any) -> str:
    item = stage.clusters.import_document(raw(document or cluster()), **options).results[0]
    assert item.profile_id is not None, item.error
    return item.profile_id


def outcome(stage: Stage, document: Any, **options: Any) -> dict[str, Any]:
    found = wire(stage.clusters.import_document(raw(document), **options))
    for each in found["results"]:
        each.pop("profile_id", None)
    return found


# --- import -----------------------------------------------------------------------------------------------------------


def test_a_cluster_as_it_travels(stage: Stage) -> None:
    cluster_id = imported(stage)
    travelling = wire(stage.clusters.get(cluster_id))
    assert travelling.pop("created_at") == travelling.pop("updated_at")
    assert travelling == {
        "id": cluster_id,
        "name": "Harbour",
        "description": "Words of the sea.",
        "model_id": "acme/tiny-1b",
        "sae_id": "sae_a",
        "layer": 6,
        "is_active": False,
        "intensity": 0.5,
        "sensing_enabled": False,
        "member_count": 3,
        "members": [[1, "ships", 4.0], [2, None, -6.0], [3, None, -2.0]],
        "display_token": "quay",
        "bound": True,
        "warnings": [],
        "hub_ref": None,
        "intensity_range": [0.25, 1.75],
        "budget_b": 18.5,
        "formula_id": "demo@1",
    }
    assert stage.names() == ["clusters:changed"]
    assert wire(stage.clusters.list())["active_cluster_id"] is None


def test_the_document_comes_back_as_it_was(stage: Stage) -> None:
    document = cluster(x_numbers=[1, 1.0, -0.0, 1e300, 10**30], provenance={"source_note": "demo", "x": {}})
    assert stage.clusters.export(imported(stage, document)) == document
    local = {**document, "name": "local", "warnings": ["w"], "sensing_overrides": {}, "hub_ref": {"repo_id": "a/b"}}
    assert stage.clusters.export(imported(stage, local)) == {**document, "name": "local"}
    assert json.dumps(stage.clusters.export(imported(stage, document))) == json.dumps(document)


def test_a_bundle_is_stored_item_by_item(stage: Stage) -> None:
    bad = cluster("bad", *[member(index, 1.0) for index in range(21)])
    found = outcome(stage, bundle(cluster("one"), bad, cluster("two"), 7, cluster("one")))
    assert [(each["name"], each["status"]) for each in found["results"]] == [
        ("one", "imported"),
        ("bad", "error"),
        ("two", "imported"),
        ("definition 4", "error"),
        ("one (2)", "imported"),
    ]
    assert (found["imported"], found["blocked"], found["errors"]) == (3, 0, 2)
    assert found["results"][1]["errors"] == [
        {"pointer": "/definitions/1/members", "message": "must have at most 20 items"}
    ]
    assert [each.record.name for each in stage.clusters.list().clusters] == ["one", "one (2)", "two"]


def test_taken_names(stage: Stage) -> None:
    imported(stage)
    found = outcome(stage, cluster(), on_conflict="fail")
    assert (found["imported"], found["errors"]) == (0, 1)
    assert found["results"][0]["error"].startswith("The library has a profile named 'Harbour' already.")
    assert outcome(stage, cluster())["results"][0]["name"] == "Harbour (2)"
    with pytest.raises(InvalidParameter) as caught:
        stage.clusters.import_document(raw(cluster()), on_conflict="replace")
    assert refused(caught.value) == ("invalid_parameter", "on_conflict")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (raw(circuit()), UnknownKind),
        (raw({"name": "calm", "steering": {}}), UnknownKind),
        (raw(cluster(members=[])), DocumentInvalid),
        (raw(cluster("x", member(1, float("nan")))), DocumentInvalid),
        (raw(cluster(sae={"source_hint": "/etc/passwd"})), DocumentInvalid),
        (b'{"kind":"mistudio.cluster-definition","x":' + b"[" * 5000 + b"]" * 5000 + b"}", DocumentInvalid),
        (raw(cluster(narrative="x" * 2_000_000)), DocumentTooLarge),
        (raw(bundle()), DocumentInvalid),
    ],
)
def test_a_bad_document_is_refused_whole(stage: Stage, body: bytes, error: type[MillmError]) -> None:
    before = stage.everything()
    with pytest.raises(error) as caught:
        stage.clusters.import_document(body, activate=True)
    assert "pointer" in caught.value.details["errors"][0]
    assert stage.everything() == before and stage.names() == []


UNBOUND: dict[str, tuple[dict[str, Any], str]] = {
    "another feature count": (
        {"sae": {"layer": 6, "n_features": 47}},
        "Not bound: it was made for an SAE with 47 features and 'sae_a' at layer 6 has 48.",
    ),
    "nobody at its layer": ({"sae": {"layer": 7}}, "Not bound: no SAE is attached at layer 7."),
    "several would do": (
        {"sae": None},
        "Not bound: several SAEs are attached and neither an SAE nor a layer is named.",
    ),
}


@pytest.mark.parametrize("case", UNBOUND)
def test_what_cannot_be_bound_is_stored_all_the_same(stage: Stage, case: str) -> None:
    changes, warning = UNBOUND[case]
    found = outcome(stage, cluster(**changes))["results"][0]
    assert (found["status"], found["warnings"]) == ("imported_unbound", [warning])
    record = stage.clusters.list().clusters[0].record
    assert (record.bound, record.warnings) == (False, (warning,))


def test_with_nothing_attached_it_names_the_sae_it_wants(bare: Stage) -> None:
    record = bare.clusters.get(imported(bare)).record
    assert (record.bound, record.sae_id, record.layer) == (False, "sae_a", 6)
    assert record.warnings == ("Not bound: no SAE is attached. Attach one, then activate the cluster.",)


def test_a_substitute_is_bound_with_a_warning(library: Library) -> None:
    stage = make_stage(library, ("other", 6))
    record = stage.clusters.get(imported(stage)).record
    assert (record.bound, record.sae_id, record.layer) == (True, "other", 6)
    assert record.warnings == ("Bound with a remark: substituted: made with 'sae_a', runs on 'other' at layer 6.",)


# --- import and activation in one -------------------------------------------------------------------------------------


def test_an_import_may_activate(stage: Stage) -> None:
    cluster_id = imported(stage, activate=True)
    assert values(stage.desk, SIX) == {1: 2.0, 2: -3.0, 3: -1.0}
    assert stage.clusters.list().active_cluster_id == cluster_id
    stage.agrees()


def test_activating_an_unbound_import_is_not_ignored_in_silence(bare: Stage) -> None:
    found = outcome(bare, cluster(), activate=True)["results"][0]
    assert found["status"] == "imported_unbound"
    assert found["warnings"][-1] == "Not activated: it is not bound to an attached SAE."
    assert bare.clusters.list().clusters[0].record.warnings == tuple(found["warnings"])
    assert bare.profiles.active() is None


def test_an_activation_that_fails_keeps_the_import(stage: Stage) -> None:
    before = stage.desk.now
    found = outcome(stage, cluster("Harbour", member(48, 1.0), member(1, 1.0)), activate=True)["results"][0]
    assert found["status"] == "imported"
    assert found["warnings"][0] == "'sae_a' at layer 6 has features 0 to 47; outside are #48."
    assert found["warnings"][1].startswith(
        "Not activated: 'sae_a' at layer 6 has features 0 to 47; the cluster 'Harbour'"
    )
    record = stage.clusters.list().clusters[0].record
    assert (record.is_active, record.warnings) == (False, tuple(found["warnings"]))
    assert stage.desk.now is before


def test_of_a_bundle_the_first_that_can_be_is_activated(stage: Stage) -> None:
    broken = cluster("broken", member(48, 1.0))
    unbound = cluster("unbound", sae={"layer": 9})
    found = outcome(stage, bundle(unbound, broken, cluster("one"), cluster("two")), activate=True)["results"]
    assert [each["warnings"][-1][:40] if each["warnings"] else None for each in found] == [
        "Not activated: it is not bound to an att",
        "Not activated: 'sae_a' at layer 6 has fe",
        None,
        "Not activated: one cluster is active at ",
    ]
    active = stage.profiles.active()
    assert active is not None and active.record.name == "one"
    stage.agrees()


# --- in force ---------------------------------------------------------------------------------------------------------


def test_an_unbound_cluster_is_bound_by_its_activation_alone(bare: Stage) -> None:
    cluster_id = imported(bare, cluster(sae={"mistudio_sae_id": "gone", "layer": 6}))
    with pytest.raises(SaeNotAttached):
        bare.clusters.activate(cluster_id)
    record = bare.clusters.get(cluster_id).record
    assert (record.bound, record.sae_id) == (False, "gone")
    bare.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    assert wire(bare.clusters.activate(cluster_id)) == {
        "profile_id": cluster_id,
        "applied_steering": True,
        "feature_count": 3,
        "warnings": ["Runs with a remark: substituted: made with 'gone', runs on 'sae_a' at layer 6."],
    }
    record = bare.clusters.get(cluster_id).record
    assert (record.bound, record.sae_id, record.layer) == (True, "sae_a", 6)
    assert record.warnings == ("Bound with a remark: substituted: made with 'gone', runs on 'sae_a' at layer 6.",)
    bare.agrees()


@pytest.mark.parametrize("route", ["cluster", "profile", "request"])
@pytest.mark.parametrize("empty", [False, True])
def test_another_feature_space_is_refused_on_every_path(stage: Stage, route: str, empty: bool) -> None:
    cluster_id = imported(stage, cluster(sae={"mistudio_sae_id": "sae_a", "layer": 6, "n_features": 47}))
    if empty:
        # Not by any action: a row from elsewhere whose members were lost.
        stage.library.profiles.update(cluster_id, intensity=1.0)
        with stage.library._sessions.write() as session:
            session.connection().exec_driver_sql("UPDATE profiles SET steering = '{}'")
    before = stage.everything()
    if route == "request":
        record = stage.library.profiles.get(cluster_id)
        assert record is not None
        asked = SteeringRequest(profile=record.name)
        now = stage.desk.now
        if empty:
            resolved = resolve(
                asked, now.state, now.plan, lambda name: read_stored(record), dial_bounds(EngineSettings())
            )
            assert resolved.plan is not None and resolved.plan.is_empty
        else:
            with pytest.raises(MillmError) as refusal:
                resolve(asked, now.state, now.plan, lambda name: read_stored(record), dial_bounds(EngineSettings()))
            assert refusal.value.code == "invalid_feature_index"
    else:
        activate = stage.clusters.activate if route == "cluster" else stage.profiles.activate
        with pytest.raises(SteeringInvalid) as caught:
            activate(cluster_id)
        assert (caught.value.details["n_features"], caught.value.details["d_sae"]) == (47, 48)
    assert stage.everything() == before


def test_routes_of_clusters_know_clusters_alone(stage: Stage) -> None:
    profile = stage.profiles.create("calm").record.id
    for call in (
        stage.clusters.get,
        stage.clusters.export,
        stage.clusters.activate,
        stage.clusters.deactivate,
        stage.clusters.delete,
        lambda name: stage.clusters.set_intensity(name, 1.0),
    ):
        for wrong in (profile, "prof_000000000000"):
            with pytest.raises(ClusterNotFound):
                call(wrong)


def test_deactivating_and_deleting(stage: Stage) -> None:
    cluster_id = imported(stage, activate=True)
    assert stage.clusters.deactivate(cluster_id).cleared_steering is True
    assert stage.desk.live_plan.is_empty
    stage.clusters.activate(cluster_id)
    deleted = wire(stage.clusters.delete(cluster_id))
    assert (deleted["deleted"], deleted["cleared_steering"]) == (True, True)
    assert stage.desk.live_plan.is_empty and stage.clusters.list().clusters == ()
    stage.agrees()


def test_a_damaged_document_is_said_and_does_not_hide_the_cluster(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    cluster_id = imported(stage)
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("UPDATE profiles SET cluster_meta = '{'")
    summary = stage.clusters.get(cluster_id)
    assert summary.members == ((1, None, 4.0), (2, None, -6.0), (3, None, -2.0))
    assert "cannot be read" in caplog.text
    with pytest.raises(DocumentInvalid):
        stage.clusters.export(cluster_id)
    stage.clusters.activate(cluster_id)
    assert values(stage.desk, SIX) == {1: 2.0, 2: -3.0, 3: -1.0}


# --- the dial ---------------------------------------------------------------------------------------------------------


def test_the_dial_scales_what_the_author_wrote(stage: Stage) -> None:
    cluster_id = imported(
        stage, cluster("loud", member(1, 150.0), budget={"intensity": 2.0, "intensity_range": [0, 2]})
    )
    stage.clusters.activate(cluster_id)
    assert values(stage.desk, SIX) == {1: 200.0}
    version = stage.desk.state.version
    stage.names()
    assert wire(stage.clusters.set_intensity(cluster_id, 1)) == {
        "profile_id": cluster_id,
        "intensity": 1.0,
        "reapplied": True,
    }
    assert values(stage.desk, SIX) == {1: 150.0}
    assert stage.desk.state.version == version + 1
    assert stage.names() == ["steering:update", "clusters:changed"]
    assert stage.clusters.get(cluster_id).record.intensity == 1.0
    assert stage.clusters.set_active_intensity(0.5).profile_id == cluster_id
    assert values(stage.desk, SIX) == {1: 75.0}
    stage.clusters.set_active_intensity(0)
    assert values(stage.desk, SIX) == {} and not stage.desk.state.entry(SIX).enabled
    stage.clusters.set_active_intensity(1.5)
    assert values(stage.desk, SIX) == {1: 200.0}
    assert 'intensity="1.5"' in stage.desk.live_plan.report.text()
    stage.agrees()


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ([0.25, 1.75], [0, 0.1, 1.75], [1.76, 2, -0.1]),
        ([1.75, 0.25], [0, 0.1, 1.75], [1.76, 2]),
        ("garbage", [0, 1.5], [1.51, 2]),
        ([1, "x"], [0, 1.5], [1.51]),
        (None, [0, 1.5], [1.51]),
        ([0, 9], [0, 2], [2.01]),
        ([5, 9], [0, 1.5], [1.51]),
    ],
)
def test_the_dials_range(stage: Stage, declared: Any, good: list[float], bad: list[float]) -> None:
    budget = {"intensity": 1.0, "intensity_range": declared}
    cluster_id = imported(stage, cluster("dialled", member(1, 120.0), budget=budget), activate=True)
    for value in good:
        assert stage.clusters.set_intensity(cluster_id, value).intensity == value
    before = stage.everything()
    for value in [*bad, True, "1", float("nan"), float("inf"), None]:
        with pytest.raises(SteeringInvalid) as caught:
            stage.clusters.set_intensity(cluster_id, value)
        assert refused(caught.value) == ("validation_error", "intensity")
    assert stage.everything() == before


@pytest.mark.parametrize(("declared", "ceiling"), [([1.75, 0.25], 1.75), ("garbage", 1.5), ([None, 3], 1.5)])
def test_a_bad_range_is_read_alike_in_warning_dial_and_request(stage: Stage, declared: Any, ceiling: float) -> None:
    budget = {"intensity": 1.0, "intensity_range": declared}
    cluster_id = imported(stage, cluster("dialled", member(1, 190.0), budget=budget), activate=True)
    assert (
        f"At intensity {ceiling:g} these strengths are clamped to ±200: #1 (190)."
        in stage.clusters.get(cluster_id).record.warnings
    )
    assert stage.clusters.set_intensity(cluster_id, ceiling).intensity == ceiling
    record = stage.library.profiles.by_name("dialled")
    assert record is not None
    now = stage.desk.now
    asked = SteeringRequest(profile="dialled", dial=2.0)
    resolved = resolve(asked, now.state, now.plan, lambda name: read_stored(record), dial_bounds(EngineSettings()))
    assert resolved.plan is not None
    assert f'intensity="{ceiling}"' in resolved.plan.report.text()


def test_configured_bounds(library: Library) -> None:
    stage = make_stage(library, SIX, CLUSTER_INTENSITY_MAX=1.2)
    cluster_id = imported(stage, cluster(budget=None))
    with pytest.raises(SteeringInvalid):
        stage.clusters.set_intensity(cluster_id, 1.3)
    assert stage.clusters.set_intensity(cluster_id, 1.2).reapplied is False


def test_a_dial_that_is_not_applied_changes_the_row_alone(stage: Stage) -> None:
    cluster_id = imported(stage, activate=True)
    now = stage.desk.now
    assert wire(stage.clusters.set_intensity(cluster_id, 1, reapply=False)) == {
        "profile_id": cluster_id,
        "intensity": 1.0,
        "reapplied": False,
    }
    assert stage.desk.now is now
    other = imported(stage, cluster("other"))
    assert stage.clusters.set_intensity(other, 1.5).reapplied is False
    assert stage.desk.now is now
    assert stage.clusters.get(other).record.intensity == 1.5


def test_a_dial_that_cannot_be_applied_stays_where_it_was(stage: Stage) -> None:
    cluster_id = imported(stage, activate=True)
    stage.desk.apply(transitions.detach("sae_a"))
    before = stage.everything()
    with pytest.raises(SaeNotAttached):
        stage.clusters.set_intensity(cluster_id, 1)
    assert stage.everything() == before
    assert stage.clusters.get(cluster_id).record.intensity == 0.5
    stage.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    assert stage.clusters.set_intensity(cluster_id, 1).reapplied is True
    assert values(stage.desk, SIX) == {1: 4.0, 2: -6.0, 3: -2.0}


def test_a_dial_on_a_feature_that_a_circuit_steers_meanwhile_stays_where_it_was(stage: Stage) -> None:
    cluster_id = imported(stage, activate=True)
    stage.desk.apply(transitions.detach("sae_a"))
    stage.desk.apply(transitions.attach([attachment("sae_a", 6)]))
    stage.circuits.activate(stage.circuits.import_document(raw(one_layer("c", 6, 1))).id)
    before = stage.everything()
    with pytest.raises(SteeringInvalid) as caught:
        stage.clusters.set_intensity(cluster_id, 1)
    assert caught.value.details["feature_idx"] == 1
    assert stage.everything() == before
    assert deltas(stage.desk) == {6: [0.0, 4.0, 0.0, 0.0]}


def test_without_an_active_cluster_there_is_no_dial(stage: Stage) -> None:
    with pytest.raises(NoActiveCluster):
        stage.clusters.set_active_intensity(1)
    stage.profiles.activate(stage.profiles.create("calm", steering={0: 1.0}, sae_id="sae_a").record.id)
    with pytest.raises(NoActiveCluster):
        stage.clusters.set_active_intensity(1)
