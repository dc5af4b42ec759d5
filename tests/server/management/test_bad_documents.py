"""Malformed documents at the three doors: each is refused in the envelope with a pointer, and the library stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.documents.malformed_clusters import CLUSTER_CASES, Case
from tests.engine.documents.samples import encoded
from tests.engine.documents.test_refusals import CIRCUIT_CASES, PROFILE_CASES
from tests.server.management.conftest import House
from tests.server.management.documents import bundle, circuit, cluster

RAW_CASES = [case for case in CLUSTER_CASES if isinstance(case[1], bytes)]
"""What is refused before anybody asks what kind of document it is."""

DOORS = [
    ("/api/clusters/import", CLUSTER_CASES),
    ("/api/circuits/import", [*RAW_CASES, *CIRCUIT_CASES]),
    ("/api/profiles/import", [*RAW_CASES, *PROFILE_CASES]),
]


def contents(house: House) -> tuple[Any, ...]:
    """All that the library holds of documents."""
    return tuple(house.api.ok("GET", f"/api/{name}") for name in ("profiles", "clusters", "circuits"))


@pytest.mark.parametrize(("path", "cases"), DOORS, ids=[path for path, _ in DOORS])
def test_every_malformed_document(bare: House, path: str, cases: list[Case]) -> None:
    bare.api.ok("POST", "/api/clusters/import", cluster())
    bare.api.ok("POST", "/api/circuits/import", circuit())
    before = contents(bare)
    for name, document, code, pointer, words in cases:
        raw = document if isinstance(document, bytes) else encoded(document)
        response = bare.api.call("POST", path, raw)
        body = response.json()
        assert response.status_code == 200, (name, body)
        assert (body["success"], body["data"], body["error"]["code"]) == (False, None, code.upper()), (name, body)
        first = body["error"]["details"]["errors"][0]
        assert first["pointer"] == pointer, (name, first)
        assert words in f"{body['error']['message']} {first['message']}", (name, body)
        assert len(body["error"]["details"]["errors"]) <= 10
    assert contents(bare) == before


def test_one_that_is_too_long_is_refused_by_what_it_announces(bare: House) -> None:
    """The server answers without waiting for the rest."""
    for path, _ in DOORS:
        raw = b'{"name": "' + b"a" * 40_000_000 + b'"}'
        error = bare.api.refused(200, "PAYLOAD_TOO_LARGE", "POST", path, raw)
        assert (error["details"]["bytes"], error["details"]["limit"]) == (40_000_012, 1_048_576)


def test_one_that_comes_in_pieces(bare: House) -> None:
    pieces = iter([b'{"name": "', *[b"a" * 100_000] * 20, b'"}'])
    response = bare.api.http.post("/api/clusters/import", content=pieces)
    assert (response.status_code, response.json()["error"]["code"]) == (200, "PAYLOAD_TOO_LARGE")
    fits = encoded(cluster())
    response = bare.api.http.post("/api/clusters/import", content=iter([fits[:50], fits[50:]]))
    assert response.json()["data"]["imported"] == 1


def test_a_bad_rung_degrades_and_is_no_refusal(bare: House) -> None:
    document = circuit()
    document["edges"][0]["rung"] = "proven!"
    made = bare.api.ok("POST", "/api/circuits/import", document)
    assert (made["rung"], made["rung_language"]) == (0, "associated")
    assert any("/edges/0/rung" in warning for warning in made["warnings"])
    assert bare.api.call("GET", f"/api/circuits/{made['id']}/export").json() == document


def test_bad_definitions_stop_no_good_one(bare: House) -> None:
    bad = [case[1] for case in CLUSTER_CASES if case[3].startswith("/members") and "NaN" not in case[0]][:10]
    good = cluster(name="good")
    definitions = [each for each in bad if isinstance(each, dict) and "NaN" not in json.dumps(each)]
    definitions = [each for each in definitions if "Infinity" not in json.dumps(each)]
    outcome = bare.api.ok("POST", "/api/clusters/import", bundle(*definitions, good))
    assert (outcome["imported"], outcome["errors"]) == (1, len(definitions))
    assert [each["name"] for each in bare.api.ok("GET", "/api/clusters")["clusters"]] == ["good"]


def test_a_document_keeps_every_value_and_every_unknown_key(bare: House) -> None:
    odd = cluster(
        x_numbers=[1, 1.0, 1e3, -0.0, 123456789012345678901234567890, 0.1],
        x_text='naïve 東京 🙂 \u2028 \\ " / \u0000',
        **{"": {"": []}, "__proto__": {"x": None}},
    )
    result = bare.api.ok("POST", "/api/clusters/import", encoded(odd))["results"][0]
    exported = bare.api.call("GET", f"/api/clusters/{result['profile_id']}/export").text
    assert json.loads(exported, parse_float=str, parse_int=str) == json.loads(
        encoded(odd), parse_float=str, parse_int=str
    )
