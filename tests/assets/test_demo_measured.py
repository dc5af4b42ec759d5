"""A sample of the report measured again on the landed files: SAE quality, one edge, one point of the sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from app.demo.pack import SMOLLM2, Places, status
from app.paths import Paths
from assets.demo.build.model import Model
from assets.demo.build.settings import Build
from assets.demo.build.topics import BY_NAME
from engine.saes.checks import check_text, measure
from engine.saes.formats.loading import load_sae
from engine.saes.sae import Sae
from tests.app.processes import ROOT

pytestmark = pytest.mark.demo

PACK = ROOT / "assets" / "demo"
LAYERS = (10, 15, 20)


@pytest.fixture(scope="module")
def model() -> Model:
    paths = Paths(ROOT / ".data")
    if not status(paths).installed:
        pytest.skip("the demo model is not installed: python -m app demo install --data-dir .data")
    threads = torch.get_num_threads()
    return Model(Build(checkpoint=Places.of(paths, SMOLLM2).checkpoint, state=ROOT / ".data", threads=threads))


@pytest.fixture(scope="module")
def saes() -> dict[int, Sae]:
    return {layer: load_sae(PACK / "saes" / f"layer_{layer}", dtype=torch.float32) for layer in LAYERS}


def _manifest(kind: str, topic: str) -> Any:
    return json.loads((PACK / f"{kind}s" / f"{topic}.{kind}.manifest.json").read_text(encoding="utf-8"))


def _first_validated_edge() -> tuple[str, Any]:
    for path in sorted(Path(PACK / "circuits").glob("*.circuit.manifest.json")):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["rung"] >= 2:
            return manifest["topic"], manifest["edges"][0]
    raise AssertionError("no circuit of rung 2")


def test_quality_on_a_text_that_was_not_in_training(model: Model, saes: dict[int, Sae]) -> None:
    """The engine's bundled text: plain prose, unlike most of the training texts; so below the report's figures."""
    rows = [model.ids(paragraph)[:128] for paragraph in check_text().split("\n\n")[:6]]
    for layer, sae in saes.items():
        streams = [model.read([row], [layer])[0][layer][0, 1:] for row in rows]
        quality = measure(sae, torch.cat(streams))
        assert 31.0 <= quality.l0 <= 32.0
        assert quality.variance_explained > 0.65


def test_an_edge_beats_its_controls_on_sentences_of_its_topic(model: Model, saes: dict[int, Sae]) -> None:
    """The manifest's own controls, on other texts than those it was tested on. The effect may differ; the order holds."""
    topic, edge = _first_validated_edge()
    up, down = edge["up"], edge["down"]
    upper, lower = saes[up["layer"]], saes[down["layer"]]
    rows = upper.decoder_rows([up["feature_idx"], *edge["control_features"]])
    total = torch.zeros(1 + len(rows))
    for sentence in BY_NAME[topic].sentences:
        x = model.read([model.ids(sentence)], [up["layer"]])[0][up["layer"]]
        active = upper.encode_features(x, [up["feature_idx"]])
        active[:, 0] = 0
        changed = torch.cat([x, *(x - active * row for row in rows)])
        found, _ = model.run_from(up["layer"], changed, [down["layer"]])
        total += lower.encode_features(found[down["layer"]], [down["feature_idx"]])[:, 1:, 0].sum(dim=1)
    effects = 1 - total[1:] / total[0]
    assert float(effects[0]) > float(effects[1:].max())
    assert float(effects[0]) == pytest.approx(edge["effect"], abs=0.3)


def test_a_cluster_at_its_sweet_spot_puts_its_topic_into_the_answer(model: Model, saes: dict[int, Sae]) -> None:
    """Greedy apart from a penalty on repeats, so that both answers are fixed."""
    topic = next(each for each in ("sea", "medicine") if (PACK / "clusters" / f"{each}.cluster.json").exists())
    manifest = _manifest("cluster", topic)
    ((layer, strengths),) = manifest["strengths_at_intensity_1"].items()
    dial = manifest["calibration"]["sweet_spot"]
    delta = saes[int(layer)].delta({int(index): strength * dial for index, strength in strengths.items()})
    prompts = [model.chat_ids("Tell me a short story.")] * 2
    plain, steered = model.write(
        prompts,
        48,
        deltas={int(layer): torch.stack([torch.zeros_like(delta), delta])},
        repetition_penalty=1.2,
    )
    share = BY_NAME[topic].share
    assert share(steered.text) > share(plain.text)
