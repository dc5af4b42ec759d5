"""The prefix cache: what was read before need not be read again.

An entry is the KV of a run of tokens, made from the first token on under one steering. A prompt that begins with the
same tokens under the same steering starts from a copy of it. The key is the token ids and the plan's digest (of the
vectors that were really added, see :attr:`engine.steering.plan.SteeringPlan.digest`), never a name: an edited profile
of the same name has another digest. Model, dtype and position rule cannot differ within one cache, since it is emptied
when the model changes and the rule is fixed for a run of the program.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from engine.generation.prompt_scores import Scores
    from engine.models.backends.backend import KVStore

SHORTEST = 8
"""Tokens below which a copy is not worth its keep."""

Tokens = npt.NDArray[np.int64]
"""Token ids as they are compared: every request is held against every entry, on the thread that generates."""


def as_tokens(token_ids: Sequence[int]) -> Tokens:
    """Token ids to compare, shape [tokens]."""
    # Not np.array: from a tuple of integers array is about three times as fast.
    return np.frombuffer(array("q", token_ids), dtype=np.int64)


def shared_length(first: Tokens, second: Tokens) -> int:
    """How many tokens both begin with."""
    most = min(len(first), len(second))
    differs = first[:most] != second[:most]
    place = int(differs.argmax()) if most else 0
    return place if most and differs[place] else most


def _begins_with(longer: Tokens, beginning: Tokens) -> bool:
    size = len(beginning)
    # The last token first: it tells most runs apart, also those that begin with the same long text.
    return len(longer) >= size and longer[size - 1] == beginning[-1] and bool((longer[:size] == beginning).all())


@dataclass(frozen=True, eq=False)
class Prefix:
    """Tokens read under one plan, and their KV. ``store`` has one row and is never written to again.

    ``scores``: how likely each token was, of those who asked for that; they have digests of their own.
    """

    tokens: Tokens
    digest: str
    store: KVStore
    scores: Scores | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values held."""
        return self.store.nbytes


@dataclass(frozen=True)
class PrefixMatch:
    """What a prompt shares with an entry: its first ``length`` tokens."""

    prefix: Prefix
    length: int


class PrefixCache:
    """Entries in the order of their last use, bounded in bytes. Engine thread only.

    Args:
        max_bytes: Most bytes of KV to keep. 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, Prefix] = OrderedDict()
        self._next = 0
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def enabled(self) -> bool:
        """Whether anything can be kept."""
        return self._max_bytes > 0

    @property
    def nbytes(self) -> int:
        """Bytes of KV held."""
        return self._nbytes

    def longest(self, token_ids: Sequence[int], digest: str) -> PrefixMatch | None:
        """The entry that shares the longest beginning with ``token_ids`` under ``digest``.

        At least the last token of a prompt has to be read, since its logits are wanted: the match is one token shorter
        than the prompt at most. None where fewer than :data:`SHORTEST` tokens are shared.
        """
        best_key, best_length = None, SHORTEST - 1
        most = len(token_ids) - 1
        if most < SHORTEST:
            return None
        tokens = as_tokens(token_ids)
        for key, entry in self._entries.items():
            if entry.digest != digest or len(entry.tokens) <= best_length:
                continue
            if entry.tokens[best_length] != tokens[best_length]:
                continue  # it ends no later than the best one so far
            length = min(shared_length(entry.tokens, tokens), most)
            if length > best_length:
                best_key, best_length = key, length
        if best_key is None:
            return None
        self._entries.move_to_end(best_key)
        return PrefixMatch(self._entries[best_key], best_length)

    def wants(self, token_ids: Sequence[int], digest: str) -> bool:
        """Whether :meth:`put` of these tokens would add anything: nobody holds them already, and they are enough."""
        if not self.enabled or len(token_ids) < SHORTEST:
            return False
        tokens = as_tokens(token_ids)
        for key, entry in self._entries.items():
            if entry.digest == digest and _begins_with(entry.tokens, tokens):
                self._entries.move_to_end(key)
                return False
        return True

    def put(self, token_ids: Sequence[int], digest: str, store: KVStore, scores: Scores | None = None) -> None:
        """Keep ``store``, which holds exactly ``token_ids`` in its one row and belongs to the cache from now on.

        Entries that are a beginning of it go, then the ones unused for longest, until the bound is kept. What is larger
        than the bound alone is not kept.
        """
        entry = Prefix(as_tokens(token_ids), digest, store, scores)
        if entry.nbytes > self._max_bytes:
            return
        for key, other in list(self._entries.items()):
            if other.digest == digest and _begins_with(entry.tokens, other.tokens):
                self._drop(key)
        self._entries[self._next] = entry
        self._next += 1
        self._nbytes += entry.nbytes
        while self._nbytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything: the model is leaving, or memory is short."""
        self._entries.clear()
        self._nbytes = 0

    def _drop(self, key: int) -> None:
        self._nbytes -= self._entries.pop(key).nbytes
