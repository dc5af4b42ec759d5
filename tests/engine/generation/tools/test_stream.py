"""Calls in a choice's text: beside reasoning, stops and what an answer goes on with, however tokens cut it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.request import Piece, TokenInfo, joined
from engine.generation.text.parts import Kind
from engine.generation.text.reasoning import Beginning
from engine.generation.text.stream import ChoiceText
from engine.generation.tools.json_wires import Hermes, MistralList
from engine.generation.tools.reader import CallReader
from engine.generation.tools.wire import Wire
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.made_tokenizers import byte_chunks
from tests.engine.generation.tools.made_tools import PLAIN
from tests.tiny import build_tokenizer

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def written(
    chunks: Sequence[str], stops: Sequence[str] = (), wire: Wire | None = None, **options: object
) -> tuple[list[tuple[Kind, str]], list[tuple[str, str]], bool]:
    """Kinds and texts of an answer whose tokens are ``chunks``, its calls, and whether a stop ended it."""
    tokenizer, ids = byte_chunks([chunk.encode() for chunk in chunks if chunk])
    reader = CallReader(wire or Hermes(), PLAIN, lambda text: True)
    choice = ChoiceText(tokenizer, stops, calls=reader, **options)  # type: ignore[arg-type]
    pieces: list[Piece] = []
    stopped = False
    for number, token in enumerate(ids):
        emitted = choice.feed(TokenInfo(token), last=number == len(ids) - 1)
        pieces += emitted.pieces
        stopped = stopped or emitted.stopped
        if stopped:
            break
    whole = joined(pieces)
    if not stopped:
        assert [token.token_id for piece in whole for token in piece.tokens] == ids
    calls: dict[int, tuple[str, str]] = {}
    for piece in whole:
        if piece.call is not None:
            calls[piece.call.number] = (piece.call.name, calls.get(piece.call.number, ("", ""))[1] + piece.text)
    shown = [(piece.kind, piece.text) for piece in whole if piece.kind is not Kind.CALL and piece.text]
    return shown, list(calls.values()), stopped


WEATHER = [("get_weather", '{"city": "Oslo"}')]


def cut(text: str, places: Sequence[int]) -> list[str]:
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_reasoning_then_text_then_a_call(places: list[int]) -> None:
    text = f"<think>\nWhich city?\n</think>\n\nLooking.\n{CALL}\n"
    shown, calls, _ = written(cut(text, places), beginning=Beginning.BEFORE)
    assert shown == [(Kind.REASONING, "Which city?"), (Kind.CONTENT, "Looking.")]
    assert calls == WEATHER


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_call_in_the_reasoning_is_none(places: list[int]) -> None:
    text = f"{CALL}</think>No."
    shown, calls, _ = written(cut(text, places), beginning=Beginning.OPENED)
    assert shown == [(Kind.REASONING, CALL), (Kind.CONTENT, "No.")]
    assert calls == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_tag_in_the_arguments_is_text(places: list[int]) -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "<think>Os</think>"}}</tool_call>'
    shown, calls, _ = written(cut(text, places), beginning=Beginning.BEFORE)
    assert shown == []
    assert calls == [("get_weather", '{"city": "<think>Os</think>"}')]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stop_counts_around_calls_and_not_in_them(places: list[int]) -> None:
    text = f"Looking. {CALL} Done. STOP more"
    shown, calls, stopped = written(cut(text, places), ["STOP", "Oslo", "}"])
    assert "".join(each for _, each in shown) == "Looking. Done. "
    assert calls == WEATHER
    assert stopped
    # A stop that begins before a call does not end behind it.
    shown, calls, stopped = written(cut(f"a {CALL} b", places), ["a b", "a <tool", "city"])
    assert (calls, stopped) == (WEATHER, False)


@pytest.mark.parametrize("place", range(len(CALL) + 1))
def test_what_an_answer_goes_on_with(place: int) -> None:
    begun, rest = f"Sure. {CALL}"[: place + 6], f"Sure. {CALL}"[place + 6 :]
    shown, calls, _ = written([*rest, "\n", "More"], begun=begun, context_ids=[1])
    assert calls == WEATHER
    # What was said before is not said again.
    assert "".join(text for _, text in shown).strip() == "More"


def test_a_begun_mark_that_comes_to_nothing_shows_what_is_new() -> None:
    shown, calls, _ = written(["l", " it"], begun="Say <tool_ca", context_ids=[1])
    assert (shown, calls) == ([(Kind.CONTENT, "l it")], [])


def test_calls_of_the_prompt_are_told_also_when_nothing_is_written() -> None:
    tokenizer, _ = byte_chunks([b"a"])
    choice = ChoiceText(tokenizer, calls=CallReader(Hermes(), PLAIN, lambda text: True), begun=CALL)
    pieces = choice.finish().pieces
    assert [(piece.call.name, piece.text, piece.opens) for piece in pieces if piece.call] == [(*WEATHER[0], True)]


@pytest.mark.parametrize("special", [False, True])
def test_marks_that_are_tokens_are_read_as_text(special: bool) -> None:
    inner = build_tokenizer()
    inner.add_tokens(["[TOOL_CALLS]"], special_tokens=special)
    tokenizer = CheckpointTokenizer(inner)
    ids = tokenizer.encode('Hi [TOOL_CALLS] [{"name": "get_time", "arguments": {}}]', False)
    mark = tokenizer.encode("[TOOL_CALLS]", False)
    assert len(mark) == 1
    reader = CallReader(MistralList(), PLAIN, lambda text: True)
    choice = ChoiceText(tokenizer, calls=reader, shown_ids=frozenset(mark))
    pieces = joined(piece for token in ids for piece in choice.feed(TokenInfo(token)).pieces)
    pieces = joined((*pieces, *choice.finish().pieces))
    assert "".join(piece.text for piece in pieces if piece.kind is Kind.CONTENT) == "Hi"
    assert [(piece.call.name, piece.text) for piece in pieces if piece.call] == [("get_time", "{}")]
    assert [token.token_id for piece in pieces for token in piece.tokens] == ids
