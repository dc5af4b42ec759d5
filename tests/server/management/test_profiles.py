"""Profiles over HTTP: made, edited, put in force, written out and read in again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.management.conftest import House
from tests.server.management.documents import circuit, cluster
from tests.server.management.test_steering import generate

CALM = {"name": "calm", "description": "Slow.", "steering": {"3": 120, "10": -2.5}, "sae_id": "a", "layer": 1}


def test_none_yet(shared: House) -> None:
    assert shared.api.ok("GET", "/api/profiles/active") is None
    for method, path in (
        ("GET", "/api/profiles/prof_0"),
        ("PATCH", "/api/profiles/prof_0"),
        ("PUT", "/api/profiles/prof_0"),
        ("DELETE", "/api/profiles/prof_0"),
        ("POST", "/api/profiles/prof_0/activate"),
        ("POST", "/api/profiles/prof_0/deactivate"),
        ("GET", "/api/profiles/prof_0/export"),
    ):
        body = {"name": "x"} if method in ("PATCH", "PUT") else None
        shared.api.refused(404, "PROFILE_NOT_FOUND", method, path, body)


def test_make_read_edit_delete(bare: House) -> None:
    api = bare.api
    with bare.socket() as events:
        made = api.ok("POST", "/api/profiles", CALM)
        assert events.wait_for("profiles:changed") == {}
    assert made["id"].startswith("prof_")
    assert made["steering"] == {"3": 120.0, "10": -2.5}
    assert (made["is_active"], made["source_kind"], made["intensity"]) == (False, "manual", 1.0)
    assert api.ok("GET", f"/api/profiles/{made['id']}") == made
    other = api.ok("POST", "/api/profiles", {"name": "Brisk"})
    assert other["steering"] == {}
    found = api.ok("GET", "/api/profiles")
    assert [each["name"] for each in found["profiles"]] == ["Brisk", "calm"]
    assert (found["total"], found["active_profile_id"]) == (2, None)
    assert api.ok("GET", "/api/profiles?kind=cluster")["profiles"] == []
    taken = api.refused(409, "PROFILE_ALREADY_EXISTS", "POST", "/api/profiles", {"name": "calm"})
    assert taken["details"]["existing_profile_id"] == made["id"]

    edited = api.ok("PATCH", f"/api/profiles/{made['id']}", {"steering": {"5": 1}, "description": None})
    assert (edited["steering"], edited["description"], edited["name"]) == ({"5": 1.0}, None, "calm")
    assert api.ok("PUT", f"/api/profiles/{made['id']}", {"name": "calmer"})["name"] == "calmer"
    api.refused(409, "PROFILE_ALREADY_EXISTS", "PATCH", f"/api/profiles/{made['id']}", {"name": "Brisk"})

    gone = api.ok("DELETE", f"/api/profiles/{made['id']}")
    assert (gone["profile_id"], gone["deleted"], gone["cleared_steering"]) == (made["id"], True, False)
    api.refused(404, "PROFILE_NOT_FOUND", "GET", f"/api/profiles/{made['id']}")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x", "description": "y" * 501}, "description"),
        ({"name": "x", "steering": {"-1": 1}}, "steering.-1"),
        ({"name": "x", "steering": {"a": 1}}, "steering.a"),
        ({"name": "x", "steering": {"1": True}}, "steering.1"),
        ({"name": "x", "steering": {"1": "2"}}, "steering.1"),
        (b'{"name": "x", "steering": {"1": NaN}}', "steering.1"),
        ({"name": "x", "steering": []}, "steering"),
        ({"name": "x", "layer": -1}, "layer"),
        ({"name": "x", "is_active": True}, "is_active"),
    ],
)
def test_profiles_that_are_not_well_formed(shared: House, body: Any, param: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", "/api/profiles", body)
    assert error["details"]["errors"][0]["param"] == param
    assert shared.api.ok("GET", "/api/profiles")["total"] == 0


def test_edits_that_are_refused(steered: House) -> None:
    api = steered.api
    made = api.ok("POST", "/api/profiles", CALM)
    place = f"/api/profiles/{made['id']}"
    for body in ({}, {"steering": None}, {"steering": {"-1": 1}}, {"name": None}, {"id": "x"}, {"name": "y" * 101}):
        api.refused(422, "VALIDATION_ERROR", "PATCH", place, body)
    assert api.ok("GET", place) == made
    imported = api.ok("POST", "/api/clusters/import", cluster())["results"][0]["profile_id"]
    error = api.refused(422, "VALIDATION_ERROR", "PATCH", f"/api/profiles/{imported}", {"steering": {"1": 1}})
    assert "document" in error["message"]
    api.ok("PATCH", f"/api/profiles/{imported}", {"name": "Another harbour"})


def test_in_force(steered: House) -> None:
    api = steered.api
    plain, _ = generate(steered)
    made = api.ok("POST", "/api/profiles", CALM)
    with steered.socket() as events:
        done = api.ok("POST", f"/api/profiles/{made['id']}/activate")
        assert events.wait_for("steering:update")["values"] == {"3": 120.0, "10": -2.5}
        events.wait_for("profiles:changed")
    assert (done["profile_id"], done["applied_steering"], done["feature_count"]) == (made["id"], True, 2)
    assert api.ok("GET", "/api/profiles/active")["id"] == made["id"]
    assert api.ok("GET", "/api/profiles")["active_profile_id"] == made["id"]
    text, report = generate(steered)
    assert report.startswith('profile;name="calm";source=active;intensity="1.0";sae="a";layer=1;features=2;')
    assert text != plain
    stopped = api.ok("POST", f"/api/profiles/{made['id']}/deactivate")
    assert (stopped["profile_id"], stopped["cleared_steering"]) == (made["id"], True)
    assert generate(steered) == (plain, "none")
    api.ok("POST", f"/api/profiles/{made['id']}/activate", {"apply_steering": True})
    kept = api.ok("POST", f"/api/profiles/{made['id']}/deactivate?clear_steering=false")
    assert kept["cleared_steering"] is False
    assert generate(steered)[1].startswith("manual;")
    api.ok("DELETE", "/api/saes/steering")
    labelled = api.ok("POST", f"/api/profiles/{made['id']}/activate", {"apply_steering": False})
    assert labelled["applied_steering"] is False
    assert generate(steered)[1] == "none"
    assert api.ok("DELETE", f"/api/profiles/{made['id']}")["deleted"] is True
    assert api.ok("GET", "/api/profiles/active") is None


def test_activations_that_are_refused(steered: House) -> None:
    api = steered.api
    wide = api.ok("POST", "/api/profiles", {"name": "wide", "steering": {"3": 1, "64": 1}, "sae_id": "a", "layer": 1})
    error = api.refused(422, "VALIDATION_ERROR", "POST", f"/api/profiles/{wide['id']}/activate")
    assert (error["details"]["bad_indices"], error["details"]["attached_d_sae"]) == ([64], 64)
    anywhere = api.ok("POST", "/api/profiles", {"name": "anywhere", "steering": {"3": 1}})
    api.refused(422, "VALIDATION_ERROR", "POST", f"/api/profiles/{anywhere['id']}/activate")  # two would do
    elsewhere = api.ok("POST", "/api/profiles", {"name": "elsewhere", "steering": {"3": 1}, "layer": 3})
    api.refused(400, "SAE_NOT_ATTACHED", "POST", f"/api/profiles/{elsewhere['id']}/activate")
    for body in ({"apply_steering": "yes"}, {"apply": True}):
        api.refused(422, "VALIDATION_ERROR", "POST", f"/api/profiles/{wide['id']}/activate", body)
    api.refused(422, "VALIDATION_ERROR", "POST", f"/api/profiles/{wide['id']}/deactivate?clear_steering=maybe")
    api.refused(422, "VALIDATION_ERROR", "POST", f"/api/profiles/{wide['id']}/deactivate", {"clear_steering": False})
    assert api.ok("GET", "/api/profiles/active") is None


def test_the_current_values_under_a_name(steered: House) -> None:
    api = steered.api
    api.ok("POST", "/api/saes/steering/batch", {"steering": {"7": 1.5, "2": 3}})
    saved = api.ok("POST", "/api/profiles/save-current", {"name": "now", "description": "As it is."})
    assert (saved["steering"], saved["sae_id"], saved["layer"]) == ({"2": 3.0, "7": 1.5}, "a", 1)
    assert saved["description"] == "As it is."
    api.ok("POST", "/api/saes/steering", {"feature_idx": 1, "value": 1, "sae_id": "b"})
    error = api.refused(422, "VALIDATION_ERROR", "POST", "/api/profiles/save-current", {"name": "both"})
    assert error["details"]["steered"] == [{"sae_id": "a", "layer": 1}, {"sae_id": "b", "layer": 2}]
    assert api.ok("POST", "/api/profiles/save-current", {"name": "b's", "sae_id": "b"})["layer"] == 2
    api.refused(409, "PROFILE_ALREADY_EXISTS", "POST", "/api/profiles/save-current", {"name": "now", "layer": 1})
    api.refused(422, "VALIDATION_ERROR", "POST", "/api/profiles/save-current", {})
    api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/profiles/save-current", {"name": "c", "sae_id": "c"})


def test_saving_with_nothing_attached(bare: House) -> None:
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/profiles/save-current", {"name": "now"})


def test_out_and_in_again(bare: House) -> None:
    api = bare.api
    made = api.ok("POST", "/api/profiles", CALM)
    document = api.ok("GET", f"/api/profiles/{made['id']}/export")
    assert document == {
        "version": "1.0",
        "name": "calm",
        "description": "Slow.",
        "model_id": None,
        "sae_id": "a",
        "layer": 1,
        "steering": {"3": 120.0, "10": -2.5},
        "created_at": made["created_at"],
        "updated_at": made["updated_at"],
    }
    api.refused(409, "PROFILE_ALREADY_EXISTS", "POST", "/api/profiles/import", document)
    again = api.ok("POST", "/api/profiles/import?on_conflict=rename", {**document, "x_own": {"kept": 1}})
    assert (again["name"], again["steering"]) == ("calm (2)", {"3": 120.0, "10": -2.5})
    assert api.ok("GET", f"/api/profiles/{again['id']}/export")["x_own"] == {"kept": 1}
    nested = {"name": "other", "sae": {"layer": 2}, "features": [{"index": 3, "strength": 2}]}
    assert api.ok("POST", "/api/profiles/import", nested)["layer"] == 2
    api.refused(422, "VALIDATION_ERROR", "POST", "/api/profiles/import?on_conflict=replace", document)


def test_a_cluster_has_its_own_doors(bare: House) -> None:
    imported = bare.api.ok("POST", "/api/clusters/import", cluster())["results"][0]["profile_id"]
    bare.api.refused(200, "IS_CLUSTER_DOCUMENT", "GET", f"/api/profiles/{imported}/export")
    bare.api.refused(200, "IS_CLUSTER_DOCUMENT", "POST", "/api/profiles/import", cluster())
    bare.api.refused(200, "UNKNOWN_KIND", "POST", "/api/profiles/import", circuit())
    assert [each["source_kind"] for each in bare.api.ok("GET", "/api/profiles")["profiles"]] == ["cluster"]


def test_a_dial_of_its_own(shared: House) -> None:
    api = shared.api
    made = api.ok("POST", "/api/profiles", {"name": "dialled", "steering": {"3": 2}})
    path = f"/api/profiles/{made['id']}/intensity"
    assert api.ok("PUT", path, {"intensity": 1.5}) == {
        "profile_id": made["id"],
        "intensity": 1.5,
        "reapplied": False,
    }
    assert api.ok("GET", f"/api/profiles/{made['id']}")["intensity"] == 1.5
    api.refused(422, "VALIDATION_ERROR", "PUT", path, {"intensity": 2.5})
    api.refused(404, "PROFILE_NOT_FOUND", "PUT", "/api/profiles/prof_0/intensity", {"intensity": 1})
    api.ok("DELETE", f"/api/profiles/{made['id']}")
