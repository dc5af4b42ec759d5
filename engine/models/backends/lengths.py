"""Whether a text can fit a window, told before all of it is made tokens: megabytes would take a minute and gigabytes.

Two ways. Where every token stands for so many bytes at most, a division tells. Otherwise, and between, the text is
counted in pieces and given up once there are more tokens than cutting it could have added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ALWAYS_WHOLE = 32_768
"""Characters that are made tokens without a look at their number."""

PIECE = 32_768
SLACK = 1.25
"""A cut can split a token in two, and where it falls changes how what is beside it is split; never by this much."""


class TextTooLong(Exception):
    """The text has at least ``tokens`` tokens, more than was asked for."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"at least {tokens} tokens")
        self.tokens = tokens


def at_least(text: str, longest: int | None, *, blanks_count: bool = True) -> int:
    """How many tokens ``text`` has at least; 0 where that cannot be told.

    Args:
        text: Any text.
        longest: UTF-8 bytes one token may stand for; None where there is no such bound.
        blanks_count: Whether white space is part of that; some markers swallow all that is beside them.
    """
    if longest is None:
        return 0
    counted = text if blanks_count else re.sub(r"\s+", "", text)
    return -(-len(counted.encode("utf-8", "surrogatepass")) // longest)


def check_length(text: str, most: int, known: Callable[[str], int], count: Callable[[str], int]) -> None:
    """Raise :class:`TextTooLong` when ``text`` has more than ``most`` tokens and would cost much to make tokens of.

    ``known`` is :func:`at_least` for the tokenizer, ``count`` the tokens of a piece, special tokens aside.
    """
    if len(text) <= max(ALWAYS_WHOLE, 4 * most):
        return
    least = known(text)
    if least > most:
        raise TextTooLong(least)
    counted = 0
    for start in range(0, len(text), PIECE):
        counted += count(text[start : start + PIECE])
        if counted > SLACK * most + PIECE:
            raise TextTooLong(max(most + 1, int(counted / SLACK)))


def longest_token(pieces: Iterable[tuple[str, int]], settings: Mapping[str, Any]) -> tuple[int | None, bool]:
    """UTF-8 bytes of text one token may stand for in a fast tokenizer, and whether white space is part of that.

    Args:
        pieces: Each token as it is written, and the bytes it stands for.
        settings: The tokenizer's normalizer, pre-tokenizer and added tokens, as tokenizer.json has them.

    Returns:
        None where some part of the text may leave no token: normalizers that take something out or put it together,
        pre-tokenizers that drop what they split at.
    """
    shrinks = _shrinking(settings.get("normalizer"))
    if shrinks is None or not _keeps_all(settings.get("pre_tokenizer")):
        return None, True
    blanks_count = not any(token.get("lstrip") or token.get("rstrip") for token in settings.get("added_tokens") or ())
    return shrinks * max((size for _, size in pieces), default=1), blanks_count


def _shrinking(normalizer: Any) -> int | None:
    """How many times longer than its result the input of a normalizer may be; None where there is no bound."""
    if normalizer is None:
        return 1
    match normalizer.get("type"):
        case "Sequence":
            whole = 1
            for step in normalizer["normalizers"]:
                times = _shrinking(step)
                if times is None:
                    return None
                whole *= times
            return whole
        case "NFC":
            return 3  # the longest canonical compositions: three letters of Hangul, and Greek with three accents
        case "Prepend" | "ByteLevel":
            return 1
        case "Replace" if normalizer.get("pattern") == {"String": " "} and normalizer.get("content") == "▁":
            return 1
        case _:
            return None


def _keeps_all(pre_tokenizer: Any) -> bool:
    if pre_tokenizer is None:
        return True
    match pre_tokenizer.get("type"):
        case "Sequence":
            return all(_keeps_all(step) for step in pre_tokenizer["pretokenizers"])
        case "Split":
            return bool(pre_tokenizer.get("behavior") != "Removed")
        case "ByteLevel" | "Metaspace" | "Digits":
            return True
        case _:
            return False


def settings_of(backend: Any) -> dict[str, Any]:
    """Normalizer, pre-tokenizer and added tokens of a fast tokenizer, as tokenizer.json has them."""
    parts = {"normalizer": backend.normalizer, "pre_tokenizer": backend.pre_tokenizer}
    found = {name: None if part is None else json.loads(part.__getstate__()) for name, part in parts.items()}
    added = backend.get_added_tokens_decoder().values()
    return {**found, "added_tokens": [{"lstrip": token.lstrip, "rstrip": token.rstrip} for token in added]}
