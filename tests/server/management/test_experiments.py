"""Saved comparisons over HTTP: kept, found, exported and sent back, renamed, deleted; wrong claims are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.management.conftest import House

PATH = "/api/experiments"
COMPARISON: dict[str, Any] = {
    "title": "Sea",
    "model": "tiny-llama",
    "prompt": "Describe a place you like.",
    "plain": "A garden.",
    "steered": "A harbour | with ships.",
    "settings": {
        "temperature": 0.0,
        "max_tokens": 12,
        "seed": None,
        "noise_seed": 7,
        "system_prompt": "Be brief.",
        "earlier_turns": [{"role": "user", "content": "Hello", "mood": "calm"}],
        "dial": "λ",
    },
    "steering": {
        "text": 'circuit;id="c1";intensity=0.5',
        "changed": False,
        "items": [
            {"kind": "circuit", "id": "c1", "name": "Ships", "intensity": "0.5"},
            {"kind": "manual", "sae": "a", "layer": 1, "features": 2, "strengths": {"3": 2.5, "5": -1}},
        ],
    },
    "evidence": {"rung": 1, "language": "suggested (attribution-supported)"},
    "versions": {"miLLM Desktop": "0.1.0"},
    "plain_details": {"completion_tokens": 3, "finish_reason": "stop"},
    "steered_details": {"completion_tokens": 4, "finish_reason": "length", "headers": {"X-miLLM-Steering": "c1"}},
}


def test_a_comparison_is_kept_found_and_deleted(bare: House) -> None:
    api = bare.api
    assert api.ok("GET", PATH) == {"experiments": [], "total": 0}
    with bare.socket() as events:
        kept = api.ok("POST", PATH, COMPARISON, status=201)
        assert events.wait_for("experiments:changed") == {}
    assert {name: kept[name] for name in COMPARISON} == COMPARISON
    assert api.ok("GET", f"{PATH}/{kept['id']}") == kept
    other = api.ok("POST", PATH, {**COMPARISON, "title": "Clinic", "steered": "A ward full of Ärzte."}, status=201)
    listed = api.ok("GET", PATH)
    assert [each["id"] for each in listed["experiments"]] == [other["id"], kept["id"]] and listed["total"] == 2
    assert listed["experiments"][0].keys() == {"id", "title", "model", "created_at", "kind"}
    found = api.ok("GET", f"{PATH}?search=ÄRZTE")
    assert [each["title"] for each in found["experiments"]] == ["Clinic"]
    with bare.socket() as events:
        assert api.ok("PATCH", f"{PATH}/{kept['id']}", {"title": "By the sea"})["title"] == "By the sea"
        events.wait_for("experiments:changed")
        assert api.ok("DELETE", f"{PATH}/{other['id']}") == {"id": other["id"], "deleted": True}
        events.wait_for("experiments:changed")
    assert [each["title"] for each in api.ok("GET", PATH)["experiments"]] == ["By the sea"]


def test_exports_and_sending_one_back(bare: House) -> None:
    api = bare.api
    kept = api.ok("POST", PATH, COMPARISON, status=201)
    text = api.call("GET", f"{PATH}/{kept['id']}/export")
    assert text.headers["content-type"] == "text/markdown; charset=utf-8"
    assert text.text.startswith("# Sea\n\n## Prompt\n\n> Describe a place you like.\n")
    assert "| Evidence | suggested (attribution-supported) |" in text.text
    assert "steered by the circuit Ships at λ 0.5 (suggested (attribution-supported)), by hand: 2 features" in text.text
    assert "- a, layer 1: #3 2.5, #5 -1" in text.text
    assert "## Messages before\n\n**user**\n\n> Hello" in text.text
    whole = api.call("GET", f"{PATH}/{kept['id']}/export?format=json")
    assert whole.headers["content-type"] == "application/json"
    document = json.loads(whole.text)
    assert (document["kind"], document["schema_version"]) == ("millm.comparison", "1")
    again = api.ok("POST", PATH, document, status=201)
    assert again["id"] != kept["id"]
    assert {name: again[name] for name in COMPARISON} == COMPARISON


def test_what_is_left_out_is_empty(bare: House) -> None:
    given = {name: COMPARISON[name] for name in ("title", "model", "prompt", "plain", "steered")}
    kept = bare.api.ok("POST", PATH, given, status=201)
    assert (kept["settings"], kept["steering"], kept["versions"]) == ({}, {}, {})
    assert kept["evidence"] == {"rung": None, "language": ""}
    assert "| Steered side | not steered |" in bare.api.call("GET", f"{PATH}/{kept['id']}/export").text


@pytest.mark.parametrize(
    ("evidence", "language"),
    [
        ({}, "no evidence can be claimed"),
        ({"rung": None, "language": "no evidence can be claimed"}, "no evidence can be claimed"),
        ({"rung": 0}, "associated"),
        ({"rung": 2}, "causally validated (edge)"),
    ],
)
def test_the_phrase_follows_from_the_rung(bare: House, evidence: dict[str, Any], language: str) -> None:
    kept = bare.api.ok("POST", PATH, {**COMPARISON, "evidence": evidence}, status=201)
    assert kept["evidence"] == {"rung": evidence.get("rung"), "language": language}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"title": ""}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"settings": {"temperature": "hot"}}, "settings.temperature"),
        ({"settings": {"earlier_turns": [{"role": "user"}]}}, "settings.earlier_turns.0.content"),
        ({"steering": {"items": [{"kind": "magic"}]}}, "steering.items.0.kind"),
        ({"steering": {"items": [{"kind": "manual", "features": "two"}]}}, "steering.items.0.features"),
        ({"steering": {"items": [{"kind": "manual", "strengths": {"x": 1}}]}}, "steering.items.0.strengths.x.[key]"),
        ({"steering": {"items": [{"kind": "manual", "strengths": {"3": "x"}}]}}, "steering.items.0.strengths.3"),
        ({"evidence": {"rung": 4}}, "evidence.rung"),
        ({"evidence": {"rung": 1, "language": "causally validated (edge)"}}, "evidence"),
        ({"evidence": {"language": "causal"}}, "evidence"),
        ({"versions": {"torch": 2}}, "versions.torch"),
        ({"kind": "millm.profile"}, "kind"),
        ({"schema_version": "2"}, "schema_version"),
        ({"note": "x"}, "note"),
        ({"content": {"x": 1}}, ""),
    ],
)
def test_comparisons_that_are_not_well_formed(shared: House, change: dict[str, Any], param: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", PATH, {**COMPARISON, **change})
    assert [each["param"] for each in error["details"]["errors"]] == [param]
    assert shared.api.ok("GET", PATH)["total"] == 0


def test_comparisons_that_are_not_there(shared: House) -> None:
    for number in ("1", "99999999999999999999", "x"):
        for method, path, body in (
            ("GET", f"{PATH}/{number}", None),
            ("DELETE", f"{PATH}/{number}", None),
            ("PATCH", f"{PATH}/{number}", {"title": "x"}),
            ("GET", f"{PATH}/{number}/export", None),
        ):
            shared.api.refused(404, "NOT_FOUND", method, path, body)
    shared.api.refused(422, "VALIDATION_ERROR", "PATCH", f"{PATH}/1", {"title": ""})
    shared.api.refused(422, "VALIDATION_ERROR", "GET", f"{PATH}/1/export?format=pdf")
    shared.api.refused(422, "VALIDATION_ERROR", "GET", f"{PATH}?q=sea")


def test_a_path_is_kept_and_claims_no_rung(bare: House) -> None:
    circuit = COMPARISON["steering"]["items"][0]
    path = [
        {"token": 0, "text": "circuit", "items": [circuit]},
        {"token": 9, "text": "none", "items": [{"kind": "none"}]},
    ]
    steering = {"text": "none;changed", "changed": True, "items": [{"kind": "none"}], "path": path}
    body = {**COMPARISON, "steering": steering}
    refused = bare.api.refused(422, "VALIDATION_ERROR", "POST", PATH, body)
    assert "claims no rung" in str(refused)
    kept = bare.api.ok("POST", PATH, {**body, "evidence": {}}, status=201)
    assert kept["steering"] == steering
    assert kept["evidence"] == {"rung": None, "language": "no evidence can be claimed"}
    for broken in ([{"token": 0}], [{"token": -1, "items": []}], [3], {"token": 0}):
        wrong = {**body, "evidence": {}, "steering": {**steering, "path": broken}}
        bare.api.refused(422, "VALIDATION_ERROR", "POST", PATH, wrong)
