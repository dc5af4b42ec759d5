"""Prompts read whole in one pass: their layout, and that each gives the bits it gives alone."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from app.demo.pack import SMOLLM2, PackPaths, status
from app.paths import Paths
from engine.models.backends.batch_invariance import lay_out, padded_width
from engine.models.backends.residual import Intervention
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from tests.app.processes import ROOT
from tests.conftest import CheckpointMaker
from tests.tiny import FAMILIES

CPU = torch.device("cpu")


def no_report(share: float, stage: str) -> None:
    """A load nobody watches."""


def prompts_of(lengths: tuple[int, ...], vocabulary: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(11)
    return [torch.randint(4, vocabulary, (length,), generator=draw).tolist() for length in lengths]


def test_the_layout_of_a_pass() -> None:
    assert [padded_width(tokens) for tokens in (1, 15, 16, 17, 32, 33)] == [16, 16, 16, 32, 32, 48]
    layout = lay_out([[7, 8, 9], [5] * 17])
    assert layout.ids == [[7, 8, *[9] * 30], [5] * 32]
    # Two rows: eight positions give the head sixteen.
    assert layout.kept == [0, 1, 2, 3, 4, 5, 6, 16]
    assert layout.ends == [2, 7]
    alone = lay_out([[7]])
    assert alone.kept == list(range(16))
    assert alone.ends == [0]
    many = lay_out([[1, 2], [3]] * 8)
    assert (many.kept, many.ends) == ([0, 1], [1, 0] * 8)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_at_the_ends_are_the_librarys(family: str, checkpoint: CheckpointMaker) -> None:
    """The reference is one plain forward of each prompt; lengths go past the window of those that have one."""
    folder = checkpoint(family)
    backend = TransformersBackend.load(folder, DevicePlacement(CPU, torch.float32, "test"), no_report)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = prompts_of((1, 23, 16, 9, 40), 390)
    together = backend.logits_at_ends(prompts)
    for prompt, found in zip(prompts, together, strict=True):
        assert torch.equal(found, backend.logits_at_ends([prompt])[0])
        with torch.inference_mode():
            ids = torch.tensor([prompt])
            expected = reference(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[0, -1]
        assert float((found - expected).abs().max()) < 1e-4


@pytest.mark.demo
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_real_model_gives_the_same_bits_in_any_company(dtype: torch.dtype, threads: int) -> None:
    """Not within a tolerance: equal. Widths 16 to 96 and 1 to 8 prompts, in both formats a CPU runs."""
    paths = Paths(ROOT / ".data")
    if not status(paths).installed:
        pytest.skip("the demo model is not installed: python -m app demo install --data-dir .data")
    checkpoint = PackPaths.of(paths, SMOLLM2).checkpoint
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        backend = TransformersBackend.load(checkpoint, DevicePlacement(CPU, dtype, "test"), no_report)
        prompts = prompts_of((5, 11, 16, 17, 31, 8, 2, 90, 40, 15, 33, 64), 49_000)
        alone = [backend.logits_at_ends([prompt])[0] for prompt in prompts]
        for group in ((0, 1), (0, 1, 2, 5, 6, 9), (2, 3, 4), (0, 7), (0, 1, 2, 3, 4, 5, 8, 10), (11, 6)):
            found = backend.logits_at_ends([prompts[place] for place in group])
            for place, logits in zip(group, found, strict=True):
                assert torch.equal(logits, alone[place]), (group, place)
        assert backend._reads_alike is True
    finally:
        torch.set_num_threads(before)


def test_where_bits_differ_each_prompt_has_a_pass_of_its_own(
    checkpoint: CheckpointMaker, caplog: pytest.LogCaptureFixture
) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), DevicePlacement(CPU, torch.float32, "test"), no_report)
    prompts = prompts_of((3, 9, 20), 390)
    alone = torch.cat([backend.logits_at_ends([prompt]) for prompt in prompts])
    passes: list[int] = []

    def company_counts(module: object, arguments: object, keywords: dict[str, Tensor], output: Tensor) -> Tensor:
        rows = keywords["input_ids"].shape[0]
        passes.append(rows)
        output.logits += 1e-6 * (rows - 1)  # type: ignore[attr-defined]
        return output

    backend._model.register_forward_hook(company_counts, with_kwargs=True)
    with caplog.at_level(logging.WARNING):
        found = backend.logits_at_ends(prompts)
    assert torch.equal(found, alone)
    assert passes == [3, 1, 1, 1, 1]
    assert "read one by one" in caplog.text
    passes.clear()
    backend.logits_at_ends(prompts)
    assert passes == [1, 1, 1]


def test_an_observer_sees_no_padding(checkpoint: CheckpointMaker) -> None:
    backend = TransformersBackend.load(checkpoint("llama"), DevicePlacement(CPU, torch.float32, "test"), no_report)
    seen: list[tuple[int, ...]] = []

    class Eye:
        def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
            seen.append((layer, *before.shape[:2], *after.shape[:2]))

    backend.logits_at_ends(prompts_of((5,), 390), Intervention(observers={1: (Eye(),)}))
    assert seen == [(1, 1, 5, 1, 5)]
