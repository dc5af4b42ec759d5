"""Tokens to text: every split of the same bytes gives the same text, and no half character is ever shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation.text.detokenizer import Detokenizer
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.made_tokenizers import byte_chunks, byte_level, sentencepiece, wordpiece

BYTE_LEVEL = byte_level()
SENTENCEPIECE = sentencepiece()
WINDOWED = byte_level()
WINDOWED.exact_bytes = False  # the other way of decoding, on a tokenizer that has both
FAMILY = "👩‍👩‍👧‍👦"  # four people joined by zero-width joiners

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def pieces(tokenizer: CheckpointTokenizer, ids: Sequence[int], context: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, context)
    return [detokenizer.feed(i) for i in ids] + [detokenizer.finish()]


def bytes_of(tokenizer: CheckpointTokenizer, data: bytes) -> list[int]:
    """One SentencePiece byte token per byte."""
    return [3 + byte for byte in data]


@settings(deadline=None)
@given(texts)
def test_any_text_comes_back_from_a_byte_level_tokenizer(text: str) -> None:
    shown = pieces(BYTE_LEVEL, BYTE_LEVEL.encode(text, False))
    assert "".join(shown) == text
    assert shown[-1] == ""


@settings(deadline=None)
@given(texts.filter(lambda text: "▁" not in text and not text.startswith(" ")))
def test_any_text_comes_back_from_a_sentencepiece_tokenizer(text: str) -> None:
    shown = pieces(SENTENCEPIECE, SENTENCEPIECE.encode(text, False))
    assert "".join(shown) == text
    assert shown[-1] == ""


@settings(deadline=None)
@given(texts)
def test_any_text_comes_back_from_a_window(text: str) -> None:
    assert "".join(pieces(WINDOWED, WINDOWED.encode(text, False))) == text


@settings(deadline=None)
@given(text=texts, data=st.data())
def test_any_split_of_the_bytes_gives_the_same_text(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(raw) - 1, 1)), max_size=12)))
    edges = [0, *(cut for cut in cuts if cut < len(raw)), len(raw)]
    chunks = [raw[a:b] for a, b in pairwise(edges) if a < b]
    tokenizer, ids = byte_chunks(chunks)
    shown = pieces(tokenizer, ids)
    assert "".join(shown) == text
    for place in range(len(shown)):  # whatever has been shown is whole
        assert text.startswith("".join(shown[:place]))


@settings(deadline=None)
@given(st.binary(max_size=24))
def test_any_bytes_come_out_as_python_decodes_them(raw: bytes) -> None:
    tokenizer, ids = byte_chunks([bytes([byte]) for byte in raw])
    assert "".join(pieces(tokenizer, ids)) == raw.decode("utf-8", "replace")


@settings(deadline=None)
@given(st.binary(max_size=24))
def test_bytes_are_held_for_three_tokens_at_most(raw: bytes) -> None:
    tokenizer, ids = byte_chunks([bytes([byte]) for byte in raw])
    detokenizer, waiting = Detokenizer(tokenizer), 0
    for token in ids:
        waiting = 0 if detokenizer.feed(token) else waiting + 1
        assert waiting <= 3


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"\xf0\x9f", b"\x99\x82"], ["", "🙂", ""]),
        ([b"\xf0", b"\x9f\x99", b"\x82"], ["", "", "🙂", ""]),
        ([b"\xf0", b"\x9f", b"\x99", b"\x82"], ["", "", "", "🙂", ""]),
        ([b"a\xf0\x9f", b"\x99\x82b"], ["a", "🙂b", ""]),
        ([b"\xe6\x9d\xb1\xe4", b"\xba", b"\xac"], ["東", "", "京", ""]),
        ([b"\xf0\x9f\x99\x82\xf0", b"\x9f\x99\x82"], ["🙂", "🙂", ""]),
        ([b"\xed", b"\x95\x9c\xea\xb5", b"\xad"], ["", "한", "국", ""]),
        ([b"\xef\xbf\xbd", b"x"], ["\ufffd", "x", ""]),
        ([b"\xef", b"\xbf", b"\xbd"], ["", "", "\ufffd", ""]),
        ([b"\xff", b"x"], ["\ufffd", "x", ""]),
        ([b"\xf0\x9f", b"x"], ["", "\ufffdx", ""]),
        ([b"\xf0\x9f"], ["", "\ufffd"]),
        ([b"\xf0", b"\xf0", b"\xf0"], ["", "\ufffd", "\ufffd", "\ufffd"]),
        ([b"\x80", b"\x80", b"\x80", b"\x80"], ["\ufffd", "\ufffd", "\ufffd", "\ufffd", ""]),
    ],
)
def test_pieces_of_split_characters(chunks: list[bytes], expected: list[str]) -> None:
    tokenizer, ids = byte_chunks(chunks)
    assert pieces(tokenizer, ids) == expected


def test_a_family_joined_by_zero_width_joiners_in_single_bytes() -> None:
    tokenizer, ids = byte_chunks([bytes([byte]) for byte in FAMILY.encode()])
    assert [piece for piece in pieces(tokenizer, ids) if piece] == [
        "👩",
        "\u200d",
        "👩",
        "\u200d",
        "👧",
        "\u200d",
        "👦",
    ]
    assert "".join(pieces(SENTENCEPIECE, bytes_of(SENTENCEPIECE, FAMILY.encode()))) == FAMILY


def test_sentencepiece_bytes_after_a_whole_character_do_not_undo_it() -> None:
    # Decoding 東 and the first byte of 京 together gives four U+FFFD with this kind of tokenizer.
    ids = bytes_of(SENTENCEPIECE, "東京".encode())
    assert pieces(SENTENCEPIECE, ids) == ["", "", "東", "", "", "京", ""]
    assert pieces(SENTENCEPIECE, [*ids[:4], ids[0]])[:5] == ["", "", "東", "", "\ufffd"]


def test_windowed_decoding_holds_a_character_and_drains_what_is_none() -> None:
    emoji = WINDOWED.encode("🙂", False)
    assert len(emoji) >= 2
    assert pieces(WINDOWED, emoji) == [""] * (len(emoji) - 1) + ["🙂", ""]
    tokenizer, ids = byte_chunks([b"a", b"\xf0", b"\xf0", b"\xf0", b"\xf0", b"b"])
    tokenizer.exact_bytes = False
    assert pieces(tokenizer, ids) == ["a", "", "", "", "\ufffd\ufffd\ufffd\ufffd", "b", ""]
    assert pieces(tokenizer, ids[:2]) == ["a", "", "\ufffd"]


def test_a_tokenizer_without_exact_bytes_writes_spaces_between_words() -> None:
    tokenizer = wordpiece()
    ids = tokenizer.encode("writes a token and writes", False)
    assert pieces(tokenizer, ids) == ["write", "s", " a", " token", " and", " write", "s", ""]
    context = tokenizer.encode("the", False)
    assert pieces(tokenizer, ids[:3], context) == [" write", "s", " a", ""]


def test_the_space_in_front_of_the_first_word_depends_on_what_it_follows() -> None:
    word = SENTENCEPIECE.encode("hello", False)
    assert SENTENCEPIECE.token_text(word[0]) == " hello"
    assert pieces(SENTENCEPIECE, word) == ["hello", ""]
    assert pieces(SENTENCEPIECE, word, context=SENTENCEPIECE.encode("the", False)) == [" hello", ""]
    assert pieces(SENTENCEPIECE, word, context=[1]) == ["hello", ""]  # a BOS alone shows nothing
    # Only one space belongs to the tokenizer; a second is the text's own.
    space = SENTENCEPIECE.encode("the the ", False)[-1]
    assert pieces(SENTENCEPIECE, [space, *word]) == ["", " hello", ""]
    byte_word = BYTE_LEVEL.encode(" the", False)
    assert pieces(BYTE_LEVEL, byte_word) == [" the", ""]


def test_special_and_end_tokens_show_nothing_and_lose_nothing() -> None:
    the, quick = BYTE_LEVEL.encode("the", False)[0], BYTE_LEVEL.encode(" quick", False)
    assert "".join(pieces(BYTE_LEVEL, [1, the, 2, *quick, 10**6])) == "the quick"
    words = SENTENCEPIECE.encode("hello world", False)
    assert pieces(SENTENCEPIECE, [1, words[0], 2, words[1], 2]) == ["", "hello", "", " world", "", ""]
    windowed = wordpiece()
    a, the = windowed.encode("a the", False)
    assert pieces(windowed, [1, a, 1, the, 1]) == ["", "a", "", " the", "", ""]


def test_a_window_stays_small() -> None:
    detokenizer = Detokenizer(WINDOWED, BYTE_LEVEL.encode("the sea was calm and the ship went slowly along", False))
    for token in BYTE_LEVEL.encode("the old forest 🙂 " * 200, False):
        detokenizer.feed(token)
        assert len(detokenizer._decoder._window) <= 16
