from __future__ import annotations

from typing import Any

import pytest

from engine.documents.binding import SaeReference
from engine.documents.cluster import read_cluster
from engine.documents.imports import import_clusters
from engine.documents.members import directional
from engine.wire import wire
from tests.engine.documents.samples import cluster, encoded


def test_a_cluster_is_read() -> None:
    (item,) = import_clusters(encoded(cluster()))
    assert item.name == "Harbour" and item.error is None
    document = item.document
    assert document is not None
    assert document.strengths == {310: 12.5, 911: -6.0, 5: -4.0}
    assert document.intensity == 0.75
    assert document.intensity_range == (0.25, 1.75)
    assert document.reference == SaeReference("sae_77aa", 9, 16384, 2048)
    assert document.notes == ()


@pytest.mark.parametrize(
    ("strength", "sign", "expected"),
    [(12.5, 1, 12.5), (12.5, -1, -12.5), (-6.0, -1, -6.0), (-6.0, 1, -6.0), (0.0, 1, 0.0)],
)
def test_a_negative_strength_has_its_direction_already(strength: float, sign: int, expected: float) -> None:
    assert directional(strength, sign) == expected


def test_the_document_comes_back_as_it_came_without_the_local_keys() -> None:
    original = cluster()
    stored = read_cluster(
        {**cluster(), "warnings": ["x"], "sensing_overrides": {"min_k": 2}, "hub_ref": {"repo_id": "a/b"}}
    )
    assert stored.exported() == original
    assert "warnings" in stored.raw
    stored.exported()["members"].clear()
    assert stored.exported() == original


def test_only_the_required_keys_are_needed() -> None:
    document = read_cluster({"name": "x", "members": [{"feature_idx": 0, "strength": 1}]})
    assert document.strengths == {0: 1.0}
    assert document.intensity == 1.0
    assert document.intensity_range is None
    assert document.reference == SaeReference()


@pytest.mark.parametrize("key", ["narrative", "display_token", "model", "sae", "budget", "provenance", "sensing"])
def test_optional_parts_may_be_null(key: str) -> None:
    assert read_cluster(cluster(**{key: None})).exported() == cluster(**{key: None})


def test_values_at_the_bounds_are_read() -> None:
    document = read_cluster(
        cluster(
            name="a" * 120,
            members=[{"feature_idx": index, "strength": 300 if index % 2 else -300} for index in range(20)],
            budget={"intensity": 2},
        )
    )
    assert document.strengths[1] == 300.0 and document.strengths[0] == -300.0
    assert document.intensity == 2.0


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert read_cluster(cluster(members=[{"feature_idx": 3.0, "strength": 1, "sign": -1.0}])).strengths == {3: -1.0}


def test_sae_id_is_another_spelling() -> None:
    assert read_cluster(cluster(sae={"sae_id": "mine", "layer": 3})).reference == SaeReference("mine", 3)


@pytest.mark.parametrize(
    ("declared", "expected", "note"),
    [
        ([0.25, 1.75], (0.25, 1.75), None),
        ([1.75, 0.25], (0.25, 1.75), None),
        ("wide", None, "is not a pair of numbers and is ignored"),
        ([1], None, "is not a pair of numbers and is ignored"),
        ([True, 2], None, "is not a pair of numbers and is ignored"),
        ({"lo": 0}, None, "is not a pair of numbers and is ignored"),
        ([3, 4], (3.0, 4.0), "lies outside 0 to 2 and is ignored"),
        (None, None, None),
    ],
)
def test_a_range_that_cannot_be_read_is_noted_and_not_refused(declared: Any, expected: Any, note: str | None) -> None:
    document = read_cluster(cluster(budget={"intensity_range": declared}))
    assert document.intensity_range == expected
    assert wire(document.notes) == ([{"pointer": "/budget/intensity_range", "message": note}] if note else [])
    assert document.exported()["budget"] == {"intensity_range": declared}


def test_bundle_items_stand_alone() -> None:
    bad = cluster(name="Bad", members=[])
    raw = encoded(
        {
            "kind": "mistudio.cluster-bundle",
            "schema_version": "1",
            "definitions": [
                cluster(),
                bad,
                7,
                {"name": "Other", "kind": "mistudio.circuit-definition"},
                {"members": 1},
            ],
        }
    )
    items = import_clusters(raw)
    assert [item.name for item in items] == ["Harbour", "Bad", "definition 3", "Other", "definition 5"]
    assert items[0].document is not None and items[0].document.exported() == cluster()
    errors = [item.error for item in items[1:]]
    assert all(error is not None for error in errors)
    assert [error.details["errors"][0]["pointer"] for error in errors if error] == [
        "/definitions/1/members",
        "/definitions/2",
        "/definitions/3/kind",
        "/definitions/4/name",
    ]
    assert [error.code for error in errors if error] == [
        "validation_error",
        "validation_error",
        "unknown_kind",
        "validation_error",
    ]


def test_fifty_definitions_are_read() -> None:
    raw = encoded({"kind": "mistudio.cluster-bundle", "definitions": [cluster()] * 50})
    assert len(import_clusters(raw)) == 50


def test_keys_named_like_methods_are_kept() -> None:
    odd = cluster(**{"copy": 1, "model_dump": 2, "__class__": 3, "__dict__": 4, "": 5})
    assert read_cluster(odd).exported() == odd
