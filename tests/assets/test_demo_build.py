"""The build's parts by hand-worked cases, and the whole pipeline on a tiny model."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assets.demo.build import edges, shared, subjects, sweep, topics
from assets.demo.build.corpus import is_held_out
from assets.demo.build.model import _choose
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


PROGRAM = """
import pickle, sys
from assets.demo.build.__main__ import run

build = pickle.load(sys.stdin.buffer)
files = lambda: {path: path.read_bytes() for path in build.pack.rglob("*") if path.is_file()}
run(build)
made = files()
print("once more", flush=True)
run(build)
sys.exit(0 if files() == made else 3)
"""


def test_the_pipeline_runs_on_a_tiny_model_and_again_does_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """As its own process: the build sets torch's threads, which the suite's other tests share."""
    base = Build(checkpoint=tiny_checkpoint, state=tmp_path, layers=(1, 2, 3), d_sae=64, k=4)
    build = tiny_build(base, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        input=pickle.dumps(build),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    index = json.loads((build.pack / "pack.json").read_text(encoding="utf-8"))
    assert [each["layer"] for each in index["saes"]] == [1, 2, 3]
    report = (build.pack / "REPORT.md").read_text(encoding="utf-8")
    assert "# The demo pack: what was measured" in report
    first, _, second = done.stdout.decode().partition("once more\n")
    # The stages tell of their progress; the second time there was none to tell of.
    assert "sweep: prompt 1, " in first
    assert second == report + "\n"
    sample = json.loads((build.pack / "sample.json").read_text(encoding="utf-8"))
    assert all(layer["l0"] <= 4 for layer in sample["chats"]["layers"].values())


def test_a_result_holds_for_the_files_it_was_made_from(tmp_path: Path) -> None:
    build = Build(checkpoint=tmp_path, state=tmp_path / "state", pack=tmp_path / "pack")
    weights, folder = tmp_path / "weights", tmp_path / "activations"
    weights.write_bytes(b"one")
    folder.mkdir()
    (folder / "plain-0000.safetensors").write_bytes(b"12345")
    mark = shared.fingerprint(weights, folder)
    assert not shared.is_made_from(build, "quality", mark)
    shared.note_made_from(build, "quality", mark)
    assert shared.is_made_from(build, "quality", shared.fingerprint(weights, folder))
    assert not shared.is_made_from(build, "edges", mark)
    weights.write_bytes(b"two")
    assert not shared.is_made_from(build, "quality", shared.fingerprint(weights, folder))
    weights.write_bytes(b"one")
    (folder / "plain-0001.safetensors").write_bytes(b"6")
    assert not shared.is_made_from(build, "quality", shared.fingerprint(weights, folder))
    weights.unlink()
    assert shared.fingerprint(weights) != mark


def test_answers_of_a_subject_with_other_strengths_are_sampled_anew() -> None:
    old, same = subjects.Subject("cluster", "sea", {15: {3: 1.0}}), subjects.Subject("cluster", "food", {15: {7: 2.0}})
    done: dict[str, Any] = {"texts": {}, "strengths": {}}
    sweep._forget_changed(done, [old, same])
    for key in ("unsteered | 0 | 0 | 0", "cluster sea | 1 | 0 | 0", "cluster food | 1 | 0 | 0"):
        done["texts"][key] = {"features": {"cluster sea": 1.0, "cluster food": 2.0}}
    sweep._forget_changed(done, [old, same])
    assert len(done["texts"]) == 3
    sweep._forget_changed(done, [subjects.Subject("cluster", "sea", {15: {3: 1.5}}), same])
    assert list(done["texts"]) == ["unsteered | 0 | 0 | 0", "cluster food | 1 | 0 | 0"]
    assert done["texts"]["unsteered | 0 | 0 | 0"]["features"] == {"cluster food": 2.0}
    assert done["strengths"]["cluster sea"] == {"15": {"3": 1.5}}


def test_some_rows_of_a_batch_draw_what_the_whole_batch_drew() -> None:
    logits = torch.randn((9, 150), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros((9, 150), dtype=torch.bool)
    places = [1, 4, 8]
    every, some = (torch.Generator().manual_seed(2) for _ in range(2))
    for _ in range(5):
        whole = _choose(logits, seen, every, 0.7, 0.95, 1.0, None)
        assert _choose(logits[places], seen[places], some, 0.7, 0.95, 1.0, (9, places)).tolist() == [
            whole[1], whole[4], whole[8]
        ]  # fmt: skip
