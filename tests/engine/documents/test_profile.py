from __future__ import annotations

from dataclasses import replace

import pytest

from engine.documents.binding import SaeReference
from engine.documents.errors import DocumentInvalid
from engine.documents.imports import import_profile
from engine.documents.profile import ProfileDocument, profile_document, read_profile
from engine.library.records import ProfileFields
from tests.engine.documents.samples import encoded, profile

NESTED = {
    "name": "calm",
    "model": {"repo_id": "acme/tiny-1b", "quantization": "Q4"},
    "sae": {"repo_id": "acme/saes", "layer": 9, "x": 1},
    "features": [{"index": 42, "strength": -3, "label": "storm"}, {"index": 7, "strength": 1.5}],
    "exported_at": "2026-01-02T03:04:05Z",
}


def _export(document: ProfileDocument, steering: dict[int, float] | None = None) -> dict[str, object]:
    return profile_document(
        document if steering is None else replace(document, steering=steering),
        created_at="2026-01-02T03:04:05Z",
        updated_at="2026-01-02T03:04:05Z",
        extras=document.extras,
    )


def test_the_flat_shape() -> None:
    document = import_profile(encoded(profile()))
    assert document == ProfileDocument(
        name="calm",
        description="Slow and friendly.",
        model_id="tiny-1b",
        sae_id="acme--saes--layer_9",
        layer=9,
        steering={7: 1.5, 42: -3.0},
        extras={},
    )
    assert document.reference == SaeReference("acme--saes--layer_9", 9)


def test_the_nested_shape() -> None:
    document = import_profile(encoded(NESTED))
    assert document.model_id == "acme/tiny-1b"
    assert document.sae_id == "acme--saes"
    assert document.layer == 9
    assert document.steering == {7: 1.5, 42: -3.0}
    assert list(document.steering) == [7, 42]


def test_a_round_trip_keeps_unknown_keys() -> None:
    original = profile(x_top={"deep": [None, {"y": "ü"}]})
    assert _export(read_profile(original)) == original


def test_a_nested_profile_comes_back_with_all_it_had() -> None:
    out = _export(read_profile(NESTED))
    assert {key: out[key] for key in NESTED} == NESTED
    assert out["steering"] == {"7": 1.5, "42": -3.0}
    assert read_profile(out).steering == {7: 1.5, 42: -3.0}


def test_an_edited_profile_keeps_what_is_said_of_its_features() -> None:
    out = _export(read_profile(NESTED), {42: 8.0, 100: 1.0, 9: 2.0})
    assert out["features"] == [
        {"index": 42, "strength": 8.0, "label": "storm"},
        {"index": 9, "strength": 2.0},
        {"index": 100, "strength": 1.0},
    ]
    assert list(out["steering"]) == ["9", "42", "100"]  # type: ignore[call-overload]


def test_times_of_the_import_are_not_taken_over() -> None:
    document = read_profile(profile())
    out = profile_document(
        ProfileFields("calm"),
        created_at=None,
        updated_at=None,
        extras={**document.extras, "version": "9", "steering": {"1": 1}},
    )
    assert out == {
        "version": "1.0",
        "name": "calm",
        "description": None,
        "model_id": None,
        "sae_id": None,
        "layer": None,
        "steering": {},
        "created_at": None,
        "updated_at": None,
    }


@pytest.mark.parametrize(
    ("steering", "expected"),
    [
        ({}, {}),
        ({"0": 0}, {0: 0.0}),
        ({"100": 1, "9": 2, "10": 3}, {9: 2.0, 10: 3.0, 100: 1.0}),
        ({"7": "1.5", "8": " -2e1 "}, {7: 1.5, 8: -20.0}),
        ({"007": 1}, {7: 1.0}),
    ],
)
def test_strengths(steering: dict[str, object], expected: dict[int, float]) -> None:
    assert read_profile(profile(steering=steering)).steering == expected


@pytest.mark.parametrize("key", ["", " 7", "1_0", "+7", "1.0", "٧", "99999999999", "2147483648"])
def test_only_plain_numbers_are_indices(key: str) -> None:
    with pytest.raises(DocumentInvalid) as caught:
        read_profile(profile(steering={key: 1}))
    assert caught.value.details["invalid_keys"] == [key]


def test_a_numeric_model_id_is_read_as_text() -> None:
    assert read_profile(profile(model_id=3)).model_id == "3"
