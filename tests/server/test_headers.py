"""The header grammar of X-miLLM-Ignored-Fields, X-miLLM-Seed and X-miLLM-Strict."""

from __future__ import annotations

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidParameter
from server import headers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo", "foo"),
        ("a b~", "a b~"),
        ("100%", "100%25"),
        ("é", "%C3%A9"),
        ("東", "%E6%9D%B1"),
        ("a\r\nX-Evil: 1", "a%0D%0AX-Evil: 1"),
        ("\x7f\x1f", "%7F%1F"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_bytes_outside_printable_ascii_are_percent_encoded(text: str, expected: str) -> None:
    assert headers.percent_encode(text) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["foo"], '"foo"'),  # A041
        (["foo", "messages[2].name"], '"foo", "messages[2].name"'),  # A044
        (['a"b'], '"a\\"b"'),  # A053
        (["a\\b"], '"a\\\\b"'),  # A053
        (["a\r\nb"], '"a%0D%0Ab"'),  # A055
    ],
)
def test_a_list_of_strings(texts: list[str], expected: str) -> None:
    assert headers.string_list(texts, 1024) == expected


def test_what_does_not_fit_is_counted() -> None:
    # A056. 8 bytes a member ("aaaaaa") and 2 for the comma: two members and "+48 more" need 8 + 2 + 8 + 2 + 10 = 30.
    assert headers.string_list(["aaaaaa"] * 50, 30) == '"aaaaaa", "aaaaaa", "+48 more"'
    assert headers.string_list(["aaaaaa"] * 50, 29) == '"aaaaaa", "+49 more"'


def test_exactly_fitting_lists_are_whole() -> None:
    assert headers.string_list(["aaaaaa", "bbbbbb", "cccccc"], 28) == '"aaaaaa", "bbbbbb", "cccccc"'
    assert headers.string_list(["aaaaaa", "bbbbbb", "cccccc"], 27) == '"aaaaaa", "+2 more"'


def test_one_member_that_is_too_long_is_only_counted() -> None:
    assert headers.string_list(["x" * 2000], 1024) == '"+1 more"'


@given(st.lists(st.text(st.characters(exclude_characters="+"), min_size=1, max_size=40), min_size=1, max_size=120))
def test_every_list_is_valid_rfc_8941_within_the_limit(texts: list[str]) -> None:
    value = headers.string_list(texts, 256)
    assert len(value.encode("ascii")) <= 256
    members = [member[0] for member in http_sf.parse(value.encode(), tltype="list")]
    counted = 0
    if members[-1].startswith("+"):
        counted = int(members.pop().removeprefix("+").removesuffix(" more"))
        assert counted > 0
    assert members == [headers.percent_encode(text) for text in texts[: len(members)]]
    assert len(members) + counted == len(texts)


def test_seed() -> None:
    assert headers.seed(7, "request") == '7;scope="request"'
    assert headers.seed(4294967295, "request") == '4294967295;scope="request"'


@pytest.mark.parametrize("value", ["true", "1", "TRUE", " true ", "True"])
def test_strict_on(value: str) -> None:
    assert headers.strict_flag([value]) is True  # A050


@pytest.mark.parametrize("values", [[], ["false"], ["0"], [" False "]])
def test_strict_off(values: list[str]) -> None:
    assert headers.strict_flag(values) is False


@pytest.mark.parametrize("values", [["yes"], [""], ["true", "false"], ["2"], ["true\r\nx"]])
def test_other_strict_values_are_refused(values: list[str]) -> None:
    with pytest.raises(InvalidParameter) as caught:  # A052
        headers.strict_flag(values)
    assert caught.value.param == "X-miLLM-Strict"
    assert "\n" not in caught.value.message
