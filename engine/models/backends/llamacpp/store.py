"""Stores: which sequences of which context hold the pasts of some rows, and the pool of contexts behind them.

Answers that decode together share one context. A store that stands *alone* has a context of its own: in a shared one
the place of a token among the cells depends on who else is there, and with it the last bit of a sum, so that a seed
could not promise the same bytes again. A store gives its sequences back when nobody holds it any more.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from engine.checked import there
from engine.errors import InsufficientMemory
from engine.models.backends.llamacpp.context import LlamaContext, cells_for, no_room

log = logging.getLogger(__name__)

LONGEST_KEPT = 4096
"""Cells of a lone context that is kept for the next one that needs no more."""


class LlamaStore:
    """The pasts of some rows. ``lengths[r]`` is the number of tokens row r holds.

    Attributes:
        context: Where they are; None while there are no rows.
        sequences: The sequence of each row.
        alone: Whether the context is its own. ``tokens`` is then what it was made for.
        shared: It never is: the batch of many answers.
    """

    def __init__(self, bytes_per_token: int, *, alone: bool = False, tokens: int = 0) -> None:
        self.context: LlamaContext | None = None
        self.sequences: list[int] = []
        self.lengths: list[int] = []
        self.alone = alone
        self.shared = False
        self.tokens = tokens
        self.finalizer: Any = None
        self._bytes_per_token = bytes_per_token

    @property
    def nbytes(self) -> int:
        """Bytes of the cells it owns, each counted also where another store owns it too."""
        return sum(self.lengths) * self._bytes_per_token


class Pool:
    """Makes contexts, hands out sequences, and takes them back. Engine thread only, but for a store that is dropped.

    Args:
        make: Makes a context of (cells, sequences, tapped).
        cells, sequences: Of the shared context.
    """

    def __init__(
        self, make: Callable[[int, int, bool], LlamaContext], *, cells: int, sequences: int, bytes_per_token: int
    ) -> None:
        self._make = make
        self._cells = cells
        self._sequences = sequences
        self._bytes_per_token = bytes_per_token
        self._tapped = False
        self._shared: LlamaContext = make(cells, sequences, False)
        self._old: list[LlamaContext] = []
        self._kept: LlamaContext | None = None
        self._stores: weakref.WeakSet[LlamaStore] = weakref.WeakSet()
        # Copies that may be taken away again when room is short, the one unused longest first.
        self._spare: OrderedDict[int, weakref.ref[LlamaStore]] = OrderedDict()
        self._dropped: deque[tuple[LlamaContext | None, list[int], bool]] = deque()
        self._thread: int | None = None
        self.busy = False
        """A pass is being computed: nothing may be taken back meanwhile, whatever the garbage collector finds."""

    # --- stores -----------------------------------------------------------------------------------------------------

    def new(self, *, alone: bool = False, tokens: int = 0) -> LlamaStore:
        """A store of one empty row. Raises :class:`InsufficientMemory` when no sequence is left."""
        store = self.empty(alone=alone, tokens=tokens)
        self.add_row(store)
        return store

    def empty(self, *, alone: bool = False, tokens: int = 0) -> LlamaStore:
        self._thread = threading.get_ident()
        self.reclaim()
        store = LlamaStore(self._bytes_per_token, alone=alone, tokens=tokens)
        self._stores.add(store)
        return store

    def add_row(self, store: LlamaStore) -> int:
        """An empty row at the end of ``store``; returns its number. Raises as :meth:`new`."""
        if store.context is None:
            self._put(store, self._lone(store.tokens) if store.alone else self._shared)
        store.sequences.append(self._sequence(there(store.context)))
        store.lengths.append(0)
        return len(store.lengths) - 1

    def remove_row(self, store: LlamaStore, row: int) -> None:
        """Give a row's sequence back; the last row takes its number."""
        there(store.context).give_back(store.sequences[row])
        last = len(store.sequences) - 1
        store.sequences[row], store.lengths[row] = store.sequences[last], store.lengths[last]
        store.sequences.pop()
        store.lengths.pop()

    def copy_row(self, source: LlamaStore, row: int, target: LlamaStore, length: int | None = None) -> bool:
        """Copy a row, or its first ``length`` tokens, to a new row of ``target``; False when there is no room.

        Costs nothing inside one context.
        """
        place = self.add_row(target)
        old, new = there(source.context), there(target.context)
        theirs, mine = source.sequences[row], target.sequences[place]
        if old is new:
            old.share(theirs, mine, length)
        elif (length is not None and length < source.lengths[row]) or not new.copy_from(old, theirs, mine):
            self.remove_row(target, place)
            return False
        target.lengths[place] = source.lengths[row] if length is None else length
        return True

    # --- spare copies -----------------------------------------------------------------------------------------------

    def mark_spare(self, store: LlamaStore) -> None:
        """``store`` is kept in case it is wanted: it may be emptied when room is short."""
        # A store that was dropped a moment ago may have had the same id, and an earlier place.
        self._spare.pop(id(store), None)
        self._spare[id(store)] = weakref.ref(store)

    def use(self, store: LlamaStore) -> bool:
        """``store`` is wanted now. False when it has been emptied meanwhile."""
        self._spare.pop(id(store), None)
        return bool(store.sequences)

    @staticmethod
    def has(store: LlamaStore) -> bool:
        """Whether ``store`` still holds its rows."""
        return bool(store.sequences)

    def make_room(self) -> bool:
        """Empty the spare copy unused longest; False when there is none."""
        while self._spare:
            _, reference = self._spare.popitem(last=False)
            store = reference()
            if store is not None and store.sequences:
                while store.sequences:
                    self.remove_row(store, len(store.sequences) - 1)
                return True
        return False

    # --- taps -------------------------------------------------------------------------------------------------------

    def tap(self, wanted: bool) -> None:
        """Have passes looked into from now on, or not. What is under way is carried over to where they are."""
        if wanted == self._tapped:
            return
        if not wanted:
            # Only when nobody is there: being looked into costs little, carrying over costs more.
            self.reclaim()
            if self._shared.in_use:
                return
        self._tapped = wanted
        old, self._shared = self._shared, self._make(self._cells, self._sequences, wanted)
        self._old.append(old)
        self._close_kept()
        for store in list(self._stores):
            if store.context is old and not store.alone:
                try:
                    self._carry_over(store)
                except InsufficientMemory:
                    # It stays where it is, and is asked again when it is to be looked into.
                    log.warning("an answer under way found no room in the context that SAEs look into")
        self._close_empty()

    def ensure_tapped(self, store: LlamaStore) -> None:
        """See that the passes of ``store`` can be looked into. Raises :class:`InsufficientMemory`."""
        if store.context is not None and store.context.tap is not None:
            return
        if store.alone:
            self._replace_lone(store)
            return
        self.tap(True)
        if store.context is not None and store.context is not self._shared:
            self._carry_over(store)

    def _carry_over(self, store: LlamaStore) -> None:
        """Move a store of the old shared context to the new one, whole or not at all."""
        old, new = there(store.context), self._shared
        moved: list[int] = []
        for sequence, length in zip(tuple(store.sequences), tuple(store.lengths), strict=True):
            moved.append(self._sequence(new))
            while store.sequences and length and not new.copy_from(old, sequence, moved[-1]):
                if not self.make_room():
                    for each in moved:
                        new.give_back(each)
                    raise no_room(length, new.cells)
        if not store.sequences:
            # It was a spare copy, and made room for others.
            for each in moved:
                new.give_back(each)
            return
        for sequence in store.sequences:
            old.give_back(sequence)
        store.sequences[:] = moved
        self._put(store, new)
        self._close_empty()

    def _replace_lone(self, store: LlamaStore) -> None:
        old = there(store.context)
        new = self._make(max(old.cells, cells_for(store.tokens)), 1, True)
        target = there(new.take())
        if store.lengths[0] and not new.copy_from(old, store.sequences[0], target):
            new.close()
            raise no_room(store.lengths[0], old.cells)
        old.close()
        store.sequences[:] = [target]
        self._put(store, new)

    def _put(self, store: LlamaStore, context: LlamaContext) -> None:
        """``store`` is in ``context`` from now on, and gives back to it what it holds when it is dropped."""
        if store.finalizer is not None:
            store.finalizer.detach()
        store.context = context
        store.finalizer = weakref.finalize(store, self._drop, context, store.sequences, store.alone)
        store.finalizer.atexit = False

    # --- taking back ------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> int:
        """Sequences of the shared context that hold something."""
        self.reclaim()
        return self._shared.in_use

    def reclaim(self) -> None:
        """Take back what dropped stores held."""
        if self.busy or not self._dropped:
            return
        while self._dropped:
            context, sequences, alone = self._dropped.popleft()
            self._take_back(context, sequences, alone)
        for key in [key for key, reference in self._spare.items() if reference() is None]:
            del self._spare[key]

    def close(self) -> None:
        self.reclaim()
        for store in list(self._stores):
            if store.alone and store.context is not None:
                store.context.close()
        for context in (self._shared, *self._old):
            context.close()
        self._close_kept()

    def _drop(self, context: LlamaContext | None, sequences: list[int], alone: bool) -> None:
        """A store is gone. It may have been dropped on any thread; contexts belong to the engine thread."""
        self._dropped.append((context, sequences, alone))
        if threading.get_ident() == self._thread:
            self.reclaim()

    def _take_back(self, context: LlamaContext | None, sequences: list[int], alone: bool) -> None:
        if context is None or context.closed:
            return
        if alone:
            for sequence in sequences:
                context.give_back(sequence)
            if self._kept is None and context.cells <= LONGEST_KEPT and (context.tap is not None) == self._tapped:
                context.clear()
                self._kept = context
            else:
                context.close()
            return
        for sequence in sequences:
            context.give_back(sequence)
        self._close_empty()

    def _sequence(self, context: LlamaContext) -> int:
        while (found := context.take()) is None:
            if not self.make_room():
                raise no_room(1, context.cells)
        return found

    def _lone(self, tokens: int) -> LlamaContext:
        cells = cells_for(tokens)
        kept = self._kept
        if kept is not None and kept.cells >= cells and (kept.tap is not None) == self._tapped:
            self._kept = None
            return kept
        self._close_kept()
        return self._make(max(cells, min(LONGEST_KEPT // 4, self._cells)), 1, self._tapped)

    def _close_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _close_empty(self) -> None:
        for context in [each for each in self._old if not each.in_use]:
            context.close()
            self._old.remove(context)
