"""Every malformed document gets its own refusal: the code, the JSON pointer, and a message that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.documents.errors import DocumentRefused
from engine.documents.imports import import_circuit, import_clusters, import_profile
from tests.engine.documents.malformed_clusters import CLUSTER_CASES, NAN, Case, member, members
from tests.engine.documents.samples import circuit, cluster, encoded, profile


def _edge(**changes: Any) -> dict[str, Any]:
    return {
        "up": {"layer": 6, "feature_idx": 17},
        "down": {"layer": 11, "feature_idx": 40},
        "rung": 1,
        **changes,
    }


def _saes(*layers: Any) -> list[dict[str, Any]]:
    return [{"layer": layer} for layer in layers]


CIRCUIT_CASES: list[Case] = [
    ("a cluster", cluster(), "unknown_kind", "/kind", "cluster document"),
    ("NaN effect", circuit(edges=[_edge(effect_size=NAN)]), "validation_error", "/edges/0/effect_size", "not NaN"),
    ("long name", circuit(name="a" * 201), "validation_error", "/name", "at most 200"),
    ("no SAE", circuit(saes=[]), "validation_error", "/saes", "at least 1"),
    ("17 SAEs", circuit(saes=_saes(*range(17))), "validation_error", "/saes", "at most 16"),
    (
        "two SAEs on a layer",
        circuit(saes=_saes(6, 11, 6)),
        "validation_error",
        "/saes/2/layer",
        "layer 6 a second time",
    ),
    ("an SAE on no layer", circuit(saes=[*_saes(6, 11), {}]), "validation_error", "/saes/2/layer", "required"),
    ("path", circuit(saes=[{"layer": 6, "source_hint": "/x"}]), "validation_error", "/saes/0/source_hint", "path"),
    ("no members", circuit(members=[]), "validation_error", "/members", "at least 1"),
    (
        "member of no layer",
        circuit(members=[{"feature": member()[0]}]),
        "validation_error",
        "/members/0/layer",
        "required",
    ),
    ("member of nothing", circuit(members=[{"layer": 6}]), "validation_error", "/members/0/feature", "required"),
    (
        "unknown member kind",
        circuit(members=[{"layer": 6, "member_kind": "x"}]),
        "validation_error",
        "/members/0/member_kind",
        "feature_ref",
    ),
    (
        "21 expanded members",
        circuit(members=[{"layer": 6, "member_kind": "cluster_ref", "expanded_members": members(21)}]),
        "validation_error",
        "/members/0/expanded_members",
        "at most 20",
    ),
    (
        "21 features on a layer",
        circuit(
            members=[
                {"layer": 6, "member_kind": "cluster_ref", "expanded_members": members(20)},
                {"layer": 11, "feature": {"feature_idx": 20, "strength": 1}},
                {"layer": 6, "feature": {"feature_idx": 20, "strength": 1}},
            ]
        ),
        "validation_error",
        "/members/2",
        "layer 6 to 21",
    ),
    (
        "members on 17 layers",
        circuit(members=[{"layer": layer, "feature": {"feature_idx": 1, "strength": 1}} for layer in range(17)]),
        "validation_error",
        "/members/16/layer",
        "at most 16 layers",
    ),
    ("201 edges", circuit(edges=[_edge()] * 201), "validation_error", "/edges", "at most 200"),
    (
        "edge from an absent layer",
        circuit(edges=[_edge(), _edge(up={"layer": 7, "feature_idx": 1})]),
        "validation_error",
        "/edges/1/up/layer",
        "layer 7",
    ),
    (
        "edge to an absent layer",
        circuit(edges=[_edge(down={"layer": 99})]),
        "validation_error",
        "/edges/0/down/layer",
        "99",
    ),
    ("edge without an end", circuit(edges=[{"up": {"layer": 6}}]), "validation_error", "/edges/0/down", "required"),
    ("unknown edge type", circuit(edges=[_edge(type="magic")]), "validation_error", "/edges/0/type", "persistence"),
    (
        "negative support",
        circuit(edges=[_edge(coactivation={"support": -1})]),
        "validation_error",
        "/edges/0/coactivation/support",
        "at least 0",
    ),
    (
        "attribution method",
        circuit(edges=[_edge(attribution={"method": "guess"})]),
        "validation_error",
        "/edges/0/attribution/method",
        "ig_lite",
    ),
    (
        "budget of no layer",
        circuit(budget={"layers": {"six": {}}}),
        "validation_error",
        "/budget/layers/six",
        "layer number",
    ),
    ("budget of a layer", circuit(budget={"layers": {"6": 1}}), "validation_error", "/budget/layers/6", "an object"),
    ("intensity", circuit(budget={"intensity": True}), "validation_error", "/budget/intensity", "finite number"),
    (
        "calibration",
        circuit(calibration={"onset": 1, "sweet_spot": 1}),
        "validation_error",
        "/calibration/cliff",
        "required",
    ),
    ("mode", circuit(discovery={"mode": "lucky"}), "validation_error", "/discovery/mode", "seeded"),
]

PROFILE_CASES: list[Case] = [
    ("a cluster", cluster(), "is_cluster_document", "/kind", "cluster document"),
    ("a bundle", {"kind": "mistudio.cluster-bundle"}, "is_cluster_document", "/kind", "cluster document"),
    ("a circuit", circuit(), "unknown_kind", "/kind", "circuit-definition"),
    ("another version", profile(version="2.0"), "validation_error", "/version", "1.0"),
    ("no name", {"steering": {}}, "validation_error", "/name", "required"),
    ("long name", profile(name="a" * 101), "validation_error", "/name", "at most 100"),
    ("long description", profile(description="a" * 501), "validation_error", "/description", "at most 500"),
    ("no steering", {"name": "x"}, "validation_error", "/steering", "required"),
    ("steering no object", profile(steering=[1]), "validation_error", "/steering", "must be an object"),
    ("index of no number", profile(steering={"a/b": 1}), "validation_error", "/steering/a~1b", "feature index"),
    ("negative index", profile(steering={"-1": 1}), "validation_error", "/steering/-1", "feature index"),
    ("boolean strength", profile(steering={"1": True}), "validation_error", "/steering/1", "finite strength"),
    ("strength as a word", profile(steering={"1": "nan"}), "validation_error", "/steering/1", "finite strength"),
    ("NaN strength", profile(steering={"1": NAN}), "validation_error", "/steering/1", "not NaN"),
    (
        "one feature, two spellings",
        profile(steering={"7": 1, "07": 2}),
        "validation_error",
        "/steering/07",
        "second time",
    ),
    (
        "feature twice",
        {"name": "x", "features": [{"index": 1, "strength": 1}] * 2},
        "validation_error",
        "/features/1",
        "second",
    ),
    (
        "feature without strength",
        {"name": "x", "features": [{"index": 1}]},
        "validation_error",
        "/features/0",
        "strength",
    ),
    (
        "two opinions",
        profile(features=[{"index": 7, "strength": 2}]),
        "validation_error",
        "/features",
        "something else",
    ),
    ("boolean layer", profile(layer=True), "validation_error", "/layer", "whole number"),
]


@pytest.mark.parametrize(
    ("door", "case"),
    [
        pytest.param(door, case, id=f"{door.__name__}: {case[0]}")
        for door, cases in (
            (import_clusters, CLUSTER_CASES),
            (import_circuit, CIRCUIT_CASES),
            (import_profile, PROFILE_CASES),
        )
        for case in cases
    ],
)
def test_each_malformed_document_is_refused_with_a_pointer(door: Callable[[bytes], object], case: Case) -> None:
    _, document, code, pointer, words = case
    raw = document if isinstance(document, bytes) else encoded(document)
    with pytest.raises(DocumentRefused) as caught:
        door(raw)
    error = caught.value
    assert error.code == code
    first = error.details["errors"][0]
    assert first["pointer"] == pointer
    assert words in f"{error.message} {first['message']}"
    assert error.remedy
    json.dumps(error.details)


def test_at_most_ten_problems_are_listed_and_the_rest_is_counted() -> None:
    with pytest.raises(DocumentRefused) as caught:
        import_clusters(encoded(cluster(members=[{"feature_idx": -1, "strength": 999}] * 8)))
    error = caught.value
    assert len(error.details["errors"]) == 10
    assert error.details["errors"][0] == {"pointer": "/members/0/feature_idx", "message": "must be at least 0"}
    assert error.message == (
        "This cluster document cannot be used. /members/0/feature_idx must be at least 0 (and 15 more problems)."
    )


def test_all_that_cannot_be_an_index_and_a_strength_is_named_together() -> None:
    with pytest.raises(DocumentRefused) as caught:
        import_profile(encoded(profile(steering={"7": 1.0, "seven": 1.0, "8": None, "9": {}})))
    assert caught.value.details["invalid_keys"] == ["seven", "8", "9"]
    assert [each["pointer"] for each in caught.value.details["errors"]] == [
        "/steering/seven",
        "/steering/8",
        "/steering/9",
    ]
