"""The prefix cache: what was read before need not be read again.

An entry is the KV of a run of tokens, made from the first token on under one steering. A prompt that begins with the
same tokens under the same steering starts from a copy of it. The key is the token ids and the plan's digest (of the
vectors that were really added, see :attr:`engine.steering.plan.SteeringPlan.digest`), never a name: an edited profile
of the same name has another digest. Model, dtype and position rule cannot differ within one cache, since it is emptied
when the model changes and the rule is fixed for a run of the program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.models.backends.backend import KVStore

SHORTEST = 8
"""Tokens below which a copy is not worth its keep."""


@dataclass(frozen=True, eq=False)
class Prefix:
    """Tokens read under one plan, and their KV. ``store`` has one row and is never written to again."""

    token_ids: tuple[int, ...]
    digest: str
    store: KVStore

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
        for key, entry in self._entries.items():
            if entry.digest != digest:
                continue
            length = min(_shared(entry.token_ids, token_ids), most)
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
        for key, entry in self._entries.items():
            if entry.digest == digest and _shared(entry.token_ids, token_ids) == len(token_ids):
                self._entries.move_to_end(key)
                return False
        return True

    def put(self, token_ids: Sequence[int], digest: str, store: KVStore) -> None:
        """Keep ``store``, which holds exactly ``token_ids`` in its one row and belongs to the cache from now on.

        Entries that are a beginning of it go, then the ones unused for longest, until the bound is kept. What is larger
        than the bound alone is not kept.
        """
        entry = Prefix(tuple(token_ids), digest, store)
        if entry.nbytes > self._max_bytes:
            return
        for key, other in list(self._entries.items()):
            if other.digest == digest and _shared(other.token_ids, entry.token_ids) == len(other.token_ids):
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


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading items are equal."""
    count = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
