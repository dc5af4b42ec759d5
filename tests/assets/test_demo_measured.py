"""A part of the report measured again on the landed files: SAE quality, one edge, one point of the sweep.

``assets/demo/sample.json`` holds the texts. The figures in it and in the manifests were written by the build's stages,
from activations kept while the corpus was harvested, in batches of other shapes and in half precision where they were
stored; here everything is computed anew. So what is compared is equal but for rounding, and the tolerances say so.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from app.demo.pack import SMOLLM2, PackPaths, status
from app.paths import Paths
from assets.demo.build.model import Model, Reader, row_losses
from assets.demo.build.settings import Build
from assets.demo.build.topics import BY_NAME
from engine.models.backends.residual import Intervention
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
    return Model(Build(checkpoint=PackPaths.of(paths, SMOLLM2).checkpoint, state=ROOT / ".data", threads=threads))


@pytest.fixture(scope="module")
def saes() -> dict[int, Sae]:
    return {layer: load_sae(PACK / "saes" / f"layer_{layer}", dtype=torch.float32) for layer in LAYERS}


@pytest.fixture(scope="module")
def sample() -> Any:
    return json.loads((PACK / "sample.json").read_text(encoding="utf-8"))


def _manifest(kind: str, document: str) -> Any:
    name = document.removesuffix(".json") + ".manifest.json"
    return json.loads((PACK / f"{kind}s" / name).read_text(encoding="utf-8"))


def _ids(text: dict[str, Any]) -> list[int]:
    return [int(each) for each in text["ids"].split()]


def test_figures_that_come_with_the_saes(model: Model, saes: dict[int, Sae]) -> None:
    """The engine's text in texts of 128 tokens, as the SAEs were trained."""
    ids = model.ids(check_text())
    shipped = json.loads((PACK / "measured.json").read_text(encoding="utf-8"))["layers"]
    for layer, sae in saes.items():
        streams = [model.read([ids[at : at + 128]], [layer])[0][layer][0] for at in range(0, len(ids), 128)]
        found, told = measure(sae, torch.cat(streams)), shipped[str(layer)]
        assert (found.n_tokens, found.n_left_out) == (told["n_tokens"], told["n_left_out"])
        assert found.median_norm == pytest.approx(told["median_norm"], rel=0.002)
        assert found.variance_explained == pytest.approx(told["variance_explained"], abs=0.002)


def test_quality_on_chats_that_were_held_out(model: Model, saes: dict[int, Sae], sample: Any) -> None:
    texts = sample["chats"]["texts"]
    assert len(texts) == 12
    streams: dict[int, list[torch.Tensor]] = {layer: [] for layer in LAYERS}
    for text in texts:
        found, _ = model.read([_ids(text)], LAYERS)
        for layer, stream in found.items():
            streams[layer].append(stream[0, text["from"] :])
    for layer, sae in saes.items():
        recorded = sample["chats"]["layers"][str(layer)]
        quality = measure(sae, torch.cat(streams[layer]))
        assert quality.n_tokens == recorded["tokens"] == 1622
        assert quality.l0 == recorded["l0"] == 32.0
        assert quality.variance_explained == pytest.approx(recorded["variance_explained"], abs=0.002)
        # The report's figure for all held-out chats, of which these are a third.
        row = next(line for line in (PACK / "REPORT.md").read_text().splitlines() if line.startswith(f"| {layer} | 0."))
        assert quality.variance_explained == pytest.approx(float(row.split("|")[4]), abs=0.01)


