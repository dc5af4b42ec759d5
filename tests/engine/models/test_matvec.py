"""Passes of one row in bfloat16: the switch is off inside them alone, and the numbers are as good."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.devices import Placement
from engine.models.matvec import OneRowPasses
from engine.models.residual import PassWork
from engine.models.transformers_backend import TransformersBackend
from tests.conftest import CheckpointMaker

IDS = [5, 91, 23, 77, 140, 8, 61, 200, 31, 12]


def load(path: Path, dtype: torch.dtype) -> TransformersBackend:
    return TransformersBackend.load(path, Placement(torch.device("cpu"), dtype, "test"), lambda share, stage: None)


class Looking:
    """Notes the switch when it is shown a layer."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def observe(self, layer: int, before: torch.Tensor, after: torch.Tensor) -> None:
        self.seen.append(torch._C._get_mkldnn_enabled())


def test_one_row_is_as_near_to_float32_as_the_same_row_among_others(tiny_checkpoint: Path) -> None:
    exact, half = (load(tiny_checkpoint, dtype) for dtype in (torch.float32, torch.bfloat16))
    expected = exact.extend(exact.new_store(), IDS)
    alone = half.new_batch()
    store = half.new_store()
    half.extend(store, IDS[:-1])
    half.join(alone, store)
    pair = half.new_batch()
    half.join(pair, store)
    half.join(pair, store)
    spread = float(expected.std())
    assert float((half.decode(alone, IDS[-1:])[0] - expected).abs().max()) < 0.15 * spread
    assert float((half.decode(pair, IDS[-1:] * 2)[0] - expected).abs().max()) < 0.15 * spread


def test_the_switch_is_on_for_who_reads_along_and_after_a_pass_that_fails(tiny_checkpoint: Path) -> None:
    backend = load(tiny_checkpoint, torch.bfloat16)
    looking = Looking()
    inside: list[bool] = []
    backend._model.model.layers[0].register_forward_hook(
        lambda module, inputs, output: inside.append(torch._C._get_mkldnn_enabled())
    )
    store = backend.new_store()
    backend.extend(store, IDS)
    backend.extend(store, [7], PassWork(observers={1: (looking,)}))
    assert inside == [True, False]
    assert looking.seen == [True]

    def fail(module: object, inputs: object, output: object) -> None:
        raise RuntimeError("midway")

    backend._model.model.layers[2].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="midway"):
        backend.extend(store, [8])
    assert torch._C._get_mkldnn_enabled()


def test_a_model_with_matrices_that_lie_otherwise_is_left_alone(
    checkpoint: CheckpointMaker, tiny_checkpoint: Path
) -> None:
    cpu = torch.device("cpu")
    assert not load(checkpoint("gpt2"), torch.bfloat16)._one_row.applies
    model = load(tiny_checkpoint, torch.bfloat16)._model
    assert OneRowPasses(model, cpu, torch.bfloat16).applies
    assert not OneRowPasses(model, cpu, torch.float32).applies
