from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.documents.errors import DocumentInvalid, DocumentTooLarge
from engine.documents.loading import MAX_DOCUMENT_BYTES, DocumentKind, check_value, decode, kind_of


def test_what_json_allows_comes_through() -> None:
    raw = b'\xef\xbb\xbf {"a": [1, -0.5, 1e3, true, null, "\\u00fc [{ \\" \\\\"], "": {}, "12345678901234567890": 12345678901234567890}'
    assert decode(raw) == {
        "a": [1, -0.5, 1000.0, True, None, 'ü [{ " \\'],
        "": {},
        "12345678901234567890": 12345678901234567890,
    }


def test_32_levels_are_read_and_brackets_in_text_are_no_levels() -> None:
    deep = b'{"x":' + b"[" * 31 + b"]" * 31 + b"}"
    assert decode(deep)["x"]
    assert decode(b'{"x": "' + b"[{" * 1000 + b'", "y": "\\"[[[["}')["y"] == '"[[[['


@pytest.mark.parametrize(
    "raw",
    [b'"' * 1_000_000, b'\\"' * 500_000, b'{"' + b'\\"' * 500_000, b'{"x":"' + b"\\" * 1_000_001, b"]" * 1_000_000],
)
def test_hostile_text_is_refused_and_not_pored_over(raw: bytes) -> None:
    with pytest.raises(DocumentInvalid):
        decode(raw)


def test_exactly_the_limit_is_read() -> None:
    raw = b'{"x":"' + b"a" * (MAX_DOCUMENT_BYTES - 8) + b'"}'
    assert len(raw) == 1_048_576
    assert len(decode(raw)["x"]) == 1_048_568
    with pytest.raises(DocumentTooLarge):
        decode(raw + b" ")


def test_every_oddity_of_a_text_is_found_in_order() -> None:
    with pytest.raises(DocumentInvalid) as caught:
        decode(b'{"a": NaN, "b": {"c": [1, -Infinity]}, "b": {"c": [1, -Infinity]}, "d/e": 1e400}')
    assert [each["pointer"] for each in caught.value.details["errors"]] == ["/b", "/a", "/d~1e", "/b/c/1"]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"x": [0, float("nan")]}, "/x/1"),
        ({"x": {1: 2}}, "/x"),
        ({"x": {2}}, "/x"),
        ({"x": b"y"}, "/x"),
        ({"x": 10**400}, "/x"),
        ({"x": "\ud800"}, "/x"),
        ({"x": object}, "/x"),
        (None, ""),
        ("{}", ""),
    ],
)
def test_values_decoded_elsewhere_are_held_to_the_same(value: Any, pointer: str) -> None:
    with pytest.raises(DocumentInvalid) as caught:
        check_value(value)
    assert caught.value.details["errors"][0]["pointer"] == pointer


def test_a_value_that_holds_itself_is_too_deep() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    with pytest.raises(DocumentInvalid, match="levels deep"):
        check_value(loop)


def test_a_value_too_long_when_written_is_refused() -> None:
    with pytest.raises(DocumentTooLarge):
        check_value({"x": "ü" * 524_288})


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"kind": "mistudio.cluster-definition"}, DocumentKind.CLUSTER),
        ({"kind": "mistudio.cluster-bundle"}, DocumentKind.BUNDLE),
        ({"kind": "mistudio.circuit-definition"}, DocumentKind.CIRCUIT),
        ({"kind": "mistudio.circuit"}, None),
        ({"kind": 3}, None),
        ({"kind": ["mistudio.circuit-definition"]}, None),
        ({}, None),
    ],
)
def test_kinds(document: dict[str, Any], kind: DocumentKind | None) -> None:
    assert kind_of(document) is kind


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _JSON, max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_json_object_comes_through_unchanged(document: dict[str, Any]) -> None:
    assert decode(json.dumps(document).encode()) == document
    assert decode(json.dumps(document, ensure_ascii=False).encode()) == document


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    try:
        outcome: object = decode(raw)
    except DocumentInvalid as error:
        outcome = error.details
    assert isinstance(outcome, dict)