def test_an_edge_against_its_controls_on_every_text_it_was_tested_on(
    model: Model, saes: dict[int, Sae], sample: Any
) -> None:
    """The upstream contribution is taken out where it is active, the downstream feature read; see ``build/edges.py``."""
    assert (sample["edge"]["circuit"], sample["edge"]["edge"]) == ("religion.circuit.json", 0)
    edge = _manifest("circuit", sample["edge"]["circuit"])["edges"][0]
    up, down = edge["up"], edge["down"]
    upper, lower = saes[up["layer"]], saes[down["layer"]]
    rows = upper.decoder_rows([up["feature_idx"], *edge["control_features"]])
    total = torch.zeros(2 + len(rows))
    for text in sample["edge"]["texts"]:
        streams, _ = model.read([_ids(text)], [up["layer"], down["layer"]])
        x = streams[up["layer"]]
        active = upper.encode_features(x, [up["feature_idx"]])
        active[:, 0] = 0
        changed = torch.cat([x, *(x - active * row for row in rows)])
        found, _ = model.run_from(up["layer"], changed, [down["layer"]])
        every = torch.cat([found[down["layer"]], streams[down["layer"]] - active * rows[0]])
        total += lower.encode_features(every, [down["feature_idx"]])[:, 1:, 0].sum(dim=1)
    effects = (1 - total[1:] / total[0]).tolist()
    assert len(sample["edge"]["texts"]) == edge["texts"] == edge["texts_tried"] == 22
    assert effects[0] == pytest.approx(edge["effect"], abs=0.002)
    assert effects[1:-1] == pytest.approx(edge["controls"], abs=0.002)
    assert effects[-1] == pytest.approx(edge["direct_effect"], abs=0.002)
    assert len(effects[1:-1]) == 12
    assert effects[0] > max(effects[1:-1]) + 0.3


def test_a_point_of_the_sweep(model: Model, saes: dict[int, Sae], sample: Any) -> None:
    """The same seed gives the same texts; a token may fall otherwise on a machine that rounds otherwise, but hardly two."""
    part = sample["sweep"]
    manifest = _manifest("cluster", part["cluster"])
    assert (part["topic"], part["intensity"]) == ("sea", manifest["calibration"]["sweet_spot"])
    _recorded_texts_make_the_recorded_point(part, manifest)
    ((layer, strengths),) = manifest["strengths_at_intensity_1"].items()
    sae, topic = saes[int(layer)], BY_NAME[part["topic"]]
    delta = sae.delta({int(index): strength * part["intensity"] for index, strength in strengths.items()})
    question = part["questions"][0]
    ids = model.chat_ids(question["prompt"])
    written = model.write(
        [ids] * 6,
        part["sampling"]["tokens"],
        deltas={int(layer): torch.cat([torch.zeros(3, len(delta)), delta.expand(3, -1)])},
        generator=torch.Generator().manual_seed(question["seed"]),
        temperature=part["sampling"]["temperature"],
        top_p=part["sampling"]["top_p"],
        places=(part["batch_rows"], [*part["plain_rows"], *part["steered_rows"]]),
    )
    rows = [[*ids, *each.ids] for each in written]
    reader = Reader()
    logits, _ = model.logits(rows, Intervention(observers={int(layer): (reader,)}))
    losses = row_losses(logits, rows, [len(ids)] * 6)
    agreed = 0
    for number, (text, recorded) in enumerate(zip(written, question["plain"] + question["steered"], strict=True)):
        stream = reader.seen[int(layer)][number, len(ids) : len(rows[number])]
        own = sae.encode_features(stream, [int(index) for index in strengths]).mean(dim=0).sum()
        agreed += (
            len(text.ids) == recorded["tokens"]
            and topic.share(text.text) == pytest.approx(recorded["words"], abs=1e-4)
            and losses[number] == pytest.approx(recorded["loss"], abs=0.005)
            and float(own) == pytest.approx(recorded["features"], abs=0.05)
        )
    assert agreed >= 5
    plain, steered = ([topic.share(each.text) for each in half] for half in (written[:3], written[3:]))
    assert sum(steered) / 3 > sum(plain) / 3 + 0.015


def _recorded_texts_make_the_recorded_point(part: Any, manifest: Any) -> None:
    """The twelve answers' figures average to what the manifest's curve says at that intensity."""
    curve = {point["intensity"]: point for point in manifest["sweep"]["curve"]}
    for name, intensity in (("plain", 0.0), ("steered", part["intensity"])):
        texts = [text for question in part["questions"] for text in question[name]]
        assert len(texts) == curve[intensity]["texts"] == 12
        for key in ("words", "features", "trigrams"):
            assert sum(text[key] for text in texts) / 12 == pytest.approx(curve[intensity][key], abs=1e-3)
        tokens = sum(text["tokens"] for text in texts)
        loss = sum(text["loss"] * text["tokens"] for text in texts) / tokens
        assert math.exp(loss) == pytest.approx(curve[intensity]["perplexity"], abs=0.01)
