"""A first list of topic words for what a sweep steers, out of what is known about its features."""

from __future__ import annotations

from collections.abc import Iterable

from engine.actions.sweeping.measures import words_of
from engine.library.records import FeatureLabel

SHORTEST = 3
MOST_WORDS = 60
_EVERYWHERE = frozenset(
    words_of(
        "about after all and any are around but can for from has have how into its more not one other out over some "
        "such that the their them then there these they this through under very was were what when which who with "
        "words you your feature features related text token tokens"
    )
)


def suggested_words(labels: Iterable[FeatureLabel]) -> tuple[str, ...]:
    """Words of the labels and of the tokens the features fire at most, in order, each once; common words are left out.

    Tokens without a leading space may be the middle of a word, so only those with one count.
    """
    found: dict[str, None] = {}
    for label in labels:
        tokens = [token for token in label.top_tokens if token.startswith((" ", "Ġ", "▁"))]
        for text in (label.label, *(token.lstrip("Ġ▁") for token in tokens)):
            for word in words_of(text):
                if len(word) >= SHORTEST and word not in _EVERYWHERE:
                    found[word] = None
    return tuple(found)[:MOST_WORDS]
