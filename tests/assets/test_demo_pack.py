"""The shipped demo pack: every file reads, is no larger than it may be, and claims no more than was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.actions.saes.labels import read_labels
from engine.documents.circuit import read_circuit
from engine.documents.cluster import read_cluster
from engine.documents.evidence import claims_causation
from engine.documents.profile import read_profile
from engine.saes.config import Architecture
from engine.saes.formats.loading import load_sae

PACK = Path(__file__).resolve().parents[2] / "assets" / "demo"
LAYERS = (10, 15, 20)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _documents(kind: str) -> list[Path]:
    return sorted(each for each in (PACK / f"{kind}s").glob("*.json") if not each.name.endswith(".manifest.json"))


def _manifest(path: Path) -> Any:
    return _json(path.with_name(path.name.removesuffix(".json") + ".manifest.json"))


@pytest.mark.parametrize("layer", LAYERS)
def test_sae_loads(layer: int) -> None:
    folder = PACK / "saes" / f"layer_{layer}"
    sae = load_sae(folder)
    config = sae.config
    assert (config.architecture, config.d_in, config.d_sae, config.k) == (Architecture.TOPK, 576, 3072, 32)
    assert config.layer == layer
    assert config.model_name == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert config.assumed == ()
    norms = sae.to(dtype=torch.float32).decoder_norms()
    # Rows of length 1, so that a strength is the length of what is added; half precision rounds.
    assert float((norms - 1).abs().max()) < 2e-3
    assert (folder / "sae_weights.safetensors").stat().st_size <= 10_000_000


def test_the_pack_is_small() -> None:
    files = [each for each in PACK.rglob("*") if each.is_file() and "__pycache__" not in each.parts]
    assert sum(each.stat().st_size for each in files) < 30_000_000


def test_the_index_names_what_is_there() -> None:
    index = _json(PACK / "pack.json")
    assert index["version"] == "2"
    assert [each["layer"] for each in index["saes"]] == list(LAYERS)
    for each in index["saes"]:
        assert (PACK / each["path"] / "cfg.json").is_file()
    for kind in ("profile", "cluster", "circuit"):
        assert [PACK / each for each in index[f"{kind}s"]] != []
        assert sorted(PACK / each for each in index[f"{kind}s"]) == _documents(kind)
    assert len(_documents("profile")) >= 3
    assert len(_documents("cluster")) >= 4
    assert len(_documents("circuit")) >= 3


@pytest.mark.parametrize("layer", LAYERS)
def test_labels(layer: int) -> None:
    document = _json(PACK / "labels" / f"layer_{layer}.json")
    labels = document["labels"]
    assert len(labels) >= 60
    assert len({each["feature_idx"] for each in labels}) == len(labels)
    for each in labels:
        assert 0 <= each["feature_idx"] < 3072
        assert each["label"]
        assert each["how"] in ("contrast", "token")
        assert 0 < each["density"] <= 0.06
        assert each["max_activation"] > 0
        assert each["confidence"] is None or 0 <= each["confidence"] <= 1
        # Single tokens, never a stretch of the corpus.
        assert all(len(token.split()) <= 1 for token in each["top_tokens"])
    read = read_labels(PACK / "labels" / f"layer_{layer}.json")
    assert len(read.labels) == len(labels)


@pytest.mark.parametrize("path", _documents("cluster"), ids=lambda path: path.stem)
def test_cluster(path: Path) -> None:
    document = read_cluster(_json(path))
    assert 2 <= len(document.strengths) <= 4
    assert document.notes == ()
    manifest = _manifest(path)
    calibration = manifest["calibration"]
    assert document.intensity == calibration["sweet_spot"]
    assert document.intensity_range == (calibration["onset"], calibration["cliff"])
    assert max(abs(each) for each in document.strengths.values()) * 2 <= 200
    _calibration_agrees(manifest)


@pytest.mark.parametrize("path", _documents("profile"), ids=lambda path: path.stem)
def test_profile(path: Path) -> None:
    document = read_profile(_json(path))
    assert document.layer in LAYERS
    assert document.steering
    _calibration_agrees(_manifest(path))


@pytest.mark.parametrize("path", _documents("circuit"), ids=lambda path: path.stem)
def test_circuit_claims_what_its_manifest_carries(path: Path) -> None:
    document = read_circuit(_json(path))
    manifest = _manifest(path)
    assert manifest["rung"] == document.rung
    assert len(document.definition.edges) == len(manifest["edges"])
    whole = manifest["faithfulness"]
    for edge, measured in zip(document.definition.edges, manifest["edges"], strict=True):
        assert edge.effect_size == measured["effect"]
        assert (edge.up.feature_idx, edge.down.feature_idx) == (
            measured["up"]["feature_idx"],
            measured["down"]["feature_idx"],
        )
        if edge.up.feature_idx == edge.down.feature_idx:
            assert edge.type == "persistence"
        if edge.evidence_rung >= 2:
            assert measured["effect"] >= 0.1
            assert len(measured["controls"]) >= 12
            assert measured["effect"] > max(measured["controls"])
            assert measured["effect_low"] > max(measured["controls"])
            assert measured["texts"] >= 12
        if edge.evidence_rung >= 3:
            assert whole["necessity"] >= 0.7 and whole["sufficiency"] >= 0.7
            assert max(whole["control_necessity"]) < 0.35 and max(whole["control_sufficiency"]) < 0.35
    if document.rung < 2:
        assert not claims_causation(f"{document.definition.name} {document.definition.narrative}")
    calibration = document.definition.calibration
    assert calibration is not None
    assert document.intensity == calibration.sweet_spot
    assert document.intensity_range == (calibration.onset, calibration.cliff)
    _calibration_agrees(manifest)


def test_rungs_of_the_pack() -> None:
    rungs = [read_circuit(_json(path)).rung for path in _documents("circuit")]
    assert max(rungs) >= 2
    assert min(rungs) < 2


def _calibration_agrees(manifest: Any) -> None:
    calibration, curve = manifest["calibration"], manifest["sweep"]["curve"]
    assert calibration["onset"] <= calibration["sweet_spot"] <= calibration["cliff"]
    base = curve[0]
    assert base["intensity"] == 0
    sweet = next(each for each in curve if each["intensity"] == calibration["sweet_spot"])
    assert sweet["words"] > base["words"]
    assert sweet["features"] > base["features"]
    assert sweet["perplexity"] <= 2 * base["perplexity"]
    assert sweet["trigrams"] <= base["trigrams"] + 0.15


def test_every_source_has_a_licence() -> None:
    from assets.demo.build.corpus import PACKAGES

    text = (PACK / "SOURCES.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 8
    for row in rows:
        what, origin, licence, used, *_ = (cell.strip() for cell in row.strip("|").split("|"))
        assert what and origin and licence and used
    for package in PACKAGES:
        assert f"`{package}`" in text


def test_the_report_holds_the_figures_that_are_claimed() -> None:
    text = (PACK / "REPORT.md").read_text(encoding="utf-8")
    for name in re.findall(r"\]\(([^)]+)\)", text):
        assert (PACK / name).exists(), name
    for layer in LAYERS:
        assert re.search(rf"^\| {layer} \| 0\.\d\d\d \|", text, re.MULTILINE)
