"""The shipped demo pack: every file reads, is no larger than it may be, and claims no more than was measured."""

from __future__ import annotations

import json
import re
from collections import Counter
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
    assert index["version"] == "6"
    assert [each["layer"] for each in index["saes"]] == list(LAYERS)
    for each in index["saes"]:
        assert (PACK / each["path"] / "cfg.json").is_file()
    assert set(_json(PACK / index["measured"])["layers"]) == {"10", "15", "20"}
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
        direct = measured["direct_share"] is not None and measured["direct_share"] >= 0.5
        same = edge.up.feature_idx == edge.down.feature_idx or measured["decoder_cosine"] > 0.5
        assert edge.type == ("persistence" if same or direct else "computed")
        assert _json(path)["edges"][manifest["edges"].index(measured)]["evidence"] == {
            "measure": "share of the downstream activation that goes when the upstream contribution is taken out",
            "effect_5_to_95_percent": [measured["effect_low"], measured["effect_high"]],
            "prompts": measured["texts"],
            "controls": len(measured["controls"]),
            "largest_control": max(measured["controls"]),
            "direct_path_share": measured["direct_share"],
        }
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
    rungs = {path.name.split(".")[0]: read_circuit(_json(path)).rung for path in _documents("circuit")}
    # One falls short on purpose. None is at 3: that asks for necessity and sufficiency of 0.7 both.
    assert rungs == {"religion": 2, "music": 2, "law": 2, "family": 2, "computing": 0}
    whole = {topic: _manifest(PACK / "circuits" / f"{topic}.circuit.json")["faithfulness"] for topic in rungs}
    assert {topic: (each["necessity"], each["sufficiency"]) for topic, each in whole.items() if each} == {
        "religion": (0.8244, 0.6085),
        "music": (0.8677, 0.1436),
        "law": (0.4411, 0.0128),
        "family": (0.432, 0.6154),
    }


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
    # Layer, variance explained in all, of packages' texts, of chats, loss recovered, against the mean, L0, dead.
    for row in (
        "| 10 | 0.799 | 0.797 | 0.809 | 0.982 | 0.967 | 32.0 | 0 | 141 | 7.1 |",
        "| 15 | 0.800 | 0.800 | 0.793 | 0.981 | 0.966 | 32.0 | 0 | 173 | 7.1 |",
        "| 20 | 0.792 | 0.791 | 0.786 | 0.956 | 0.939 | 32.0 | 0 | 240 | 7.1 |",
    ):
        assert row in text
    assert "544,680 tokens of packages' texts and 73,618 of the model's own chats" in text
    assert "Trained on 579,723 of them in 1,699 steps of 1024: 3.0 epochs." in text


def test_the_report_says_what_the_documents_say() -> None:
    text = (PACK / "REPORT.md").read_text(encoding="utf-8")
    for kind in ("cluster", "profile", "circuit"):
        for path in _documents(kind):
            manifest = _manifest(path)
            marks = manifest["calibration"]
            head = f"| {kind} {manifest['topic']} | {marks['onset']:g} | {marks['sweet_spot']:g} | {marks['cliff']:g}"
            assert head in text
            for edge in manifest.get("edges", []):
                up, down = edge["up"], edge["down"]
                row = next(
                    line
                    for line in text.splitlines()
                    if line.startswith(
                        f"| {manifest['topic']} | {up['layer']}:{up['feature_idx']} → "
                        f"{down['layer']}:{down['feature_idx']} | {edge['effect']:.0%} |"
                    )
                )
                assert row.endswith("| yes |" if edge["passed"] else "| no |")
    rows = [line for line in text.splitlines() if re.match(r"\| \w+ \| \d+:\d+ → ", line)]
    assert (len(rows), sum(line.endswith("| yes |") for line in rows)) == (24, 20)
    assert "20 of 24 edges passed." in text


def test_the_sample_has_texts_of_sources_that_may_be_given_away() -> None:
    sample = _json(PACK / "sample.json")
    found = Counter(each["source"] for each in sample["edge"]["texts"])
    assert found == {"bible": 13, "wordnet": 6, "chat": 2, "devil": 1}
    assert max(len(each["ids"].split()) for each in sample["edge"]["texts"]) == 48
    text = (PACK / "SOURCES.md").read_text(encoding="utf-8")
    assert "13 of the Bible, 6 of WordNet, 2 of the chats, 1 of The Devil's Dictionary" in text
    assert "the same appear on ALL copies of the software" in text


def test_the_documentation_names_the_packs_figures() -> None:
    """Where a page says what the demo pack did, it is what the documents say."""
    docs = PACK.parents[1] / "docs"
    steering = " ".join((docs / "steering.md").read_text(encoding="utf-8").split())
    food = {point["intensity"]: point for point in _manifest(PACK / "clusters/food.cluster.json")["sweep"]["curve"]}
    plain, sweet = food[0.0], food[1.25]
    assert (
        f"the share of food words goes from {100 * plain['words']:.1f} % to {100 * sweet['words']:.1f} % at λ = 1.25, "
        f"the perplexity from {plain['perplexity']:.1f} to {sweet['perplexity']:.1f}."
    ) in steering
    assert "norms are 141, 173 and 240 at layers 10, 15 and 20" in steering
    assert "here 80 %, 80 % and 79 % on held-out texts" in steering
    fresh = _json(PACK / "fresh.json")["layers"]
    told = {
        kind: [round(100 * fresh[str(layer)][kind]["variance_explained"]) for layer in (10, 15, 20)]
        for kind in ("news", "chats")
    }
    assert told == {"news": [75, 72, 71], "chats": [79, 76, 74]}
    assert "75 %, 72 % and 71 % on news, 79 %, 76 % and 74 % on answers to other questions" in steering
    assert "Of the demo pack's five circuits four reached rung 2 and none rung 3" in steering
    for path in _documents("circuit"):
        if (manifest := _manifest(path))["rung"] >= 2:
            assert {edge["type"] for edge in manifest["edges"]} == {"persistence"}
    formats = (docs / "document-formats.md").read_text(encoding="utf-8")
    for member in _json(PACK / "clusters/sea.cluster.json")["members"]:
        assert f'"feature_idx": {member["feature_idx"]}, ' in formats
        assert f'"strength": {member["strength"]}, "sign": 1, "max_activation": {member["max_activation"]}' in formats
    edge = _json(PACK / "circuits/religion.circuit.json")["edges"][0]
    evidence = edge["evidence"]
    assert f'"effect_size": {edge["effect_size"]},' in formats
    assert f'"largest_control": {evidence["largest_control"]}, "direct_path_share": ' in formats
