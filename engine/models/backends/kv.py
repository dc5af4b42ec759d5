"""The KV slab: keys and values of many rows in one block per layer, written in place.

Layout, per layer: keys and values ``[rows, kv_heads, capacity, head_dim]``. Row r's token at position p lies in slot
p, so masks go by slot and rotary positions by token position, and both are the same number. Rows in use are 0…n−1: a
forward reads a view, never a gathered copy. Capacity doubles when needed; a join or a leave copies one row.

Every layer keeps the whole past, sliding-window layers too (the mask does the window): then a row can be cut or
shared at any length, which the library's own sliding cache does not allow.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from engine.models.hardware.devices import on_device

log = logging.getLogger(__name__)

INITIAL_CAPACITY = 128
"""Slots of a new row; grows by doubling."""


def slots_taken(lengths: Sequence[int]) -> int:
    """Slots of a slab that has grown to hold rows of ``lengths``: rows and capacity are doubled, never less."""
    if not lengths:
        return 0
    return _doubled(1, len(lengths)) * _doubled(INITIAL_CAPACITY, max(lengths))


def _doubled(size: int, needed: int) -> int:
    while size < needed:
        size *= 2
    return size


class SlabLayer(CacheLayerMixin):
    """One layer's keys and values. Writes go where :meth:`KVSlab.begin` said; reads are views of the rows in play."""

    is_sliding = False
    is_croppable = False

    def __init__(self, slab: KVSlab) -> None:
        super().__init__()
        self._slab = slab
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate from the first key and value seen: head counts, head sizes, dtype and device are theirs."""
        rows, slots = self._slab.allocated_rows, self._slab.capacity
        self.keys = key_states.new_zeros((rows, key_states.shape[1], slots, key_states.shape[3]))
        self.values = value_states.new_zeros((rows, value_states.shape[1], slots, value_states.shape[3]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write ``[rows in play, kv_heads, q, head_dim]`` and return all slots up to the longest row in play."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        step = self._slab.step
        if step.width > 1 or step.rows == 1:
            self.keys[: step.rows, :, step.start : step.end] = key_states
            self.values[: step.rows, :, step.start : step.end] = value_states
        else:
            self.keys[step.row_index, :, step.slot_index] = key_states[:, :, 0]
            self.values[step.row_index, :, step.slot_index] = value_states[:, :, 0]
        return self.keys[: step.rows, :, : step.end], self.values[: step.rows, :, : step.end]

    def resize(self, rows: int, capacity: int, used_rows: int, used_slots: int) -> None:
        """Move the used part into a block of another size."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = old.new_zeros((rows, old.shape[1], capacity, old.shape[3]))
            new[:used_rows, :, :used_slots] = old[:used_rows, :, :used_slots]
            setattr(self, name, new)

    def adopt(self, other: SlabLayer, row: int, length: int) -> None:
        """Copy ``other``'s first row, ``length`` slots of it, into ``row``."""
        assert other.keys is not None and other.values is not None
        if not self.is_initialized:
            self.lazy_initialization(other.keys, other.values)
        assert self.keys is not None and self.values is not None
        self.keys[row, :, :length] = other.keys[0, :, :length]
        self.values[row, :, :length] = other.values[0, :, :length]

    def take(self, other: SlabLayer, row: int, length: int) -> None:
        """Hold a copy of ``other``'s ``row``, its first ``length`` slots, in a block that is exactly that large."""
        assert other.keys is not None and other.values is not None
        self.keys = other.keys[row : row + 1, :, :length].clone()
        self.values = other.values[row : row + 1, :, :length].clone()
        self.is_initialized = True

    def move(self, source: int, target: int, length: int) -> None:
        """Copy row ``source`` over row ``target`` of the same block."""
        if not self.is_initialized:
            return
        assert self.keys is not None and self.values is not None
        self.keys[target, :, :length] = self.keys[source, :, :length]
        self.values[target, :, :length] = self.values[source, :, :length]

    def clear(self, row: int, start: int, end: int) -> None:
        """Forget slots of a row. Masked slots still meet the arithmetic, and 0 × NaN is NaN."""
        if not self.is_initialized:
            return
        assert self.keys is not None and self.values is not None
        self.keys[row, :, start:end] = 0
        self.values[row, :, start:end] = 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(key length, offset) of the masks the library would build; ours are given, so this only has to agree."""
        return self._slab.step.end, 0

    def get_seq_length(self) -> int:
        """Slots filled before this step in the longest row in play."""
        return self._slab.step.end - self._slab.step.width

    def get_max_length(self) -> int:
        """−1: the slab grows."""
        return -1

    @property
    def nbytes(self) -> int:
        if not self.is_initialized:
            return 0
        assert self.keys is not None and self.values is not None
        return self.keys.nbytes + self.values.nbytes


class Step:
    """Where one forward reads and writes: rows 0…rows−1, ``width`` new tokens each, starting at ``starts``.

    Rows of different lengths take one token each; rows of one length may take many.
    """

    def __init__(self, starts: Sequence[int], width: int, device: torch.device) -> None:
        self.rows = len(starts)
        self.width = width
        self.start = starts[0]
        self.end = max(starts) + width
        starts_tensor = on_device(starts, device)
        offsets = torch.arange(width, device=device)
        self.positions = starts_tensor[:, None] + offsets[None, :]
        """Token positions ``[rows, width]``."""
        self.row_index = torch.arange(self.rows, device=device)
        self.slot_index = starts_tensor


class KVSlab(Cache):
    """A transformers cache of :class:`SlabLayer`, holding ``lengths`` rows.

    Args:
        n_layers: Decoder layers of the model.
        device: Where the model's inputs live.
        rows: Rows in use at first: 1 for a lane's own store, 0 for the shared batch.
    """

    def __init__(self, n_layers: int, device: torch.device, rows: int) -> None:
        self.device = device
        self.lengths: list[int] = [0] * rows
        self.allocated_rows = max(rows, 1)
        self.capacity = INITIAL_CAPACITY
        self.step = Step([0], 1, device)
        super().__init__(layers=[SlabLayer(self) for _ in range(n_layers)])

    @property
    def slab_layers(self) -> list[SlabLayer]:
        return self.layers

    @property
    def nbytes(self) -> int:
        """Bytes held, spare capacity included."""
        return sum(layer.nbytes for layer in self.slab_layers)

    def begin(self, width: int) -> Step:
        """Plan a forward of ``width`` tokens on every row, growing the block where needed."""
        if width != 1 and len(set(self.lengths)) != 1:
            raise ValueError("rows of different lengths take one token each")
        self.step = Step(self.lengths, width, self.device)
        self._reserve(self.allocated_rows, self.step.end)
        return self.step

    def commit(self) -> None:
        """The planned forward went well: its tokens now belong to the rows."""
        self.lengths = [length + self.step.width for length in self.lengths]

    def cut(self, lengths: Sequence[int]) -> None:
        """Forget what lies past ``lengths``. Such slots are written anew before anyone may look at them."""
        if any(not 0 <= new <= old for new, old in zip(lengths, self.lengths, strict=True)):
            raise ValueError(f"rows of {self.lengths} tokens cannot be cut to {list(lengths)}")
        self.lengths = list(lengths)

    def join(self, other: KVSlab) -> int:
        """Copy the single row of ``other`` to the end; returns its number."""
        (length,) = other.lengths
        row = len(self.lengths)
        self._reserve(_doubled(self.allocated_rows, row + 1), max(length, 1))
        for mine, theirs in zip(self.slab_layers, other.slab_layers, strict=True):
            # Layers that share another layer's KV (Gemma 3n and the like) never fill their own.
            if theirs.is_initialized:
                mine.adopt(theirs, row, length)
        self.lengths.append(length)
        return row

    def fork(self, row: int, length: int) -> KVSlab:
        """A slab of its own with a copy of the first ``length`` tokens of ``row``; not a slot larger than that."""
        if not 0 < length <= self.lengths[row]:
            raise ValueError(f"row {row} holds {self.lengths[row]} tokens, not {length}")
        copy = KVSlab(len(self.slab_layers), self.device, 1)
        copy.lengths = [length]
        copy.capacity = length
        for mine, theirs in zip(copy.slab_layers, self.slab_layers, strict=True):
            if theirs.is_initialized:
                mine.take(theirs, row, length)
        return copy

    def leave(self, row: int) -> None:
        """Remove ``row``; the last row takes its place."""
        last = len(self.lengths) - 1
        kept, old = self.lengths[last], self.lengths[row]
        for layer in self.slab_layers:
            if row != last:
                layer.move(last, row, kept)
                layer.clear(row, kept, old)
            layer.clear(last, 0, kept)
        self.lengths[row] = kept
        self.lengths.pop()
        self._give_back()

    def _give_back(self) -> None:
        """Halve a block of which a quarter would do, so that one long answer does not hold its room for all that come
        after it. Halves, since what is left may grow again: a copy is paid for by as many tokens or leaves before it.
        """
        rows, capacity = self.allocated_rows, self.capacity
        if rows >= 4 * max(1, len(self.lengths)):
            rows //= 2
        if capacity >= 4 * max(INITIAL_CAPACITY, *self.lengths, 1):
            capacity //= 2
        try:
            self._resize(rows, capacity)
        except (RuntimeError, MemoryError) as error:
            # No room for the smaller copy: the layers not reached stay larger than they need be, which harms nothing.
            log.debug("a block of keys and values could not be made smaller: %s", error)

    def _reserve(self, rows: int, slots: int) -> None:
        self._resize(rows, _doubled(self.capacity, slots))

    def _resize(self, rows: int, capacity: int) -> None:
        if rows == self.allocated_rows and capacity == self.capacity:
            return
        used_rows, used_slots = len(self.lengths), max(self.lengths, default=0)
        smaller = rows <= self.allocated_rows and capacity <= self.capacity
        if smaller:
            self.allocated_rows, self.capacity = rows, capacity
        for layer in self.slab_layers:
            layer.resize(rows, capacity, used_rows, used_slots)
        self.allocated_rows, self.capacity = rows, capacity
