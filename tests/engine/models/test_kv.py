"""The slab itself: what a leaver leaves behind, and that a closed backend lets go of its weights."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.backends.kv import KVSlab
from engine.models.backends.prepacked import PackedLinear
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement

CPU32 = DevicePlacement(torch.device("cpu"), torch.float32, "test")


def no_report(share: float, stage: str) -> None:
    """A load nobody watches."""


def test_a_leavers_broken_numbers_reach_nobody(tiny_checkpoint: Path) -> None:
    """Masked slots still enter the arithmetic, and 0 × NaN is NaN: a freed slot must hold none."""
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    ids = [5, 91, 23, 77, 140, 8, 61, 200, 31, 12]
    batch = backend.new_batch()
    for length in (8, 9, 3):
        store = backend.new_store()
        backend.extend(store, ids[:length])
        backend.join(batch, store)
    assert isinstance(batch, KVSlab)
    with torch.inference_mode():
        for layer in batch.slab_layers:
            assert layer.keys is not None
            assert layer.values is not None
            layer.keys[0, :, :8] = float("nan")
            layer.values[0, :, :8] = float("nan")
    backend.leave(batch, 0)
    short = backend.new_store()
    backend.extend(short, ids[:2])
    backend.join(batch, short)
    logits = backend.decode(batch, [1, 2, 3])
    assert bool(torch.isfinite(logits).all())
    assert batch.lengths == [4, 10, 3]


def test_a_closed_backend_lets_go_of_its_weights(tiny_checkpoint: Path) -> None:
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    backend.watch_layers([1])
    gone: list[weakref.ref[Any]] = [weakref.ref(parameter) for parameter in backend._model.parameters()]
    gone += [weakref.ref(module) for module in backend._model.modules()]
    gone += [weakref.ref(each._product.packed) for each in backend._model.modules() if isinstance(each, PackedLinear)]
    assert len(gone) > 20
    backend.close()
    gc.collect()
    assert [ref for ref in gone if ref() is not None] == []


@pytest.mark.parametrize("row", [0, 1, 2])
def test_rows_stay_whole_when_one_leaves(row: int, tiny_checkpoint: Path) -> None:
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    ids = [5, 91, 23, 77, 140, 8, 61]
    batch = backend.new_batch()
    alone = {}
    for length in (2, 6, 4):
        store = backend.new_store()
        backend.extend(store, ids[:length])
        backend.join(batch, store)
        alone[length] = backend.extend(store, [9])
    lengths = [2, 6, 4]
    backend.leave(batch, row)
    lengths[row] = lengths[-1]
    lengths.pop()
    logits = backend.decode(batch, [9, 9])
    for place, length in enumerate(lengths):
        assert torch.allclose(logits[place], alone[length], atol=1e-5)


def test_a_fork_goes_on_like_a_text_read_anew(tiny_checkpoint: Path) -> None:
    """From a row of a batch and from a lane's store; what was forked stays as it was, bit for bit."""
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    ids = [5, 91, 23, 77, 140, 8, 61, 200, 31, 12]
    batch = backend.new_batch()
    for length in (4, 10):
        store = backend.new_store()
        backend.extend(store, ids[:length])
        backend.join(batch, store)
    anew = backend.new_store()
    backend.extend(anew, ids[:7])
    expected = backend.extend(anew, [9, 33])
    fork = backend.fork(batch, 1, 7)
    assert isinstance(fork, KVSlab)
    assert (fork.lengths, fork.capacity) == ([7], 7)
    again = backend.fork(fork, 0, 7)
    assert again is not None
    assert torch.allclose(backend.extend(fork, [9, 33]), expected, atol=1e-5)
    assert fork.lengths == [9]
    assert torch.allclose(backend.extend(again, [9, 33]), expected, atol=1e-5)
    assert batch.lengths == [4, 10]


def test_a_fork_past_the_row_is_refused(tiny_checkpoint: Path) -> None:
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    store = backend.new_store()
    backend.extend(store, [5, 91, 23])
    with pytest.raises(ValueError, match="holds 3 tokens, not 4"):
        backend.fork(store, 0, 4)


def test_a_block_is_made_smaller_when_the_long_and_the_many_have_left(tiny_checkpoint: Path) -> None:
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    ids = [(7 * place + 3) % 300 for place in range(600)]
    batch = backend.new_batch()
    for length in (600, 5, 9, 4, 7, 3):
        store = backend.new_store()
        backend.extend(store, ids[:length])
        backend.join(batch, store)
    assert isinstance(batch, KVSlab)
    assert (batch.allocated_rows, batch.capacity) == (8, 1024)
    for row in (0, 4, 3, 2):
        backend.leave(batch, row)
    # A quarter of the rows is in use, and much less of the slots: both are halved, and halved again as more leave.
    assert (batch.lengths, batch.allocated_rows, batch.capacity) == ([3, 5], 4, 256)
    kept = batch.slab_layers[0].keys
    assert kept is not None and kept.shape[0] == 4 and kept.shape[2] == 256
    anew = [backend.new_store(), backend.new_store()]
    for store, length in zip(anew, (3, 5), strict=True):
        backend.extend(store, ids[:length])
    logits = backend.decode(batch, [9, 9])
    for row, store in enumerate(anew):
        assert torch.allclose(logits[row], backend.extend(store, [9]), atol=1e-5)
