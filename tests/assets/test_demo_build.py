"""The build's parts by hand-worked cases, and the whole pipeline on a tiny model."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assets.demo.build import edges, sweep, topics
from assets.demo.build.corpus import is_held_out
from assets.demo.build.settings import REPOSITORY, Build, tiny_build
from assets.demo.build.training import TopK


def test_gradients_are_autograds() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((64, 16), generator=generator)
    sae = TopK(x, 48, 4, 1)
    sae.optimizer.step = lambda closure=None: None  # type: ignore[method-assign,assignment]
    before = [each.clone() for each in sae.parameters]
    sae.step(x, 1e-3)
    found = [each.grad.clone() for each in sae.parameters if each.grad is not None]
    encoder, decoder, b_enc, b_dec = (each.requires_grad_() for each in before)
    scaled = (x - sae.mean) * sae.scale
    values, indices = ((scaled - b_dec) @ encoder.T + b_enc).topk(4, dim=1)
    f = torch.zeros(64, 48).scatter(1, indices, values.relu())
    (((f @ decoder + b_dec) - scaled).square().sum() / 64).backward()
    wanted = [encoder.grad, decoder.grad, b_enc.grad, b_dec.grad]
    assert wanted[1] is not None
    wanted[1] = wanted[1] - (wanted[1] * decoder).sum(dim=1, keepdim=True) * decoder.detach()
    for ours, theirs in zip(found, wanted, strict=True):
        assert theirs is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_documents_are_held_out_by_name() -> None:
    assert [is_held_out(f"document {number}", 0.5) for number in range(8)] == [
        is_held_out(f"document {number}", 0.5) for number in range(8)
    ]
    share = sum(is_held_out(f"document {number}", 0.06) for number in range(5000)) / 5000
    assert 0.04 < share < 0.08


def test_topic_words_are_counted_whole() -> None:
    sea = topics.BY_NAME["sea"]
    assert sea.share("The ship sailed. Shipping is dull") == pytest.approx(2 / 6)
    assert sea.share("") == 0.0


def test_repeated_trigrams() -> None:
    assert sweep.repeated_trigrams((1, 2, 3, 4, 5)) == 0.0
    # 123 231 312 123 231: two of five came before.
    assert sweep.repeated_trigrams((1, 2, 3, 1, 2, 3, 1)) == pytest.approx(2 / 5)
    assert sweep.repeated_trigrams((1, 2)) == 0.0


def _point(
    intensity: float, words: float, features: float, perplexity: float, trigrams: float = 0.0
) -> dict[str, float]:
    return {
        "intensity": intensity,
        "words": words,
        "features": features,
        "perplexity": perplexity,
        "trigrams": trigrams,
    }


def test_calibration_needs_both_measures_and_fluency() -> None:
    curve = [
        _point(0.0, 0.01, 1.0, 5.0),
        _point(0.5, 0.01, 9.0, 5.0),  # features alone are not enough
        _point(1.0, 0.10, 9.0, 6.0),
        _point(1.5, 0.20, 9.5, 12.0),  # on topic, not fluent
        _point(2.0, 0.30, 9.9, 40.0),
    ]
    found = sweep.calibrate(curve)
    assert found == {"onset": 1.0, "sweet_spot": 1.0, "cliff": 2.0, "non_monotone": False, "cliff_seen": True}
    assert sweep.calibrate(curve[:2]) is None


def test_effects_are_shares_of_the_downstream_activation() -> None:
    # Per text: as it is, ablated, by the direct path, one control.
    sums = torch.tensor([[10.0, 4.0, 8.0, 10.0], [10.0, 6.0, 9.0, 9.0]])
    assert edges._effects(sums).tolist() == pytest.approx([0.5, 0.15, 0.05])


def test_the_pipeline_runs_on_a_tiny_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """As its own process: the build sets torch's threads, which the suite's other tests share."""
    base = Build(checkpoint=tiny_checkpoint, state=tmp_path, layers=(1, 2, 3), d_sae=64, k=4)
    build = tiny_build(base, tmp_path)
    program = "import sys, pickle; from assets.demo.build.__main__ import run; run(pickle.load(sys.stdin.buffer))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        input=pickle.dumps(build),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    index = json.loads((build.pack / "pack.json").read_text(encoding="utf-8"))
    assert [each["layer"] for each in index["saes"]] == [1, 2, 3]
    assert "# The demo pack: what was measured" in (build.pack / "REPORT.md").read_text(encoding="utf-8")
