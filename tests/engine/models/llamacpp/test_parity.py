"""The same weights through llama.cpp and through transformers: equal numbers, steered at any layer or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.errors import EngineUnsupported
from engine.models.backends.llamacpp.backend import LlamaCppBackend
from engine.models.backends.residual import Intervention
from engine.models.backends.transformers_backend import TransformersBackend
from tests.engine.models.llamacpp.conftest import BackendMaker

IDS = [262, 399, 369, 81, 381, 300, 301]
CLOSE = 1e-4
"""Logits of the tiny model are about 2 in size; both engines compute in float32, in another order."""


def vectors(rows: int, seed: int, size: float = 2.0) -> Tensor:
    return size * torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed))


class Watcher:
    def __init__(self) -> None:
        self.seen: dict[int, tuple[Tensor, Tensor]] = {}

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        self.seen[layer] = (before.clone(), after.clone())


def read(backend: Any, ids: list[int], work: Intervention | None = None) -> Tensor:
    logits: Tensor = backend.extend(backend.new_store(), ids, work)
    return logits


def test_logits_without_steering(backend: LlamaCppBackend, reference: TransformersBackend) -> None:
    assert torch.allclose(read(backend, IDS), read(reference, IDS), atol=CLOSE)


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
def test_a_steered_prompt(backend: LlamaCppBackend, reference: TransformersBackend, layer: int) -> None:
    work = Intervention({layer: vectors(1, layer)}, unsteered=1)
    found, expected = read(backend, IDS, work), read(reference, IDS, work)
    assert torch.allclose(found, expected, atol=CLOSE)
    assert float((expected - read(reference, IDS)).abs().max()) > 0.5


def test_all_layers_at_once_and_the_first_position_too(
    backend: LlamaCppBackend, reference: TransformersBackend
) -> None:
    work = Intervention({layer: vectors(1, 9 + layer, 0.5) for layer in range(4)})
    assert torch.allclose(read(backend, IDS, work), read(reference, IDS, work), atol=CLOSE)


@pytest.mark.parametrize("length", [1, 2])
def test_nothing_is_added_to_a_first_position_that_is_left_alone(backend: LlamaCppBackend, length: int) -> None:
    work = Intervention({3: vectors(1, 3)}, unsteered=1)
    moved = float((read(backend, IDS[:length], work) - read(backend, IDS[:length])).abs().max())
    assert (moved == 0.0) == (length == 1)


def test_a_prompt_longer_than_one_call(make_backend: BackendMaker, reference: TransformersBackend) -> None:
    small = make_backend(PREFILL_CHUNK=1, MAX_LANES=1)  # a call then takes 64 tokens
    ids = [(7 * place) % 400 for place in range(150)]
    watcher, theirs = Watcher(), Watcher()
    work = Intervention({0: vectors(1, 1), 3: vectors(1, 2)}, 1, {3: (watcher,), 1: (watcher,)})
    same = Intervention(work.deltas, 1, {3: (theirs,), 1: (theirs,)})
    assert torch.allclose(read(small, ids, work), read(reference, ids, same), atol=CLOSE)
    for layer in (1, 3):
        for mine, other in zip(watcher.seen[layer], theirs.seen[layer], strict=True):
            assert mine.shape == other.shape == (1, 150, 32)
            assert torch.allclose(mine, other, atol=CLOSE)


def test_every_layer_is_seen_before_and_after_its_own_vector(
    backend: LlamaCppBackend, reference: TransformersBackend
) -> None:
    mine, theirs = Watcher(), Watcher()
    deltas = {0: vectors(1, 4), 2: vectors(1, 5), 3: vectors(1, 6)}
    read(backend, IDS, Intervention(deltas, 1, dict.fromkeys(range(4), (mine,))))
    read(reference, IDS, Intervention(deltas, 1, dict.fromkeys(range(4), (theirs,))))
    assert sorted(mine.seen) == [0, 1, 2, 3]
    for layer in range(4):
        for found, expected in zip(mine.seen[layer], theirs.seen[layer], strict=True):
            assert torch.allclose(found, expected, atol=CLOSE)


def test_rows_of_one_step_have_vectors_of_their_own(backend: LlamaCppBackend, reference: TransformersBackend) -> None:
    def step(engine: Any) -> list[Tensor]:
        batch = engine.new_batch()
        for length in (2, 3, 4):
            store = engine.new_store()
            engine.extend(store, IDS[:length])
            engine.join(batch, store)
        deltas = {0: vectors(3, 1), 1: vectors(3, 2), 3: vectors(3, 3)}
        for delta in deltas.values():
            delta[1] = 0
        watcher = Watcher()
        first = engine.decode(batch, [5, 6, 7], Intervention(deltas, observers={1: (watcher,)}))
        engine.leave(batch, 0)
        second = engine.decode(batch, [8, 9], Intervention({layer: each[:2] for layer, each in deltas.items()}))
        return [first, second, *watcher.seen[1]]

    for found, expected in zip(step(backend), step(reference), strict=True):
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=CLOSE)


def test_prompts_read_together(backend: LlamaCppBackend, reference: TransformersBackend) -> None:
    work = Intervention({0: vectors(2, 1), 3: vectors(2, 2)}, unsteered=1)
    prompts = [IDS, IDS[:3]]
    stores, found = backend.read_together(prompts, work)
    _, expected = reference.read_together(prompts, work)
    assert torch.allclose(found, expected, atol=CLOSE)
    assert [store.lengths for store in stores] == [[7], [3]]


def test_states_after_the_final_norm(backend: LlamaCppBackend, reference: TransformersBackend) -> None:
    found = backend.hidden(backend.new_store(alone=True, tokens=7), IDS)
    expected = reference.hidden(reference.new_store(), IDS)
    assert found.shape == (7, 32)
    assert torch.allclose(found, expected, atol=CLOSE)
    # The generation's numbers are right again afterwards.
    assert torch.allclose(read(backend, IDS), read(reference, IDS), atol=CLOSE)


def test_by_way_of_copies_where_memory_cannot_be_edited(
    make_backend: BackendMaker, reference: TransformersBackend
) -> None:
    backend = make_backend()
    work = Intervention({0: vectors(1, 7), 3: vectors(1, 8)}, unsteered=1)
    backend.watch_layers({0, 3})
    for tap in backend._taps:
        tap._direct = False  # as it is with weights on a GPU
    assert torch.allclose(read(backend, IDS, work), read(reference, IDS, work), atol=CLOSE)


def test_by_control_vector(make_backend: BackendMaker, reference: TransformersBackend) -> None:
    from engine.errors import EngineUnsupported
    from engine.models.backends.llamacpp.control_vector import ControlVector

    backend = make_backend()
    backend._control = ControlVector(backend._model)  # as it is where the graph cannot be edited
    work = Intervention({1: vectors(1, 1), 3: vectors(1, 2)}, unsteered=1)
    assert torch.allclose(read(backend, IDS, work), read(reference, IDS, work), atol=CLOSE)
    batch, theirs = backend.new_batch(), reference.new_batch()
    for length in (2, 3, 4):
        for engine, rows in ((backend, batch), (reference, theirs)):
            store = engine.new_store()
            engine.extend(store, IDS[:length])
            engine.join(rows, store)
    delta = vectors(3, 5)
    delta[1] = delta[0]
    delta[2] = 0
    step = Intervention({2: delta})
    assert torch.allclose(backend.decode(batch, [5, 6, 7], step), reference.decode(theirs, [5, 6, 7], step), atol=CLOSE)
    assert torch.allclose(read(backend, IDS), read(reference, IDS), atol=CLOSE)
    with pytest.raises(EngineUnsupported):
        read(backend, IDS, Intervention({0: vectors(1, 1)}))


def test_what_it_does_not_offer_is_refused(backend: LlamaCppBackend) -> None:
    # Also under -O: somebody who looks on must not be left without what was asked.
    with pytest.raises(EngineUnsupported):
        backend.read_together([[1, 2], [3]], Intervention(observers={1: (Watcher(),)}))


@pytest.mark.parametrize("steered", [False, True])
def test_logits_after_every_token(make_backend: BackendMaker, reference: TransformersBackend, steered: bool) -> None:
    small = make_backend(PREFILL_CHUNK=1, MAX_LANES=1)  # a call then takes 64 tokens
    ids = [(7 * place) % 400 for place in range(150)]
    work = Intervention({2: vectors(1, 4)}, 1) if steered else None
    store = small.new_store(alone=True, tokens=151)
    found = small.extend_all(store, ids, work)
    assert found.shape == (150, 400)
    assert torch.allclose(found, reference.extend_all(reference.new_store(), ids, work), atol=CLOSE)
    assert torch.equal(small.extend(store, [5], work), small.extend_all(_again(small, ids, work), [5], work)[0])


def _again(backend: LlamaCppBackend, ids: list[int], work: Intervention | None) -> Any:
    store = backend.new_store(alone=True, tokens=151)
    backend.extend(store, ids, work)
    return store


def test_a_lone_store_joins_a_batch_of_many(backend: LlamaCppBackend) -> None:
    lone = backend.new_store(alone=True, tokens=8)
    backend.extend(lone, IDS[:3])
    copied, shared = backend.new_batch(), backend.new_batch(shared=True)
    for batch in (copied, shared):
        backend.join(batch, lone)
    assert (copied.alone, shared.alone) == (True, False)
    assert torch.equal(backend.decode(copied, [5])[0], backend.extend(lone, [5]))
    assert torch.allclose(backend.decode(shared, [5]), backend.decode(backend_batch(backend), [5]), atol=CLOSE)


def backend_batch(backend: LlamaCppBackend) -> Any:
    store, batch = backend.new_store(), backend.new_batch()
    backend.extend(store, IDS[:3])
    backend.join(batch, store)
    return batch
