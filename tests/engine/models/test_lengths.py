"""Texts far longer than a window are refused without being made tokens of."""

from __future__ import annotations

from typing import Any

import pytest

from engine.models.backends.lengths import PIECE, TextTooLong, at_least, check_length, longest_token
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.made_tokenizers import byte_level, sentencepiece

MEGABYTES = 30_000_000


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters that were made tokens of, call by call."""
    seen: list[int] = []
    plain = CheckpointTokenizer._ids

    def counted(self: CheckpointTokenizer, text: str, add_special_tokens: bool) -> list[int]:
        seen.append(len(text))
        return plain(self, text, add_special_tokens)

    monkeypatch.setattr(CheckpointTokenizer, "_ids", counted)
    return seen


@pytest.mark.parametrize("text", ["a", "the sea ", " ", "\n", "é", "🙂", "<|im_end|>"])
def test_thirty_megabytes_are_refused_after_a_window_of_them(text: str, read: list[int]) -> None:
    tokenizer = byte_level()
    given = text * (MEGABYTES // len(text))
    true_count = len(tokenizer._ids(text * 1000, False)) * (len(given) // len(text) // 1000)
    read.clear()
    with pytest.raises(TextTooLong) as refusal:
        tokenizer.encode(given, True, 2048)
    assert 2048 < refusal.value.tokens <= true_count
    assert read == []  # by its length alone


def test_where_no_length_tells_it_is_counted_in_pieces(read: list[int]) -> None:
    from tokenizers import normalizers

    inner = byte_level()._inner
    inner.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer = CheckpointTokenizer(inner)
    assert tokenizer.at_least("a" * MEGABYTES) == 0
    read.clear()
    with pytest.raises(TextTooLong) as refusal:
        tokenizer.encode("The sea. " * (MEGABYTES // 9), True, 2048)
    assert refusal.value.tokens > 2048
    assert max(read) == PIECE
    assert sum(read) < 10 * PIECE  # of 916 pieces


def test_what_fits_comes_out_as_ever() -> None:
    tokenizer = byte_level()
    for text in ("the sea " * 5000, "x" * 40_000):
        assert tokenizer.encode(text, True, 50_000) == tokenizer.encode(text, True)
    short = tokenizer.encode("the sea " * 1000, True, 10)  # a longer one than the window, told exactly by the caller
    assert len(short) > 10


def test_the_bound_is_never_above_the_count() -> None:
    texts = ["the sea", "", "   \n\n\t  ", "naïve 東京 🙂", "e\u0301" * 50, "\u1112\u1161\u11ab" * 20, "<|im_end|>" * 9]
    for tokenizer in (byte_level(), sentencepiece()):
        for text in texts:
            assert tokenizer.at_least(text) <= len(tokenizer.encode(text, False))


def test_the_bound_by_hand() -> None:
    assert at_least("a" * 100, 8) == 13  # 12.5 tokens of eight bytes
    assert at_least("é" * 4, 8) == 1
    assert at_least("é" * 5, 8) == 2
    assert at_least("a " * 100, 10, blanks_count=False) == 10
    assert at_least("a", None) == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (7, True)),
        ({"normalizer": {"type": "NFC"}}, (21, True)),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}}, (None, True)),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}, (7, True)),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ""}}, (None, True)),
        ({"pre_tokenizer": {"type": "Whitespace"}}, (None, True)),
        ({"pre_tokenizer": {"type": "Split", "behavior": "Removed"}}, (None, True)),
        ({"pre_tokenizer": {"type": "Split", "behavior": "Isolated"}}, (7, True)),
        ({"added_tokens": [{"lstrip": False, "rstrip": True}]}, (7, False)),
    ],
)
def test_what_a_token_may_stand_for(settings: dict[str, Any], expected: tuple[int | None, bool]) -> None:
    assert longest_token([("a", 1), ("abcdefg", 7)], settings) == expected


def test_a_marker_that_swallows_blanks_is_allowed_for() -> None:
    from tokenizers import AddedToken

    inner = byte_level()._inner
    inner.add_tokens([AddedToken("<pad-all>", rstrip=True)])
    tokenizer = CheckpointTokenizer(inner)
    text = "<pad-all>" + " " * 100_000
    assert len(tokenizer.encode(text, False, 2048)) == 1


def test_pieces_are_counted_until_it_is_certain() -> None:
    asked: list[str] = []

    def count(piece: str) -> int:
        asked.append(piece)
        return len(piece)

    with pytest.raises(TextTooLong) as refusal:
        check_length("a" * 1_000_000, 10_000, lambda text: 0, count)
    # 1.25 windows and one token for each character of one cut: 45,268; two pieces have 65,536.
    assert len(asked) == 2
    assert refusal.value.tokens == 52_428  # 65,536 / 1.25
    asked.clear()
    check_length("a" * 40_000, 10_000, lambda text: 10**9, count)
    assert asked == []
