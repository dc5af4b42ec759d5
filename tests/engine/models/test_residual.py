"""Hooks on the residual stream: what is added is what reaches the logits, row by row, and nothing stays behind.

The reference changes the model itself: the same vector is added inside a wrapped block of a second copy.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.errors import EngineUnsupported
from engine.models.backends.residual import Intervention, ResidualHooks, find_blocks
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from tests.conftest import CheckpointMaker
from tests.tiny import FAMILIES

CPU32 = DevicePlacement(torch.device("cpu"), torch.float32, "test")
IDS = [5, 91, 23, 77, 140, 8, 61, 200, 31]


def no_report(share: float, stage: str) -> None:
    """A load nobody watches."""


def vector(seed: int, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(32, generator=torch.Generator().manual_seed(seed))


class Reference:
    """The library's model with vectors added behind some blocks, at every position but the first."""

    def __init__(self, folder: Any) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        _, self.blocks = find_blocks(self.model, 4)

    def logits(self, ids: list[int], deltas: dict[int, torch.Tensor]) -> torch.Tensor:
        originals = {layer: self.blocks[layer].forward for layer in deltas}
        for layer, delta in deltas.items():
            self.blocks[layer].forward = self._adding(originals[layer], delta)
        try:
            with torch.inference_mode():
                row = torch.tensor([ids])
                return self.model(input_ids=row, attention_mask=torch.ones_like(row), use_cache=False).logits[0, -1]
        finally:
            for layer, original in originals.items():
                self.blocks[layer].forward = original

    @staticmethod
    def _adding(forward: Any, delta: torch.Tensor) -> Any:
        def changed(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            hidden = output[0] if isinstance(output, tuple) else output
            mask = torch.ones(hidden.shape[1], 1)
            mask[0] = 0
            hidden = hidden + mask * delta
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        return changed


@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_gets_its_own_vectors_at_every_layer(family: str, checkpoint: CheckpointMaker) -> None:
    folder = checkpoint(family)
    backend = TransformersBackend.load(folder, CPU32, no_report)
    reference = Reference(folder)
    plans: list[dict[int, torch.Tensor]] = [{}, {0: vector(1)}, {3: vector(2)}, {1: vector(3), 2: vector(4)}]
    batch = backend.new_batch()
    for plan in plans:
        store = backend.new_store()
        work = {layer: delta[None] for layer, delta in plan.items()}
        backend.extend(store, IDS[:3], Intervention(work, unsteered=1))
        logits = backend.extend(store, IDS[3:5], Intervention(work))
        assert torch.allclose(logits, reference.logits(IDS[:5], plan), atol=1e-4)
        backend.join(batch, store)
    stacked = {layer: torch.stack([plan.get(layer, torch.zeros(32)) for plan in plans]) for layer in range(4)}
    for place in range(5, len(IDS)):
        logits = backend.decode(batch, [IDS[place]] * len(plans), Intervention(stacked))
        for row, plan in enumerate(plans):
            assert torch.allclose(logits[row], reference.logits(IDS[: place + 1], plan), atol=1e-4)


def test_a_pass_without_work_is_untouched_after_one_with(checkpoint: CheckpointMaker) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), CPU32, no_report)
    plain = backend.extend(backend.new_store(), IDS)
    steered = backend.extend(backend.new_store(), IDS, Intervention({2: vector(1)[None]}, unsteered=1))
    assert not torch.allclose(plain, steered)
    assert torch.equal(backend.extend(backend.new_store(), IDS), plain)


def test_work_ends_with_a_pass_that_fails(checkpoint: CheckpointMaker) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), CPU32, no_report)
    plain = backend.extend(backend.new_store(), IDS)
    with pytest.raises(RuntimeError):  # it fails in block 3, with what block 2 was to add still on
        backend.extend(backend.new_store(), IDS, Intervention({2: vector(1)[None], 3: vector(1)[None, :7]}))
    assert torch.equal(backend.extend(backend.new_store(), IDS), plain)


def test_an_observer_sees_before_and_after_the_layers_own_vector(checkpoint: CheckpointMaker) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), CPU32, no_report)
    seen: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    class Watcher:
        def observe(self, layer: int, before: torch.Tensor, after: torch.Tensor) -> None:
            seen.append((layer, before.clone(), after.clone()))

    watcher = Watcher()
    delta = vector(5)
    work = Intervention({1: delta[None]}, unsteered=1, observers={1: (watcher,), 2: (watcher,)})
    backend.extend(backend.new_store(), IDS, work)
    (first, before, after), (second, later_before, later_after) = seen
    assert (first, second) == (1, 2)
    assert before.shape == (1, len(IDS), 32)
    assert torch.equal(after[:, 0], before[:, 0])
    assert torch.allclose(after[:, 1:] - before[:, 1:], delta.expand(1, len(IDS) - 1, 32), atol=1e-5)
    assert torch.equal(later_before, later_after)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_stream_read_is_the_librarys_hidden_state(family: str, checkpoint: CheckpointMaker) -> None:
    """``hidden_states[L + 1]`` of the library is the output of block L (the last one apart, which it norms)."""
    backend = TransformersBackend.load(checkpoint(family), CPU32, no_report)
    seen: dict[int, torch.Tensor] = {}

    class Watcher:
        def observe(self, layer: int, before: torch.Tensor, after: torch.Tensor) -> None:
            seen[layer] = before.clone()

    backend.extend(backend.new_store(), IDS, Intervention(observers={layer: (Watcher(),) for layer in range(4)}))
    with torch.inference_mode():
        row = torch.tensor([IDS])
        states = backend._model(
            input_ids=row, attention_mask=torch.ones_like(row), use_cache=False, output_hidden_states=True
        ).hidden_states
    for layer in range(3):
        assert torch.allclose(seen[layer], states[layer + 1], atol=1e-4)


def test_hooks_stand_on_exactly_the_layers_in_use(checkpoint: CheckpointMaker) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), CPU32, no_report)
    hooks: ResidualHooks = backend._hooks
    backend.watch_layers([1, 3])
    assert hooks.layers == {1, 3}
    assert [len(block._forward_hooks) for block in backend._model.model.layers] == [0, 1, 0, 1]
    backend.watch_layers([3])
    assert [len(block._forward_hooks) for block in backend._model.model.layers] == [0, 0, 0, 1]
    with pytest.raises(ValueError, match="layer 4"):
        backend.watch_layers([4])
    assert hooks.layers == {3}


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(EngineUnsupported):
        find_blocks(torch.nn.Linear(2, 2), 4)
