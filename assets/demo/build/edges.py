"""Edges between features of two layers, tested by intervention on held-out texts against matched controls.

What is done to the stream at the upper end: an upstream feature's contribution is taken out wherever it is active
(x − a · row). What is read: the sum of the downstream feature's activation over the text. The effect is the share of it
that goes. A control takes out the same lengths at the same positions along another feature's row, one of similar
density that has nothing to do with the topic. The direct path is the same subtraction made at the downstream layer
itself, past all computation in between. Features were chosen on the topics' sentences; the texts here were neither
among them nor in training.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.chunks import chunk_files, load_chunk
from assets.demo.build.model import Model
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import (
    encode_sparse,
    fingerprint,
    is_made_from,
    label_file,
    load_saes,
    note_made_from,
    read_json,
    read_labels,
    sae_files,
    texts_by_number,
    write_json,
)
from engine.saes.sae import Sae

TEXTS = 22
"""Tried for each edge. On earlier SAEs it was 14: too few had the downstream feature on. The rule stayed as it was."""
WIDTH = 48
CONTROLS = 12
LEAST_TEXTS = 12
LEAST_EFFECT = 0.10
RESAMPLES = 1000
STATISTICS = 1500
"""Training tokens of each chunk that densities and coactivation are counted on."""
MOST_TOPICS = 8
SIMILAR_ROWS = 0.3
"""A control's decoder row may not be nearer than this (cosine) to the upstream feature's."""

SAME_DIRECTION, MOSTLY_DIRECT = 0.5, 0.5
"""Decoder rows this near, or this share of the effect by the direct path, make an edge persistence."""

RULE = (
    f"Rung 2 needs at least {LEAST_TEXTS} held-out texts, {CONTROLS} controls, an effect of {LEAST_EFFECT:g}, an "
    "effect above every control's, and the 5th percentile over resampled texts above every control's too."
)


@dataclass(frozen=True)
class Node:
    """A feature on a layer."""

    layer: int
    feature: int


def run(build: Build) -> list[dict[str, Any]]:
    """Test the edges of every topic that has features on several layers; writes ``edges.json``.

    Topics that are in it are kept while SAEs, labels and texts are the same.
    """
    torch.set_num_threads(build.threads)
    target = build.state / "edges.json"
    mark = made_from(build)
    kept = target.exists() and is_made_from(build, "edges", mark)
    done: list[dict[str, Any]] = read_json(target) if kept else []
    have = {each["topic"] for each in done}
    wanted = [(topic, nodes) for topic, nodes in candidates(build, read_labels(build)) if topic not in have]
    if not wanted:
        return done
    write_json(target, done)
    note_made_from(build, "edges", mark)
    bench = Bench(build)
    for topic, nodes in wanted:
        for layer in build.layers[:-1]:
            down = [node for node in nodes if node.layer > layer]
            for up in (node for node in nodes if node.layer == layer):
                done += [{"topic": topic, **edge} for edge in bench.test(up, down)]
                print(f"edges: {topic}, from {up.layer}:{up.feature}", flush=True)
        write_json(target, done)
    write_json(target, done)
    return done


def made_from(build: Build) -> str:
    """What the figures of edges and of whole circuits hang on."""
    labels = [label_file(build, layer) for layer in build.layers]
    texts = (build.state / "pieces.jsonl", build.state / "chats.jsonl", build.activations)
    return fingerprint(*sae_files(build), *labels, *texts)


def candidates(build: Build, labels: dict[int, list[dict[str, Any]]]) -> list[tuple[str, list[Node]]]:
    """Topics with a surest feature on every layer, and those features."""
    found: list[tuple[float, str, list[Node]]] = []
    topics = {each["topic"] for layer in labels.values() for each in layer if each["how"] == "contrast"}
    for topic in sorted(topics):
        nodes, sure = [], []
        for layer in build.layers:
            own = [each for each in labels[layer] if each.get("topic") == topic and each["confidence"] is not None]
            if own:
                best = max(own, key=lambda each: each["confidence"] * math.sqrt(max(0.0, each["contrast_score"])))
                nodes.append(Node(layer, best["feature_idx"]))
                sure.append(best["confidence"])
        if len(nodes) == len(build.layers):
            found.append((min(sure), topic, nodes))
    found.sort(key=lambda each: (-each[0], each[1]))
    return [(topic, nodes) for _, topic, nodes in found[: MOST_TOPICS if not build.test else 1]]


class Bench:
    """Model, SAEs and held-out texts, ready for tests."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.model = Model(build, depth=build.layers[-1] + 1)
        self.saes = load_saes(build)
        self.texts = texts_by_number(build)
        self.labels = read_labels(build)
        self.held: list[dict[str, Tensor]] = []
        self._fired: dict[int, tuple[Tensor, Tensor]] = {}
        self._train: list[dict[str, Tensor]] = []
        for path in chunk_files(build.activations):
            chunk = load_chunk(path)
            out = chunk["held_out"] == 1
            self.held.append({name: tensor[out] for name, tensor in chunk.items()})
            self._train.append({name: tensor[~out][:STATISTICS] for name, tensor in chunk.items()})

    def held_out_texts(self, up: Node) -> list[list[int]]:
        """Tokens of the held-out texts in which ``up`` is most active, cut around its strongest place."""
        return [row for _, row in self.numbered_held_out_texts(up)]

    def numbered_held_out_texts(self, up: Node) -> list[tuple[int, list[int]]]:
        """The same, each with the number of its text."""
        sae = self.saes[up.layer]
        best: dict[int, tuple[float, int]] = {}
        for chunk in self.held:
            if not len(chunk["ids"]):
                continue
            active = sae.encode_features(chunk[f"layer_{up.layer}"].float(), [up.feature])[:, 0]
            for place in torch.nonzero(active).flatten().tolist():
                number = int(chunk["piece"][place])
                if float(active[place]) > best.get(number, (0.0, 0))[0]:
                    best[number] = (float(active[place]), int(chunk["position"][place]))
        rows = []
        for number, (_, position) in sorted(best.items(), key=lambda item: -item[1][0]):
            ids = self.model.ids(self.texts[number])
            start = min(max(0, position - WIDTH // 2), max(0, len(ids) - WIDTH))
            row = ids[start : start + WIDTH]
            if len(row) >= 8:
                rows.append((number, row))
            if len(rows) == TEXTS:
                break
        return rows

    def controls(self, up: Node, n: int = CONTROLS) -> list[int]:
        """Features of the layer, of similar density, of no topic's, with another direction."""
        density, _ = self._statistics(up.layer)
        row = self.saes[up.layer].decoder_row(up.feature)
        near = (self.saes[up.layer].W_dec @ row).abs() > SIMILAR_ROWS
        topical = {each["feature_idx"] for each in self.labels[up.layer] if each["how"] == "contrast"}
        distance = (density.clamp_min(1e-6).log() - density[up.feature].clamp_min(1e-6).log()).abs()
        order = [
            index
            for index in distance.argsort().tolist()
            if index != up.feature and not bool(near[index]) and index not in topical and density[index] > 0
        ]
        pool = order[: 4 * n]
        return random.Random(f"{self.build.seed} {up}").sample(pool, min(n, len(pool)))

    def test(self, up: Node, down: list[Node]) -> list[dict[str, Any]]:
        """Take ``up`` out of every text and read all of ``down``."""
        rows = self.held_out_texts(up)
        others = self.controls(up)
        sums: dict[Node, list[list[float]]] = {
            node: [] for node in down
        }  # per text: base, ablated, direct, then controls
        for ids in rows:
            for node, values in self._one_text(up, down, others, ids).items():
                sums[node].append(values)
        return [self._verdict(up, node, torch.tensor(sums[node]), others) for node in down if sums[node]]

    def _one_text(self, up: Node, down: list[Node], others: list[int], ids: list[int]) -> dict[Node, list[float]]:
        streams, _ = self.model.read([ids], self.build.layers)
        sae = self.saes[up.layer]
        x = streams[up.layer]
        active = sae.encode_features(x, [up.feature])
        active[:, 0] = 0
        rows = sae.decoder_rows([up.feature, *others])
        removed = torch.stack([torch.zeros_like(x[0]), *(active[0] * row for row in rows)])
        layers = sorted({node.layer for node in down})
        found, _ = self.model.run_from(up.layer, x - removed, layers)
        values = {}
        for node in down:
            read = self.saes[node.layer]
            direct = streams[node.layer] - active * rows[0]
            every = torch.cat([found[node.layer], direct])
            total = read.encode_features(every, [node.feature])[:, 1:, 0].sum(dim=1).tolist()
            values[node] = [total[0], total[1], total[-1], *total[2:-1]]
        return values

    def _verdict(self, up: Node, down: Node, sums: Tensor, others: list[int]) -> dict[str, Any]:
        used = sums[sums[:, 0] > 0]
        effects = _effects(used)
        generator = torch.Generator().manual_seed(self.build.seed)
        picks = torch.randint(max(1, len(used)), (RESAMPLES, max(1, len(used))), generator=generator)
        resampled = torch.stack([_effects(used[pick])[0] for pick in picks]) if len(used) else torch.zeros(1)
        effect, direct, controls = float(effects[0]), float(effects[1]), effects[2:]
        low = float(resampled.quantile(0.05))
        largest = float(controls.max()) if len(controls) else 1.0
        passed = (
            len(used) >= LEAST_TEXTS
            and len(controls) >= CONTROLS
            and effect >= LEAST_EFFECT
            and effect > largest
            and low > largest
        )
        cosine = torch.nn.functional.cosine_similarity(
            self.saes[up.layer].decoder_row(up.feature), self.saes[down.layer].decoder_row(down.feature), dim=0
        )
        share = max(0.0, min(1.0, direct / effect)) if effect > 0 else None
        return {
            "up": {"layer": up.layer, "feature_idx": up.feature},
            "down": {"layer": down.layer, "feature_idx": down.feature},
            "effect": round(effect, 4),
            "effect_low": round(low, 4),
            "effect_high": round(float(resampled.quantile(0.95)), 4),
            "controls": [round(float(each), 4) for each in controls],
            "control_features": others,
            "largest_control": round(largest, 4),
            "direct_effect": round(direct, 4),
            "direct_share": None if share is None else round(share, 3),
            "decoder_cosine": round(float(cosine), 3),
            "texts": len(used),
            "texts_tried": len(sums),
            "passed": bool(passed),
            "type": "persistence" if up.feature == down.feature or _mostly_direct(share, float(cosine)) else "computed",
            "coactivation": self._coactivation(up, down),
        }

    def _statistics(self, layer: int) -> tuple[Tensor, Tensor]:
        """Density of every feature on a sample of training tokens, and which fire where as [tokens, k] indices."""
        if layer not in self._fired:
            indices = []
            for chunk in self._train:
                if len(chunk["ids"]):
                    values, index = encode_sparse(self.saes[layer], chunk[f"layer_{layer}"].float())
                    indices.append(torch.where(values > 0, index, -1))
            found = torch.cat(indices)
            counts = torch.bincount(found[found >= 0], minlength=self.build.d_sae)
            self._fired[layer] = (counts / len(found), found)
        return self._fired[layer]

    def _coactivation(self, up: Node, down: Node) -> dict[str, float | int]:
        """How often both fire at the same token of training texts."""
        _, above = self._statistics(up.layer)
        _, below = self._statistics(down.layer)
        first, second = (above == up.feature).any(dim=1), (below == down.feature).any(dim=1)
        both, n = int((first & second).sum()), len(first)
        expected = float(first.sum()) * float(second.sum()) / n
        lift = both / expected if expected > 0 else 0.0
        return {"support": both, "lift": round(lift, 2), "pmi": round(math.log(lift), 3) if lift > 0 else 0.0}


def _mostly_direct(direct_share: float | None, cosine: float) -> bool:
    """Whether the downstream feature reads, for the larger part, what the upstream one wrote, unchanged."""
    return cosine > SAME_DIRECTION or (direct_share is not None and direct_share >= MOSTLY_DIRECT)


def _effects(sums: Tensor) -> Tensor:
    """Share of the downstream activation that goes: by the ablation, by the direct path, by each control."""
    if not len(sums):
        return torch.zeros(sums.shape[1] - 1)
    total = sums.sum(dim=0)
    return 1 - total[1:] / total[0]


def removed_everywhere(sae: Sae, x: Tensor, features: list[int]) -> Tensor:
    """``x`` without what ``features`` contribute, the first position left alone."""
    active = sae.encode_features(x, features)
    active[:, 0] = 0
    return x - active @ sae.decoder_rows(features)


if __name__ == "__main__":
    for edge in run(from_arguments(__doc__ or "")):
        print(
            edge["topic"], edge["up"], edge["down"], edge["effect"], edge["largest_control"], edge["direct_share"],
            edge["texts"], edge["passed"],
        )  # fmt: skip
