"""Batched decoding equals the library's own forward, for every family, while rows join and leave.

The reference is one plain forward of the whole row without a cache: no code of ours takes part in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.backends import transformers_backend
from engine.models.backends.kv import INITIAL_CAPACITY, KVSlab
from engine.models.backends.transformers_backend import LibraryStore, TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from tests.conftest import CheckpointMaker
from tests.tiny import FAMILIES, build_checkpoint

TOLERANCE = 1e-4
CPU32 = DevicePlacement(torch.device("cpu"), torch.float32, "test")


def no_report(share: float, stage: str) -> None:
    """A load nobody watches."""


class Rows:
    """Rows of known tokens in one batch, each checked against the plain forward at every step."""

    def __init__(self, folder: Path) -> None:
        self.backend = TransformersBackend.load(folder, CPU32, no_report)
        self.reference: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.batch = self.backend.new_batch()
        self.order: list[int] = []
        self.position: dict[int, int] = {}
        self.worst = 0.0
        draw = torch.Generator().manual_seed(7)
        self.ids = [torch.randint(4, 390, (INITIAL_CAPACITY + 60,), generator=draw).tolist() for _ in range(5)]

    def check(self, row: int, logits: torch.Tensor) -> None:
        with torch.inference_mode():
            ids = torch.tensor([self.ids[row][: self.position[row]]])
            expected = self.reference(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0, -1]
        self.worst = max(self.worst, float((expected - logits).abs().max()))

    def join(self, row: int, length: int, chunk: int = 7) -> None:
        store = self.backend.new_store()
        for start in range(0, length, chunk):
            logits = self.backend.extend(store, self.ids[row][start : min(length, start + chunk)])
        self.position[row] = length
        self.check(row, logits)
        self.backend.join(self.batch, store)
        self.order.append(row)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            logits = self.backend.decode(self.batch, [self.ids[row][self.position[row]] for row in self.order])
            for place, row in enumerate(self.order):
                self.position[row] += 1
                self.check(row, logits[place])

    def leave(self, row: int) -> None:
        place = self.order.index(row)
        self.backend.leave(self.batch, place)
        self.order[place] = self.order[-1]
        self.order.pop()


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_joining_and_leaving_match_the_plain_forward(family: str, checkpoint: CheckpointMaker) -> None:
    rows = Rows(checkpoint(family))
    assert rows.backend.capabilities.batching
    rows.join(0, 3)
    rows.step(2)
    rows.join(1, 2)
    rows.step(2)
    rows.join(2, 30)
    rows.step(2)
    rows.leave(0)
    rows.step(2)
    rows.join(3, INITIAL_CAPACITY - 3)  # the next steps outgrow the first block
    rows.leave(1)
    rows.step(6)
    rows.join(4, 1)
    rows.step(3)
    rows.leave(2)
    rows.leave(4)
    rows.step(2)
    assert rows.worst < TOLERANCE


def test_long_prompt_in_chunks_outgrows_the_first_block(tiny_checkpoint: Path) -> None:
    rows = Rows(tiny_checkpoint)
    rows.join(0, INITIAL_CAPACITY + 50, chunk=64)
    rows.step(3)
    assert rows.worst < TOLERANCE
    assert isinstance(rows.batch, KVSlab)
    assert rows.batch.capacity == 2 * INITIAL_CAPACITY


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_nobody_proved_is_compared_when_it_is_loaded(
    family: str, checkpoint: CheckpointMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_backend, "PROVEN", frozenset())
    assert TransformersBackend.load(checkpoint(family), CPU32, no_report).capabilities.batching


def test_a_family_whose_batched_logits_differ_decodes_alone(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask that hides the past stands for any model that does not do what its neighbours do."""
    monkeypatch.setattr(transformers_backend, "PROVEN", frozenset())
    honest = transformers_backend.step_masks

    def blinded(*args: Any, **kwargs: Any) -> Any:
        mask = honest(*args, **kwargs).clone()
        mask[..., 0] = False
        mask[..., -1] = True
        return mask

    monkeypatch.setattr(transformers_backend, "step_masks", blinded)
    backend = TransformersBackend.load(tiny_checkpoint, CPU32, no_report)
    assert not backend.capabilities.batching
    assert "changed its logits" in (backend.capabilities.reason or "")
    assert backend.info.backend_word == "serial"


def test_state_space_layers_run_alone_on_the_library_cache(tmp_path: Path) -> None:
    import transformers

    build_checkpoint(tmp_path)  # for its tokenizer
    config = transformers.Qwen3NextConfig
    shape = {
        "vocab_size": AutoConfig.from_pretrained(tmp_path).vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    }
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**shape)).eval()
    model.save_pretrained(tmp_path)
    backend = TransformersBackend.load(tmp_path, CPU32, no_report)
    assert not backend.capabilities.batching
    assert "linear_attention" in (backend.capabilities.reason or "")
    store = backend.new_store()
    assert isinstance(store, LibraryStore)
    ids = [5, 9, 23, 77, 140, 8, 61]
    backend.extend(store, ids[:4])
    for token in ids[4:]:
        logits = backend.extend(store, [token])
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    assert store.lengths == [7]
    assert float((expected - logits).abs().max()) < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_read_together_are_read_as_each_alone(family: str, checkpoint: CheckpointMaker) -> None:
    """Of several lengths, past the window of those that have one, and each goes on by itself afterwards."""
    rows = Rows(checkpoint(family))
    prompts = [rows.ids[0][:3], rows.ids[1][:17], rows.ids[2][:9], rows.ids[3][:17], rows.ids[4][:1]]
    stores, logits = rows.backend.read_together(prompts)
    assert [store.lengths for store in stores] == [[3], [17], [9], [17], [1]]
    for row, (prompt, store) in enumerate(zip(prompts, stores, strict=True)):
        rows.position[row] = len(prompt)
        rows.check(row, logits[row])
        more = rows.ids[row][len(prompt) : len(prompt) + 3]
        rows.position[row] += 3
        rows.check(row, rows.backend.extend(store, more))
    assert rows.worst < TOLERANCE
