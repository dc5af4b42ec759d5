"""Clusters over HTTP: documents in, one in force, its dial, the same documents out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.management.conftest import House
from tests.server.management.documents import bundle, circuit, cluster
from tests.server.management.test_steering import generate


def bring(house: House, document: dict[str, Any] | None = None, query: str = "") -> dict[str, Any]:
    """Import one document; the result of its one definition."""
    outcome = house.api.ok("POST", f"/api/clusters/import{query}", document or cluster())
    (result,) = outcome["results"]
    found: dict[str, Any] = result
    return found


def test_none_yet(shared: House) -> None:
    api = shared.api
    assert api.ok("GET", "/api/clusters") == {"clusters": [], "active_cluster_id": None}
    for method, path in (
        ("GET", "/api/clusters/prof_0"),
        ("DELETE", "/api/clusters/prof_0"),
        ("POST", "/api/clusters/prof_0/activate"),
        ("POST", "/api/clusters/prof_0/deactivate"),
        ("GET", "/api/clusters/prof_0/export"),
    ):
        api.refused(404, "CLUSTER_NOT_FOUND", method, path)
    api.refused(404, "CLUSTER_NOT_FOUND", "PUT", "/api/clusters/prof_0/intensity", {"intensity": 1})
    api.refused(200, "NO_ACTIVE_CLUSTER", "PUT", "/api/clusters/active/intensity", {"intensity": 1})


def test_in_and_out_again(steered: House) -> None:
    api = steered.api
    with steered.socket() as events:
        result = bring(steered)
        assert events.wait_for("clusters:changed") == {}
    assert (result["name"], result["status"], result["warnings"]) == ("Harbour", "imported", [])
    summary = api.ok("GET", f"/api/clusters/{result['profile_id']}")
    assert summary["members"] == [[3, "ships", 4.0], [5, None, -6.0]]
    assert (summary["member_count"], summary["display_token"], summary["bound"]) == (2, "quay", True)
    assert (summary["sae_id"], summary["layer"], summary["is_active"]) == ("a", 1, False)
    assert (summary["intensity"], summary["intensity_range"]) == (1.0, [0.25, 1.75])
    assert (summary["budget_b"], summary["formula_id"], summary["hub_ref"]) == (10.0, "demo@1", None)
    assert api.ok("GET", "/api/clusters")["clusters"] == [summary]
    exported = api.call("GET", f"/api/clusters/{result['profile_id']}/export")
    assert exported.status_code == 200
    assert exported.json() == cluster()
    gone = api.ok("DELETE", f"/api/clusters/{result['profile_id']}")
    assert (gone["profile_id"], gone["deleted"]) == (result["profile_id"], True)


def test_a_taken_name(bare: House) -> None:
    assert bring(bare)["name"] == "Harbour"
    assert bring(bare)["name"] == "Harbour (2)"
    refused = bring(bare, query="?on_conflict=fail")
    assert (refused["status"], "profile_id" in refused) == ("error", False)
    assert "Harbour" in refused["error"]
    bare.api.refused(422, "VALIDATION_ERROR", "POST", "/api/clusters/import?on_conflict=replace", cluster())
    bare.api.refused(422, "VALIDATION_ERROR", "POST", "/api/clusters/import?activate=perhaps", cluster())
    bare.api.refused(422, "VALIDATION_ERROR", "POST", "/api/clusters/import?replace=true", cluster())
    assert len(bare.api.ok("GET", "/api/clusters")["clusters"]) == 2


def test_a_bundle_in_which_one_is_bad(steered: House) -> None:
    outcome = steered.api.ok(
        "POST",
        "/api/clusters/import",
        bundle(cluster(name="one"), cluster(name="two", members=[]), cluster(name="three")),
    )
    assert [(each["name"], each["status"]) for each in outcome["results"]] == [
        ("one", "imported"),
        ("two", "error"),
        ("three", "imported"),
    ]
    assert outcome["results"][1]["errors"][0]["pointer"] == "/definitions/1/members"
    assert (outcome["imported"], outcome["blocked"], outcome["errors"]) == (2, 0, 1)


def test_one_that_fits_nothing_yet(bare: House) -> None:
    result = bring(bare, query="?activate=true")
    assert result["status"] == "imported_unbound"
    assert any("Not activated" in warning for warning in result["warnings"])
    assert bare.api.ok("GET", f"/api/clusters/{result['profile_id']}")["bound"] is False
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", f"/api/clusters/{result['profile_id']}/activate")


def test_one_made_for_another_number_of_features(steered: House) -> None:
    result = bring(steered, cluster(sae={"mistudio_sae_id": "a", "layer": 1, "n_features": 128}))
    assert result["status"] == "imported_unbound"
    steered.api.refused(422, "VALIDATION_ERROR", "POST", f"/api/clusters/{result['profile_id']}/activate")
    assert steered.api.ok("GET", "/api/clusters")["active_cluster_id"] is None


def test_in_force_and_dialled(steered: House) -> None:
    api = steered.api
    plain, _ = generate(steered)
    strong = [{"feature_idx": 3, "strength": 100.0}, {"feature_idx": 5, "strength": -60.0, "sign": -1}]
    result = bring(steered, cluster(members=strong), "?activate=true")
    place = f"/api/clusters/{result['profile_id']}"
    assert api.ok("GET", "/api/clusters")["active_cluster_id"] == result["profile_id"]
    assert api.ok("GET", "/api/saes/steering")["values"] == {"3": 100.0, "5": -60.0}
    assert generate(steered)[0] != plain
    with steered.socket() as events:
        dialled = api.ok("PUT", "/api/clusters/active/intensity", {"intensity": 0.5})
        assert dialled == {"profile_id": result["profile_id"], "intensity": 0.5, "reapplied": True}
        assert events.wait_for("steering:update")["values"] == {"3": 50.0, "5": -30.0}
        events.wait_for("clusters:changed")
    assert 'intensity="0.5"' in generate(steered)[1]
    # From the authored strengths again, not from what was clamped or scaled before.
    api.ok("PUT", f"{place}/intensity", {"intensity": 1.75})
    assert api.ok("GET", "/api/saes/steering")["values"] == {"3": 175.0, "5": -105.0}
    stored = api.ok("PUT", f"{place}/intensity", {"intensity": 1, "reapply": False})
    assert stored["reapplied"] is False
    assert api.ok("GET", "/api/saes/steering")["values"] == {"3": 175.0, "5": -105.0}
    api.ok("PUT", f"{place}/intensity", {"intensity": 0})
    assert generate(steered) == (plain, "none")
    stopped = api.ok("POST", f"{place}/deactivate", {})
    assert stopped["profile_id"] == result["profile_id"]
    assert api.ok("PUT", f"{place}/intensity", {"intensity": 0.3})["reapplied"] is False
    again = api.ok("POST", f"{place}/activate")
    assert (again["applied_steering"], again["feature_count"]) == (True, 2)
    assert api.ok("GET", "/api/saes/steering")["values"] == {"3": 30.0, "5": -18.0}


@pytest.mark.parametrize(
    "body",
    [
        {"intensity": 1.8},
        {"intensity": -0.1},
        {"intensity": 2.5},
        {"intensity": True},
        {"intensity": "max"},
        {"intensity": None},
        {},
        {"intensity": 1, "reapply": "no"},
        {"intensity": 1, "value": 1},
        b'{"intensity": NaN}',
    ],
)
def test_dials_that_are_refused(bare: House, body: Any) -> None:
    result = bring(bare)
    place = f"/api/clusters/{result['profile_id']}"
    bare.api.refused(422, "VALIDATION_ERROR", "PUT", f"{place}/intensity", body)
    assert bare.api.ok("GET", place)["intensity"] == 1.0


def test_a_circuit_is_no_cluster(bare: House) -> None:
    error = bare.api.refused(200, "UNKNOWN_KIND", "POST", "/api/clusters/import", circuit())
    assert error["details"]["errors"][0]["pointer"] == "/kind"
