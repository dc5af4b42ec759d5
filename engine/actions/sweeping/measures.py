"""How an answer is measured: pure functions over its text, its tokens and their losses."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LARGEST_LOSS = 20.0
"""Nats per token; above that e^loss says no more than that the text is noise."""


def words_of(text: str) -> list[str]:
    """The words of ``text`` in lower case; digits are none."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def topic_words(text: str) -> frozenset[str]:
    """A list of topic words as a person writes it: separated by spaces, commas or lines."""
    return frozenset(words_of(text))


def topic_share(text: str, words: Collection[str]) -> float:
    """Share of the words of ``text`` that are among ``words``, counted whole; 0 for a text without words."""
    found = words_of(text)
    return sum(word in words for word in found) / max(1, len(found))


def repeated_trigrams(ids: Sequence[int]) -> float:
    """Share of trigrams of tokens that have come before in the same text; 0 where there is none."""
    trigrams = list(zip(ids, ids[1:], ids[2:], strict=False))
    return 1 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0


def perplexity(loss: float | None) -> float | None:
    """Exponential of the mean loss per token (nats), at most 485,165,195; None without one or where it is NaN."""
    if loss is None or math.isnan(loss):
        return None
    return math.exp(min(loss, _LARGEST_LOSS))
