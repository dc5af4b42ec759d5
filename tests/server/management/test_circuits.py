"""Circuits over HTTP: their evidence, their gates, their claims, their one dial."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import EngineMaker
from tests.server.management.conftest import House, attach, load, stock
from tests.server.management.documents import circuit
from tests.server.management.test_steering import generate


def bring(house: House, document: dict[str, Any] | None = None) -> str:
    """Import a circuit; its id."""
    circuit_id: str = house.api.ok("POST", "/api/circuits/import", document or circuit())["id"]
    return circuit_id


def test_none_yet(shared: House) -> None:
    api = shared.api
    assert api.ok("GET", "/api/circuits") == {"circuits": [], "active_circuit_id": None, "total": 0}
    assert api.ok("GET", "/api/circuits/active") == []
    assert api.ok("GET", "/api/circuits/active?single=true") is None
    assert api.ok("GET", "/api/circuits/claims") == []
    for method, path in (
        ("GET", "/api/circuits/circ_0"),
        ("DELETE", "/api/circuits/circ_0"),
        ("POST", "/api/circuits/circ_0/activate"),
        ("POST", "/api/circuits/circ_0/deactivate"),
        ("GET", "/api/circuits/circ_0/export"),
        ("POST", "/api/circuits/claims/release?circuit_id=circ_0"),
    ):
        api.refused(404, "CIRCUIT_NOT_FOUND", method, path)
    api.refused(200, "NO_ACTIVE_CIRCUIT", "PUT", "/api/circuits/active/intensity", {"intensity": 1})


@pytest.mark.parametrize(
    "query",
    [
        "min_rung=4",
        "min_rung=-1",
        "min_rung=two",
        "serveable=perhaps",
        "limit=0",
        "limit=201",
        "offset=-1",
        "rung=2",
    ],
)
def test_lists_that_are_refused(shared: House, query: str) -> None:
    shared.api.refused(422, "VALIDATION_ERROR", "GET", f"/api/circuits?{query}")


def test_in_and_out_again(steered: House) -> None:
    api = steered.api
    with steered.socket() as events:
        made = api.ok("POST", "/api/circuits/import", circuit())
        assert events.wait_for("circuits:changed") == {}
    assert made["id"].startswith("circ_")
    assert (made["rung"], made["rung_language"], made["validated"]) == (2, "causally validated (edge)", True)
    assert (made["layers"], made["edge_count"], made["serveable"]) == ([1, 2], 1, True)
    assert (made["is_active"], made["serving_mode"], made["intensity"], made["steering"]) == (False, None, 0.5, False)
    assert [each["verdict"] for each in made["per_sae_warnings"]] == ["bind", "bind"]
    assert made["description"] == "Questions make the answer careful."
    exported = api.call("GET", f"/api/circuits/{made['id']}/export")
    assert exported.status_code == 200
    assert exported.json() == circuit()
    second = api.ok("POST", "/api/circuits/import", circuit())
    assert second["name"] == "question → hedge (2)"
    error = api.refused(409, "CIRCUIT_ALREADY_EXISTS", "POST", "/api/circuits/import?on_conflict=fail", circuit())
    assert error["details"]["existing_circuit_id"] == made["id"]
    api.refused(422, "VALIDATION_ERROR", "POST", "/api/circuits/import?on_conflict=replace", circuit())
    low = api.ok("POST", "/api/circuits/import", circuit("guess", rung=0))
    assert (low["rung_language"], low["validated"]) == ("associated", False)
    assert "caus" not in f"{low['rung_language']} {low['rung_next_step']}"

    page = api.ok("GET", "/api/circuits?limit=1&offset=1")
    assert ([each["id"] for each in page["circuits"]], page["total"]) == ([second["id"]], 3)
    assert api.ok("GET", "/api/circuits?min_rung=2&serveable=true")["total"] == 2
    assert api.ok("GET", "/api/circuits?serveable=false")["total"] == 0
    assert api.ok("DELETE", f"/api/circuits/{low['id']}")["deleted"] is True
    api.refused(404, "CIRCUIT_NOT_FOUND", "GET", f"/api/circuits/{low['id']}")


def test_in_force(steered: House) -> None:
    api = steered.api
    circuit_id = bring(steered)
    plain, _ = generate(steered)
    with steered.socket() as events:
        done = api.ok("POST", f"/api/circuits/{circuit_id}/activate")
        assert events.wait_for("steering:update")["active_count"] == 2
        events.wait_for("circuits:changed")
    assert (done["is_active"], done["serving_mode"], done["steering"]) == (True, "full", True)
    assert done["bound_layers"] == [1, 2]
    assert done["applied_per_layer"] == {"1": {"17": 4.5}, "2": {"40": -2.5}}
    assert (done["acknowledged_unvalidated"], done["warnings"]) == (False, [])
    assert done["hazards"][0]["label"] == "validated:ES=0.33"
    assert generate(steered)[1] == f'circuit;id="{circuit_id}";intensity="0.5"'
    (active,) = api.ok("GET", "/api/circuits/active")
    assert (active["id"], active["steering"]) == (circuit_id, True)
    assert api.ok("GET", "/api/circuits/active?single=1")["id"] == circuit_id
    assert api.ok("GET", "/api/circuits")["active_circuit_id"] == circuit_id
    assert api.ok("GET", "/api/circuits/claims") == [
        {
            "layer": layer,
            "circuit_id": circuit_id,
            "circuit_name": "question → hedge",
            "composed": False,
            "steering_keys": keys,
        }
        for layer, keys in ((1, [17]), (2, [40]))
    ]
    dialled = api.ok("PUT", "/api/circuits/active/intensity", {"intensity": 1})
    assert (dialled["intensity"], dialled["reapplied"], dialled["superseded"]) == (1.0, True, False)
    assert 'intensity="1.0"' in generate(steered)[1]
    assert api.ok("PUT", "/api/circuits/active/intensity", {"intensity": 2, "reapply": False})["reapplied"] is False
    for body in ({"intensity": 2.5}, {"intensity": "off"}, {"intensity": False}, {}, {"intensity": 1, "x": 1}):
        api.refused(422, "VALIDATION_ERROR", "PUT", "/api/circuits/active/intensity", body)
    stopped = api.ok("POST", f"/api/circuits/{circuit_id}/deactivate")
    assert (stopped["is_active"], stopped["cleared_steering"]) == (False, True)
    assert api.ok("GET", "/api/circuits/claims") == []
    assert generate(steered) == (plain, "none")


def test_one_without_enough_evidence(steered: House) -> None:
    api = steered.api
    circuit_id = bring(steered, circuit(rung=1))
    error = api.refused(200, "UNVALIDATED_CIRCUIT", "POST", f"/api/circuits/{circuit_id}/activate")
    assert (error["details"]["circuit_id"], error["details"]["rung"]) == (circuit_id, 1)
    assert error["details"]["rung_language"] == "suggested (attribution-supported)"
    assert error["details"]["next_step"] == "run intervention validation"
    api.refused(422, "VALIDATION_ERROR", "POST", f"/api/circuits/{circuit_id}/activate?acknowledge_unvalidated=sure")
    api.refused(
        422, "VALIDATION_ERROR", "POST", f"/api/circuits/{circuit_id}/activate", {"acknowledge_unvalidated": True}
    )
    done = api.ok("POST", f"/api/circuits/{circuit_id}/activate?acknowledge_unvalidated=true")
    assert done["acknowledged_unvalidated"] is True
    api.refused(200, "UNVALIDATED_CIRCUIT", "PUT", "/api/circuits/active/intensity", {"intensity": 1})
    body = {"intensity": 1, "acknowledge_unvalidated": True}
    assert api.ok("PUT", "/api/circuits/active/intensity", body)["reapplied"] is True


def test_one_layer_of_two(steered: House) -> None:
    api = steered.api
    circuit_id = bring(steered)
    api.ok("POST", "/api/saes/b/detach")
    done = api.ok("POST", f"/api/circuits/{circuit_id}/activate")
    assert (done["serving_mode"], done["slice_layer"], done["bound_layers"]) == ("slice_fallback", 1, [1])
    assert api.ok("GET", "/api/clusters")["active_cluster_id"] == done["slice_profile_id"]
    dialled = api.ok("PUT", "/api/circuits/active/intensity", {"intensity": 1})
    assert (dialled["reapplied"], len(dialled["warnings"])) == (False, 1)
    api.ok("POST", f"/api/circuits/{circuit_id}/deactivate")
    assert api.ok("GET", "/api/clusters")["active_cluster_id"] is None


def test_no_layer_at_all(stocked: House) -> None:
    circuit_id = bring(stocked)
    error = stocked.api.refused(422, "SAE_SET_INCOMPLETE", "POST", f"/api/circuits/{circuit_id}/activate")
    assert [(each["layer"], each["feature_idx"]) for each in error["details"]["offenders"]] == [(1, 17), (2, 40)]
    assert stocked.api.ok("GET", "/api/circuits/active") == []


def test_a_feature_the_sae_does_not_have(steered: House) -> None:
    circuit_id = bring(steered, circuit(features=(17, 64), saes=[{"layer": 1}, {"layer": 2}]))
    error = steered.api.refused(422, "SAE_SET_INCOMPLETE", "POST", f"/api/circuits/{circuit_id}/activate")
    assert error["details"]["offenders"][0]["reason"] == "index_out_of_bounds"
    assert steered.api.ok("GET", "/api/circuits/claims") == []


def test_claims_are_refused_and_released(steered: House) -> None:
    api = steered.api
    first, second = bring(steered), bring(steered, circuit("another", features=(18, 41)))
    api.ok("POST", f"/api/circuits/{first}/activate")
    error = api.refused(200, "CIRCUIT_LAYER_CONTENTION", "POST", f"/api/circuits/{second}/activate")
    details = error["details"]
    assert (details["contended_layers"], details["incumbent"]["id"]) == ([1, 2], first)
    assert (details["requested"]["id"], details["colliding_keys"], details["overridable"]) == (second, [], False)
    collision = bring(steered, circuit("same features"))
    error = api.refused(
        200, "CIRCUIT_LAYER_CONTENTION", "POST", f"/api/circuits/{collision}/activate?allow_layer_overlap=true"
    )
    assert error["details"]["overridable"] is False
    assert [(each["layer"], each["feature_idx"]) for each in error["details"]["colliding_keys"]] == [(1, 17), (2, 40)]
    assert [each["id"] for each in api.ok("GET", "/api/circuits/active")] == [first]
    released = api.ok("POST", f"/api/circuits/claims/release?circuit_id={first}")
    assert (released["circuit_id"], released["released_layers"], len(released["warnings"])) == (first, [1, 2], 1)
    api.refused(422, "VALIDATION_ERROR", "POST", "/api/circuits/claims/release")


def test_two_that_share_their_layers(
    make_engine: EngineMaker, serve: Callable[..., House], sae_folders: Any, tiny_checkpoint: Any
) -> None:
    house = serve(make_engine(None, CIRCUIT_ALLOW_CONCURRENT=True))
    attach(load(stock(house, sae_folders), tiny_checkpoint))
    api = house.api
    first, second = bring(house), bring(house, circuit("another", features=(18, 41)))
    api.ok("POST", f"/api/circuits/{first}/activate")
    error = api.refused(200, "CIRCUIT_LAYER_CONTENTION", "POST", f"/api/circuits/{second}/activate")
    assert (error["details"]["overridable"], error["details"]["override_param"]) == (True, "allow_layer_overlap")
    done = api.ok("POST", f"/api/circuits/{second}/activate?allow_layer_overlap=true")
    assert (done["composed_layers"], done["allowed_layer_overlap"]) == ([1, 2], True)
    assert all(each["composed"] for each in api.ok("GET", "/api/circuits/claims"))
    error = api.refused(200, "AMBIGUOUS_ACTIVE_CIRCUIT", "PUT", "/api/circuits/active/intensity", {"intensity": 1})
    assert sorted(each["id"] for each in error["details"]["active_circuits"]) == sorted([first, second])
    # By its id each has a dial of its own.
    dialled = api.ok("PUT", f"/api/circuits/{second}/intensity", {"intensity": 1})
    assert (dialled["id"], dialled["intensity"], dialled["reapplied"]) == (second, 1.0, True)
    api.refused(404, "CIRCUIT_NOT_FOUND", "PUT", "/api/circuits/circ_0/intensity", {"intensity": 1})
    report = generate(house)[1]
    assert report.count("circuit;") == report.count(";composed") == 2


def test_two_clients_that_want_the_same_layers(steered: House) -> None:
    ids = [bring(steered, circuit(f"number {number}", features=(number, number))) for number in range(4)]
    answers: list[tuple[int, bool]] = []

    def activate(circuit_id: str) -> None:
        response = steered.api.call("POST", f"/api/circuits/{circuit_id}/activate")
        answers.append((response.status_code, response.json()["success"]))

    threads = [threading.Thread(target=activate, args=(circuit_id,)) for circuit_id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [(200, False), (200, False), (200, False), (200, True)]
    (active,) = steered.api.ok("GET", "/api/circuits/active")
    assert {each["circuit_id"] for each in steered.api.ok("GET", "/api/circuits/claims")} == {active["id"]}
