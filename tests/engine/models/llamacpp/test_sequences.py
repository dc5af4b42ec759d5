"""Sequences: shared and copied pasts, what is freed and when, and a context that is full."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from engine.errors import InsufficientMemory
from engine.models.backends.backend import RowsRefused
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.llamacpp.store import LlamaStore
from engine.models.backends.residual import Intervention
from tests.engine.models.llamacpp.conftest import BackendMaker

IDS = [262, 399, 369, 81, 381, 300, 301]


class Nobody:
    def observe(self, layer: int, before: object, after: object) -> None: ...


def test_a_store_that_nobody_holds_is_empty_at_once(backend: LlamaCppBackend) -> None:
    before = backend._pool.in_use
    store = backend.new_store()
    backend.extend(store, IDS)
    batch = backend.new_batch()
    backend.join(batch, store)
    assert backend._pool.in_use == before + 2
    del store
    assert backend._pool.in_use == before + 1
    backend.leave(batch, 0)
    assert backend._pool.in_use == before


def test_a_shared_beginning_is_read_once(backend: LlamaCppBackend) -> None:
    plain = backend.extend(backend.new_store(), IDS)
    store = backend.new_store()
    backend.extend(store, IDS)
    fork = backend.fork(store, 0, 4)
    assert fork is not None and fork.lengths == [4]
    assert torch.allclose(backend.extend(fork, IDS[4:]), plain, atol=1e-5)
    assert store.lengths == [7]
    assert torch.allclose(backend.extend(store, [5]), backend.extend(backend.new_store(), [*IDS, 5]), atol=1e-5)


def test_a_spare_copy_that_nobody_holds_is_forgotten(backend: LlamaCppBackend) -> None:
    store = backend.new_store()
    backend.extend(store, IDS)
    copies = [backend.fork(store, 0, 4 + number % 3) for number in range(4)]
    kept = copies[2]
    gone = weakref.ref(copies[0])
    assert len(backend._pool._spare) == 4
    # While a pass is computed nothing is taken back, and the book is put right with the next store.
    with backend._computing():
        copies.clear()
        assert gone() is None
        assert len(backend._pool._spare) == 4
    backend.new_store()
    assert [reference() for reference in backend._pool._spare.values()] == [kept]
    assert kept is not None and kept.lengths == [6]
    for _ in range(20):
        assert backend.fork(store, 0, 5) is not None
    assert len(backend._pool._spare) <= 2
    del kept
    backend.new_store()
    assert not backend._pool._spare


def test_a_spare_copy_made_last_is_emptied_last(backend: LlamaCppBackend) -> None:
    """Whatever id it has: one that was dropped may have had the same."""
    store = backend.new_store()
    backend.extend(store, IDS)
    first, second = backend.fork(store, 0, 4), backend.fork(store, 0, 5)
    assert first is not None and second is not None
    pool = backend._pool
    pool._spare[id(second)] = pool._spare.pop(id(second))
    pool._spare.move_to_end(id(second), last=False)
    pool.mark_spare(second)
    assert pool.make_room()
    assert (first.lengths, second.lengths) == ([], [5])


def test_nothing_of_a_past_may_be_shared(backend: LlamaCppBackend) -> None:
    store = backend.new_store()
    plain = backend.extend(store, IDS)
    context = store.context
    assert context is not None
    target = context.take()
    assert target is not None
    try:
        context.share(store.sequences[0], target, 0)
        assert (context.length(target), context.length(store.sequences[0])) == (0, 7)
        context.share(store.sequences[0], target, 4)
        assert context.length(target) == 4
    finally:
        context.give_back(target)
    # A copy of none of it begins anew.
    fork = backend.fork(store, 0, 0)
    assert fork is not None and fork.lengths == [0]
    assert torch.allclose(backend.extend(fork, IDS), plain, atol=1e-5)


def test_the_same_bytes_again_whoever_else_is_there(backend: LlamaCppBackend) -> None:
    def answer() -> list[torch.Tensor]:
        store = backend.new_store(alone=True, tokens=40)
        found = [backend.extend(store, IDS)]
        for token in range(20):
            found.append(backend.extend(store, [token]))
            others.append(backend.new_store())
            backend.extend(others[-1], IDS[: 1 + token % 7])
            if token % 3 == 0:
                del others[0]
        return found

    others: list[LlamaStore] = []
    first = answer()
    second = answer()
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_copy_of_a_lone_store_is_alone_and_equal(backend: LlamaCppBackend) -> None:
    store = backend.new_store(alone=True, tokens=40)
    backend.extend(store, IDS)
    copy = backend.new_batch()
    backend.join(copy, store)
    assert copy.alone and copy.context is not store.context
    assert torch.equal(backend.extend(copy, [3]), backend.extend(store, [3]))


def test_what_is_under_way_is_carried_over_when_an_sae_comes(make_backend: BackendMaker) -> None:
    backend = make_backend()
    batch = backend.new_batch()
    for length in (3, 5):
        store = backend.new_store()
        backend.extend(store, IDS[:length])
        backend.join(batch, store)
    lone = backend.new_store(alone=True, tokens=20)
    backend.extend(lone, IDS)
    expected = [backend.extend(backend.new_store(), [*IDS[:n], 7]) for n in (3, 5)]
    backend.watch_layers({1})
    work = Intervention(observers={1: (Nobody(),)})
    found = backend.decode(batch, [7, 7], work)
    assert torch.allclose(found, torch.stack(expected), atol=1e-5)
    alone = backend.extend(lone, [7], work)
    assert torch.allclose(alone, backend.extend(backend.new_store(), [*IDS, 7]), atol=1e-5)
    assert backend.passes_steered(1) == 0
    backend.watch_layers(())
    with pytest.raises(ValueError, match="layer 4"):
        backend.watch_layers({4})


def test_a_full_context_ends_the_longest_row_and_no_other(make_backend: BackendMaker) -> None:
    backend = make_backend(GGUF_CONTEXT_LENGTH=256, MAX_LANES=1)
    assert backend.info.context_length == 256
    batch = backend.new_batch()
    for length in (100, 155):
        store = backend.new_store()
        backend.extend(store, [(7 * i) % 400 for i in range(length)])
        backend.join(batch, store)
        del store
    gc.collect()
    with pytest.raises(RowsRefused) as refused:
        backend.decode(batch, [5, 5])
    assert list(refused.value.rows) == [1]
    assert isinstance(refused.value.rows[1], InsufficientMemory)
    assert batch.lengths == [100, 155]
    backend.leave(batch, 1)
    assert backend.decode(batch, [5]).shape == (1, 400)


def test_copies_kept_for_later_give_way(make_backend: BackendMaker) -> None:
    backend = make_backend(GGUF_CONTEXT_LENGTH=256, MAX_LANES=1)
    kept = backend.new_store()
    backend.extend(kept, [(7 * i) % 400 for i in range(200)])
    spare = backend.fork(kept, 0, 200)
    assert spare is not None
    del kept
    assert spare.nbytes > 0
    backend.extend(backend.new_store(), [(3 * i) % 400 for i in range(120)])
    assert spare.nbytes == 0
    assert backend.fork(spare, 0, 10) is None


def test_a_prompt_without_room_is_refused(make_backend: BackendMaker) -> None:
    backend = make_backend(GGUF_CONTEXT_LENGTH=256, MAX_LANES=1)
    held = backend.new_store()
    backend.extend(held, [5] * 200)
    with pytest.raises(InsufficientMemory, match="context of 256 tokens"):
        backend.extend(backend.new_store(), [5] * 100)
    backend.extend(held, [5])
