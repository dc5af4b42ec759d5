"""Stop strings: cut at the first that is complete, never let out, and the same on every split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.text.stops import Held, StopHolder

alphabet = st.text("abc", max_size=14)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4)


def run(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, bool]:
    """The text let out and whether a stop ended it."""
    holder, out = StopHolder(stops), ""
    for piece in pieces:
        held = holder.feed(piece)
        out += held.text
        if held.stopped:
            return out, True
    return out + holder.finish(), False


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The rule, said plainly: of all endings of a stop take the first, and of its stops the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def splits(text: str) -> list[list[str]]:
    """Every way to cut a text into pieces."""
    if len(text) <= 1:
        return [[text]]
    return [[text[:i], *rest] for i in range(1, len(text)) for rest in splits(text[i:])] + [[text]]


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one two END three", ["END"], ("one two ", True)),
        ("xxbbya", ["a", "bb"], ("xx", True)),
        ("abcabd", ["abd"], ("abc", True)),
        ("aaab", ["aab"], ("a", True)),
        ("abab", ["ababc"], ("abab", False)),
        ("worl", ["world"], ("worl", False)),
        ("world", ["world"], ("", True)),
        ("abcd", ["abcd", "bc"], ("a", True)),
        ("xabc", ["abc", "bc"], ("x", True)),
        ("", ["a"], ("", False)),
        ("a\n\nb", ["\n\n"], ("a", True)),
        ("東京都", ["京"], ("東", True)),
    ],
)
def test_the_cut_is_the_same_on_every_split(text: str, stops: list[str], expected: tuple[str, bool]) -> None:
    for pieces in splits(text) if len(text) <= 8 else [[text], list(text), ["", *text, ""]]:
        assert run(pieces, stops) == expected


@settings(deadline=None)
@given(text=alphabet, stops=stop_lists, data=st.data())
def test_any_text_any_stops_any_split(text: str, stops: list[str], data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    edges = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert run(pieces, stops) == cut(text, stops)


@settings(deadline=None)
@given(text=alphabet, stops=stop_lists)
def test_no_more_is_held_than_the_beginning_of_a_stop(text: str, stops: list[str]) -> None:
    holder, out = StopHolder(stops), ""
    for place, character in enumerate(text):
        held = holder.feed(character)
        out += held.text
        if held.stopped:
            return
        tail = text[len(out) : place + 1]
        assert tail == "" or any(stop.startswith(tail) and stop != tail for stop in stops)


def test_what_is_let_out_piece_by_piece() -> None:
    holder = StopHolder(["</s>", "<x>"])
    assert [holder.feed(piece) for piece in ["a<", "/", "b<", "x", ">c"]] == [
        Held("a"),
        Held(""),
        Held("</b"),
        Held(""),
        Held("", True),
    ]
    assert holder.feed("more") == Held("", True)
    assert holder.finish() == ""


def test_held_text_comes_out_at_the_end() -> None:
    holder = StopHolder(["stop here"])
    assert holder.feed("please stop he") == Held("please ")
    assert holder.finish() == "stop he"
    assert holder.finish() == ""


def test_a_stop_that_begins_before_activation_does_not_count() -> None:
    holder = StopHolder(["END"], active=False)
    assert holder.feed("END E") == Held("END E")
    holder.active = True
    assert holder.feed("ND and ") == Held("ND and ")
    assert holder.feed("EN") == Held("")
    assert holder.feed("D") == Held("", True)


def test_no_stops_let_everything_through() -> None:
    holder = StopHolder([])
    assert holder.feed("anything") == Held("anything")
    assert holder.finish() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopHolder(["a", ""])


def test_a_very_long_stop_that_nearly_matches_is_let_out_whole() -> None:
    stop = "ab" * 20_000 + "c"
    text = "ab" * 30_000
    assert run([text[i : i + 7] for i in range(0, len(text), 7)], [stop]) == (text, False)
    assert run([text, "cx"], [stop]) == ("ab" * 10_000, True)


def test_text_that_stands_aside_ends_only_at_what_counts_everywhere() -> None:
    holder = StopHolder(["ab"], everywhere=["xy"])
    assert holder.feed("1a") == Held("1")
    assert holder.feed("b2ab", aside=True) == Held("ab2ab")
    assert holder.feed("a", aside=True) == Held("a")
    assert holder.feed("b3x") == Held("b3")
    assert holder.feed("yab", aside=True) == Held("", True)
