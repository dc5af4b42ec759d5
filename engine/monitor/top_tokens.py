"""The tokens at which features fired most, each with a few tokens around it: a small memory of what was monitored.

Nothing but the token and :data:`CONTEXT` tokens before it is kept, in bounded number. Knows no torch and no text: ids
are turned into words by whoever has the tokenizer.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.monitor.records import ActivationRecord

CONTEXT = 8
"""Tokens before the one that fired that are kept with it."""

PER_FEATURE = 12
"""Tokens kept for a feature: its strongest ones."""

MOST_FEATURES = 4096
"""Features remembered, over all SAEs; the one that has not fired for longest is forgotten first."""

MOST_ANSWERS = 64
"""Answers whose last tokens are held for the context."""


@dataclass(frozen=True)
class Peak:
    """A token at which a feature fired.

    Attributes:
        token_ids: The tokens before it, as far as they were read, and the token itself last.
        position: 0-based over prompt then answer.
    """

    value: float
    token_ids: tuple[int, ...]
    position: int
    request_id: str


@dataclass(frozen=True)
class FeaturePeaks:
    """A feature's strongest tokens, strongest first."""

    sae_id: str
    layer: int
    feature_idx: int
    peaks: tuple[Peak, ...]


class PeakMemory:
    """Keeps the strongest tokens of each feature. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._peaks: dict[tuple[str, int, int], list[tuple[float, int, Peak]]] = {}
        self._tails: dict[tuple[str, int], tuple[int, deque[int]]] = {}
        self._turn = 0

    def add(self, records: Sequence[ActivationRecord]) -> None:
        """Take in the records of one pass. Position 0 says nothing about a text and is left out."""
        for record in records:
            tail = self._tail(record)
            if record.token_position == 0:
                continue
            for feature, value in record.top_k:
                key = (record.sae_id, record.layer, feature)
                # Taken out and put back last: the first key is the one that has not fired for longest.
                found = self._peaks.pop(key, None)
                if found is None:
                    found = []
                    if len(self._peaks) >= MOST_FEATURES:
                        del self._peaks[next(iter(self._peaks))]
                self._peaks[key] = found
                if len(found) == PER_FEATURE and value <= -found[-1][0]:
                    continue
                self._turn += 1
                peak = Peak(value, tuple(tail), record.token_position, record.request_id)
                # The turn decides between equal values: the earlier one stays first.
                insort(found, (-value, self._turn, peak))
                del found[PER_FEATURE:]

    def strongest(self, sae_id: str, layer: int, limit: int) -> tuple[FeaturePeaks, ...]:
        """The features of one SAE by their strongest token, at most ``limit``."""
        mine = [(key, found) for key, found in self._peaks.items() if key[:2] == (sae_id, layer)]
        mine.sort(key=lambda item: (item[1][0][0], item[0][2]))
        return tuple(_given(key, found) for key, found in mine[:limit])

    def of(self, sae_id: str, layer: int, feature: int) -> FeaturePeaks:
        """One feature's tokens; none where it never fired."""
        key = (sae_id, layer, feature)
        return _given(key, self._peaks.get(key, []))

    def keep(self, places: Collection[tuple[str, int]]) -> None:
        """Forget the features of all SAEs but these, and the answers where none is left."""
        self._peaks = {key: found for key, found in self._peaks.items() if key[:2] in places}
        if not places:
            self._tails.clear()

    def clear(self) -> int:
        """Forget everything; returns how many tokens there were."""
        count = sum(len(found) for found in self._peaks.values())
        self._peaks.clear()
        self._tails.clear()
        return count

    def _tail(self, record: ActivationRecord) -> deque[int]:
        """The last tokens of the record's answer, its own included, once for all SAEs that read it."""
        key = (record.request_id, record.choice)
        position, tail = self._tails.pop(key, (-1, deque(maxlen=CONTEXT + 1)))
        if record.token_position != position:
            if record.token_position != position + 1:
                tail.clear()
            tail.append(record.token_id)
        self._tails[key] = (record.token_position, tail)
        if len(self._tails) > MOST_ANSWERS:
            del self._tails[next(iter(self._tails))]
        return tail


def _given(key: tuple[str, int, int], found: Sequence[tuple[float, int, Peak]]) -> FeaturePeaks:
    return FeaturePeaks(*key, tuple(peak for _, _, peak in found))
