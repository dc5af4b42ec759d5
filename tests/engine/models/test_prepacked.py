"""Weights arranged at load: the same model, in the same room, with rows that do not depend on their company."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import Embedding, Linear, Module, Parameter
from transformers import AutoModelForCausalLM

from engine.models.backends import prepacked as packed
from engine.models.backends.prepacked import PackedEmbedding, PackedLinear, PackedWeight, pack
from engine.models.backends.residual import Intervention
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from tests.conftest import CheckpointMaker
from tests.tiny import FAMILIES

IDS = [5, 91, 23, 77, 140, 8, 61, 200, 31, 12]
CPU = torch.device("cpu")
needs_onednn = pytest.mark.skipif(not packed._supported(torch.float32), reason="no oneDNN in this torch")
needs_bfloat16 = pytest.mark.skipif(not packed._supported(torch.bfloat16), reason="no bfloat16 arithmetic here")
FORMATS = [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)]


def load(path: Path, dtype: torch.dtype) -> TransformersBackend:
    return TransformersBackend.load(path, DevicePlacement(CPU, dtype, "test"), lambda share, stage: None)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


@needs_onednn
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("outputs", "inputs"), [(576, 576), (192, 576), (576, 1536), (200, 72)])
def test_a_row_has_the_same_bits_in_any_company(outputs: int, inputs: int, dtype: torch.dtype) -> None:
    weight, bias = drawn(outputs, inputs, dtype=dtype), drawn(outputs, dtype=dtype)
    rows = drawn(256, inputs, dtype=dtype)
    arranged = PackedWeight(weight)
    everyone = arranged.product(rows, bias)
    exact = rows.double() @ weight.double().T + bias.double()
    assert float((everyone.double() - exact).abs().max()) < (1e-5 if dtype is torch.float32 else 1e-2) * float(
        exact.abs().max()
    )
    for count in (1, 2, 3, 5, 16, 20, 64):
        assert torch.equal(arranged.product(rows[:count], bias), everyone[:count]), count
    assert torch.equal(arranged.product(rows.view(16, 16, inputs), bias).view(256, outputs), everyone)
    assert torch.equal(arranged.product(rows[None, :1], bias), everyone[None, :1])
    strided = torch.cat((rows, rows), dim=1)[:, :inputs]
    assert torch.equal(arranged.product(strided, bias), everyone)
    assert torch.equal(arranged.plain(), weight)


@needs_onednn
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("tokens", [64, 300, 8200])
def test_the_embedding_reads_its_rows_out_of_the_arranged_weight(tokens: int, dtype: torch.dtype) -> None:
    weight = drawn(tokens, 72, dtype=dtype)
    embedding = Embedding(tokens, 72, padding_idx=0, dtype=dtype)
    embedding.weight = Parameter(weight.clone(), requires_grad=False)
    arranged = PackedWeight(weight)
    memory = arranged.readable()
    assert memory is not None
    reading = PackedEmbedding(embedding, arranged, memory)
    ids = torch.tensor([[0, 1, 63], [tokens - 1, 17, 17]])
    assert torch.equal(reading(ids), weight[ids])
    assert torch.equal(reading.weight, weight)
    assert sum(parameter.nbytes for parameter in reading.parameters()) == 0


@needs_onednn
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_what_it_did(family: str, dtype: torch.dtype, checkpoint: CheckpointMaker) -> None:
    folder = checkpoint(family)
    plain: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    backend = load(folder, dtype)
    if family != "gpt2":
        assert any(isinstance(module, PackedLinear) for module in backend._model.modules())
    assert type(backend._model.get_output_embeddings()) is PackedLinear
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([IDS]), use_cache=False).logits[0].float()
    found = backend.extend_all(backend.new_store(), IDS)
    spread = float(expected.std())
    assert float((found - expected).abs().max()) < (1e-4 if dtype is torch.float32 else 0.1) * spread
    parameters = list(plain.parameters())
    assert backend.info.num_parameters == plain.num_parameters()
    assert backend.info.memory_bytes >= sum(parameter.nbytes for parameter in parameters)


@needs_onednn
@pytest.mark.parametrize("dtype", FORMATS)
def test_one_row_alone_and_among_others(dtype: torch.dtype, tiny_checkpoint: Path) -> None:
    backend = load(tiny_checkpoint, dtype)
    store = backend.new_store()
    backend.extend(store, IDS[:-1])
    alone, several = backend.new_batch(), backend.new_batch()
    backend.join(alone, store)
    for _ in range(5):
        backend.join(several, store)
    one = backend.decode(alone, [12])[0]
    spread = float(one.std())
    for row in backend.decode(several, [12, 7, 7, 7, 12])[[0, 4]]:
        assert float((row - one).abs().max()) < (1e-5 if dtype is torch.float32 else 0.05) * spread


@needs_onednn
def test_a_pass_that_fails_between_siblings_leaves_nothing_for_the_next(tiny_checkpoint: Path) -> None:
    backend = load(tiny_checkpoint, torch.float32)
    expected = backend.extend(backend.new_store(), IDS)

    def fail(module: Module, inputs: object, output: object) -> None:
        raise RuntimeError("midway")

    handle = backend._model.model.layers[1].self_attn.k_proj.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="midway"):
        backend.extend(backend.new_store(), [8, 9], Intervention())
    handle.remove()
    assert torch.equal(backend.extend(backend.new_store(), IDS), expected)


@needs_onednn
def test_what_asks_for_a_weight_gets_the_plain_one(tiny_checkpoint: Path) -> None:
    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    model = load(tiny_checkpoint, torch.float32)._model
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        mine = getattr(model.model.layers[1].self_attn, name)
        assert torch.equal(mine.weight, getattr(plain.model.layers[1].self_attn, name).weight)
    assert torch.equal(model.model.embed_tokens.weight, plain.model.embed_tokens.weight)


def test_layers_of_other_kinds_and_formats_stay() -> None:
    class Special(Linear):
        """Stands for a quantised layer."""

    model: Any = Module()
    model.special, model.half = Special(64, 64), Linear(64, 64, dtype=torch.float16)
    before = [type(module) for module in model.modules()]
    assert pack(model, CPU, torch.float32).products == 0
    assert pack(model, CPU, torch.float16).products == 0
    assert pack(model, torch.device("meta"), torch.float32).products == 0
    assert [type(module) for module in model.modules()] == before


@needs_onednn
def test_a_torch_that_multiplies_otherwise_is_found_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = PackedWeight.product
    monkeypatch.setattr(PackedWeight, "product", lambda self, states, bias: honest(self, states, bias) * 1.01)
    model: Any = Module()
    model.layer = Linear(64, 64, bias=False).requires_grad_(False)
    with caplog.at_level(logging.WARNING):
        assert pack(model, CPU, torch.float32).products == 0
    assert type(model.layer) is Linear
    assert "left as they are" in caplog.text
    caplog.clear()
