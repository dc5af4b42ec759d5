"""A choice's text: tokens go out with the text they wrote, and a stop takes back the tokens behind the cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.request import TokenInfo, text_of
from engine.generation.text.parts import Kind
from engine.generation.text.stream import ChoiceText, Emitted
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.made_tokenizers import byte_chunks, byte_level, sentencepiece

BYTE_LEVEL = byte_level()


def shown(emitted: Emitted) -> tuple[str, list[str], bool]:
    return text_of(emitted.pieces, Kind.CONTENT), [token.text for token in tokens_of(emitted)], emitted.stopped


def tokens_of(emitted: Emitted) -> list[TokenInfo]:
    return [token for piece in emitted.pieces for token in piece.tokens]


def run(choice: ChoiceText, ids: Sequence[int]) -> list[tuple[str, list[str], bool]]:
    """What each token lets out, and the end."""
    return [shown(choice.feed(TokenInfo(i))) for i in ids] + [shown(choice.finish())]


def chunked(*chunks: bytes) -> tuple[CheckpointTokenizer, list[int]]:
    return byte_chunks(chunks)


def test_each_token_goes_out_with_its_text() -> None:
    tokenizer, ids = chunked(b"one", b" two", b" three")
    assert run(ChoiceText(tokenizer), ids) == [
        ("one", ["one"], False),
        (" two", [" two"], False),
        (" three", [" three"], False),
        ("", [], False),
    ]


def test_parts_of_a_character_go_out_with_it() -> None:
    tokenizer, ids = chunked(b"a\xf0", b"\x9f", b"\x99\x82b\xf0\x9f", b"\x99\x82")
    assert run(ChoiceText(tokenizer), ids) == [
        ("a", ["a\\xf0"], False),
        ("", [], False),
        ("🙂b", ["\\x9f", "\\x99\\x82b\\xf0\\x9f"], False),
        ("🙂", ["\\x99\\x82"], False),
        ("", [], False),
    ]


def test_an_unfinished_character_goes_out_at_the_end() -> None:
    tokenizer, ids = chunked(b"a", b"\xf0\x9f")
    assert run(ChoiceText(tokenizer), ids)[1:] == [("", [], False), ("\ufffd", ["\\xf0\\x9f"], False)]


def test_offsets_count_characters_before_the_token() -> None:
    tokenizer, ids = chunked(b"h\xc3", b"\xa9", b" \xf0\x9f", b"\x99\x82", b"!")
    choice = ChoiceText(tokenizer, prompt_chars=10)
    tokens = [token for i in ids for token in tokens_of(choice.feed(TokenInfo(i)))]
    assert [(token.text_offset, token.bytes) for token in tokens] == [
        (10, b"h\xc3"),
        (11, b"\xa9"),
        (12, b" \xf0\x9f"),
        (13, b"\x99\x82"),
        (14, b"!"),
    ]


def test_logprobs_travel_with_the_token() -> None:
    tokenizer, ids = chunked(b"one")
    emitted = ChoiceText(tokenizer).feed(TokenInfo(ids[0], logprob=-0.5))
    assert tokens_of(emitted)[0].logprob == -0.5


def test_a_token_waits_with_text_that_may_be_a_stop() -> None:
    tokenizer, ids = chunked(b"one", b" tw", b"o", b" three")
    assert run(ChoiceText(tokenizer, [" two!"]), ids) == [
        ("one", ["one"], False),
        ("", [], False),
        ("", [], False),
        (" two three", [" tw", "o", " three"], False),
        ("", [], False),
    ]


def test_tokens_behind_the_cut_are_dropped() -> None:
    tokenizer, ids = chunked(b"one", b" t", b"wo", b" three")
    choice = ChoiceText(tokenizer, ["two"])
    assert run(choice, ids[:3]) == [
        ("one", ["one"], False),
        (" ", [], False),
        ("", [" t"], True),
        ("", [], True),
    ]
    assert shown(choice.feed(TokenInfo(ids[3]))) == ("", [], True)


def test_a_token_cut_in_its_middle_is_kept_and_one_that_begins_at_the_cut_is_not() -> None:
    tokenizer, ids = chunked(b"abSTOPcd")
    assert run(ChoiceText(tokenizer, ["STOP"]), ids) == [("ab", ["abSTOPcd"], True), ("", [], True)]
    tokenizer, ids = chunked(b"ab", b"STOPcd")
    assert run(ChoiceText(tokenizer, ["STOP"]), ids) == [("ab", ["ab"], False), ("", [], True), ("", [], True)]


def test_held_text_comes_out_when_the_model_ends() -> None:
    tokenizer, ids = chunked(b"one", b" tw")
    assert run(ChoiceText(tokenizer, ["two"]), ids) == [
        ("one", ["one"], False),
        (" ", [], False),
        ("tw", [" tw"], False),
    ]


def test_tokens_that_show_nothing_go_out_with_the_next_text_or_at_the_end() -> None:
    the, sea = BYTE_LEVEL.encode("the", False)[0], BYTE_LEVEL.encode(" sea", False)
    assert len(sea) == 1
    assert run(ChoiceText(BYTE_LEVEL), [1, the, 2, sea[0], 2]) == [
        ("", [], False),
        ("the", ["<|im_start|>", "the"], False),
        ("", [], False),
        (" sea", ["<|im_end|>", " sea"], False),
        ("", [], False),
        ("", ["<|im_end|>"], False),
    ]


def test_stops_are_not_looked_for_in_the_first_min_tokens() -> None:
    tokenizer, ids = chunked(b"a.", b"b.", b".", b"c.")
    assert run(ChoiceText(tokenizer, ["."], min_tokens=2), ids[:3]) == [
        ("a.", ["a."], False),
        ("b.", ["b."], False),
        ("", [], True),
        ("", [], True),
    ]
    assert run(ChoiceText(tokenizer, ["b.."], min_tokens=2), ids)[2:] == [
        (".", ["."], False),
        ("c.", ["c."], False),
        ("", [], False),
    ]


def test_a_stop_that_is_a_special_token_ends_the_text() -> None:
    the = BYTE_LEVEL.encode("the", False)[0]
    choice = ChoiceText(BYTE_LEVEL, ["<|im_start|>", "they"])
    assert run(choice, [the, 1]) == [("", [], False), ("the", ["the"], True), ("", [], True)]
    later = ChoiceText(BYTE_LEVEL, ["<|im_start|>"], min_tokens=2)
    assert [step[2] for step in run(later, [the, 1, 1])] == [False, False, True, True]


def test_a_continued_text_keeps_its_first_space() -> None:
    tokenizer = sentencepiece()
    context, word = tokenizer.encode("the", False), tokenizer.encode("hello", False)
    assert run(ChoiceText(tokenizer, context_ids=context), word)[0] == (" hello", [" hello"], False)
    assert run(ChoiceText(tokenizer), word)[0] == ("hello", [" hello"], False)


@settings(deadline=None)
@given(
    text=st.text("ab. 🙂東", max_size=12),
    stops=st.lists(st.sampled_from(["a.", "b🙂", "東", "..", "ab"]), max_size=3),
    data=st.data(),
)
def test_every_token_goes_out_once_and_no_stop_is_shown(text: str, stops: list[str], data: st.DataObject) -> None:
    raw = text.encode()
    places = sorted(data.draw(st.sets(st.integers(0, len(raw)))))
    edges = [0, *places, len(raw)]
    chunks = [raw[a:b] for a, b in pairwise(edges) if a < b]
    tokenizer, ids = byte_chunks(chunks)
    choice, out, tokens, stopped = ChoiceText(tokenizer, stops), "", [], False
    for token_id in ids:
        emitted = choice.feed(TokenInfo(token_id))
        out, tokens, stopped = (
            out + text_of(emitted.pieces, Kind.CONTENT),
            [*tokens, *tokens_of(emitted)],
            emitted.stopped,
        )
        if stopped:
            break
    if not stopped:
        emitted = choice.finish()
        out, tokens = out + text_of(emitted.pieces, Kind.CONTENT), [*tokens, *tokens_of(emitted)]
    assert text.startswith(out)
    assert stopped == any(stop in text for stop in stops)
    assert not any(stop in out for stop in stops)
    assert [token.token_id for token in tokens] == ids[: len(tokens)]
    if not stopped:
        assert (out, len(tokens)) == (text, len(ids))
    # A token is kept exactly when it begins before the cut.
    starts, before = [], b""
    for chunk in chunks:
        starts.append(len(before.decode("utf-8", "ignore")))
        before += chunk
    assert [token.text_offset for token in tokens] == starts[: len(tokens)]
    if stopped:
        assert len(tokens) == sum(start < len(out) for start in starts)
