"""Bodies that are not what they should be: never a crash, always an InvalidParameter."""

from __future__ import annotations

import pytest

from engine.errors import InvalidParameter
from server.body import parse_object, refuse_non_json_numbers


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"not json",
        b"[1]",
        b'"text"',
        b"5",
        b"null",
        b'{"a": 1} trailing',
        b'{"a": 1,}',
        b'{"a": "\xff"}',
        b"\xff\xfe{}",
        b'{"a": "\\ud800"}',
        b'{"a": "\x01"}',
        b"[" * 5_000_000,
        b'{"a":' * 1_000_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda raw: repr(raw[:16]),
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidParameter) as caught:  # A032
        parse_object(raw)
    assert caught.value.param is None
    assert len(caught.value.message) < 300


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    assert parse_object(b'{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


def test_nan_passes_the_parser_so_that_its_field_can_be_named() -> None:
    assert parse_object(b'{"a": NaN}').keys() == {"a"}
    with pytest.raises(InvalidParameter):
        refuse_non_json_numbers(b'{"a": NaN}')
    with pytest.raises(InvalidParameter):
        refuse_non_json_numbers(b'{"a": [-Infinity]}')
    refuse_non_json_numbers(b'{"a": "NaN and Infinity are words here"}')
