"""Values as JSON has them, and what every route refuses alike: unknown fields, wrong types, bodies that are no JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from engine.wire import LEFT_OUT, beside, made_of, wire
from server.openapi.shapes import Shapes
from tests.server.management.conftest import House


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Row:
    colour: Colour
    at: datetime
    values: MappingProxyType[int, float]


def test_engine_values_become_json_values() -> None:
    row = Row(Colour.RED, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), MappingProxyType({7: 1.5}))
    more = {"layers": frozenset({3, 1}), "path": PurePosixPath("/a/b"), "none": None, "figures": [0.5, float("nan")]}
    assert wire({"rows": (row,), **more}) == {
        "rows": [{"colour": "red", "at": "2026-01-02T03:04:05+00:00", "values": {"7": 1.5}}],
        "layers": [1, 3],
        "path": "/a/b",
        "none": None,
        "figures": [0.5, None],
    }


class Place(NamedTuple):
    sae_id: str
    layer: int


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    name: str
    place: Place | None = None
    layer: int | None = field(default=None, metadata=LEFT_OUT)
    shared: tuple[int, ...] = field(default=(), metadata=LEFT_OUT)
    forced: bool = field(default=False, metadata=LEFT_OUT)
    error: str | None = field(default=None, metadata=LEFT_OUT)
    code: str | None = field(default=None, metadata=beside("error"))


@dataclass(frozen=True)
class Stored:
    """The same before it is told; ``raw`` is nobody's business."""

    name: str
    layer: int
    raw: bytes


def test_what_does_not_apply_is_left_out_and_the_description_says_so() -> None:
    assert wire(Outcome("a")) == {"name": "a", "place": None}
    # A layer 0 applies; what stands beside another is there with it, null or not.
    full = Outcome("b", Place("sea", 0), 0, (3,), True, "no", None)
    assert wire(full) == {
        "name": "b",
        "place": {"sae_id": "sea", "layer": 0},
        "layer": 0,
        "shared": [3],
        "forced": True,
        "error": "no",
        "code": None,
    }
    assert list(wire(full)) == ["name", "place", "layer", "shared", "forced", "error", "code"]
    shapes = Shapes()
    shapes.of(Outcome)
    told = shapes.named["Outcome"]
    assert told["required"] == ["name", "place"]
    assert told["properties"]["layer"] == {"type": "integer"}
    assert told["properties"]["code"] == {"type": ["string", "null"]}
    assert shapes.named["Place"]["required"] == ["sae_id", "layer"]


def test_an_answer_takes_the_fields_it_shares_with_a_record() -> None:
    assert made_of(Outcome, Stored("a", 7, b""), error="no") == Outcome("a", layer=7, error="no")
    with pytest.raises(TypeError):
        made_of(Stored, Outcome("a"))


def test_what_has_no_json_form_is_a_mistake() -> None:
    with pytest.raises(TypeError):
        wire(object())


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{", None),
        (b"", None),
        (b"\xff", None),
        (b"[1]", None),
        (b'"enabled"', None),
        (b"[" * 100_000, None),
        (b'{"k": NaN}', "k"),
        (b'{"x": NaN}', "x"),
        ({"k": 0}, "k"),
        ({"k": 101}, "k"),
        ({"k": True}, "k"),
        ({"k": "3"}, "k"),
        ({"k": 2.5}, "k"),
        ({"metric": "median"}, "metric"),
        ({"layer": -1}, "layer"),
        ({"sae_id": 7}, "sae_id"),
        ({"kk": 3}, "kk"),
    ],
)
def test_bodies_that_are_refused(shared: House, body: Any, place: str | None) -> None:
    path = "/api/saes/steering/batch" if body == b"" else "/api/monitoring/statistics/top"
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", path, body)
    assert error["details"]["errors"][0]["param"] == place
    assert error["details"]["errors"][0]["message"]


def test_all_errors_of_a_body_are_listed(shared: House) -> None:
    error = shared.api.refused(
        422, "VALIDATION_ERROR", "POST", "/api/monitoring/configure", {"top_k": 0, "x": 1, "y": 2}
    )
    assert [each["param"] for each in error["details"]["errors"]] == ["top_k", "x", "y"]
    assert "sesame" not in shared.api.call("POST", "/api/monitoring/configure", {"sae_id": ["sesame"]}).text


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=5&limit=6", "limit"),
        ("limits=5", "limits"),
    ],
)
def test_query_strings_that_are_refused(shared: House, query: str, place: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "GET", f"/api/monitoring/history?{query}")
    assert error["details"]["errors"][0]["param"] == place


def test_addresses_and_methods(shared: House) -> None:
    shared.api.refused(404, "NOT_FOUND", "GET", "/api/nothing")
    shared.api.refused(405, "METHOD_NOT_ALLOWED", "PUT", "/api/monitoring")
    shared.api.refused(405, "METHOD_NOT_ALLOWED", "POST", "/api/saes/attachments", {})
    shared.api.refused(404, "NOT_FOUND", "GET", "/api/clusters/hub/search")


def test_a_body_over_the_limit(shared: House) -> None:
    body = b'{"k": 3, "x": "' + b"a" * (33 << 20) + b'"}'
    shared.api.refused(413, "PAYLOAD_TOO_LARGE", "POST", "/api/monitoring/statistics/top", body)
