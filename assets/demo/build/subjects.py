"""What is to be steered: clusters on one layer, circuits over several, profiles; with strengths at intensity 1.

At intensity 1 the strengths of a set sum to :data:`TOTAL` of its layer's median norm, in equal shares; over several
layers each gets an equal part of the total. The vector they add together is shorter, as its features are not parallel:
:mod:`documents` says how long it is.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from assets.demo.build.settings import Build
from assets.demo.build.shared import read_json, read_labels, write_json

TOTAL = 0.3
CLUSTERS, PROFILES, PASSED_CIRCUITS = 6, 6, 4
"""Candidates; those that steer become documents."""
FIRST = ("sea", "medicine")
"""Topics whose clusters are wanted for the first steps of the window, where they can be made."""
SUREST = 0.45
"""Confidence from which a feature joins a cluster of its topic."""
MOST_MEMBERS = 3


@dataclass(frozen=True)
class Subject:
    """A steering set. ``strengths``: layer → feature → strength at intensity 1."""

    kind: str
    topic: str
    strengths: dict[int, dict[int, float]]

    @property
    def key(self) -> str:
        """Unique among subjects."""
        return f"{self.kind} {self.topic}"


def choose(build: Build) -> list[Subject]:
    """The candidates; also written to ``subjects.json``."""
    labels = read_labels(build)
    quality = read_json(build.state / "quality.json")["layers"]
    norms = {layer: quality[str(layer)]["all"]["median_norm"] for layer in build.layers}
    tested = build.state / "edges.json"
    # Clusters and profiles can be swept while edges are still being tested.
    edges = read_json(tested) if tested.exists() else []
    middle = build.layers[len(build.layers) // 2]
    clusters = _clusters(labels[middle], build)
    subjects = [
        Subject("cluster", topic, {middle: _shared(features, TOTAL * norms[middle])}) for topic, features in clusters
    ]
    for topic, feature in _singles(labels[middle], [topic for topic, _ in clusters]):
        subjects.append(Subject("profile", topic, {middle: _shared([feature], TOTAL * norms[middle])}))
    for topic, chosen in circuits(edges).items():
        nodes: dict[int, set[int]] = {}
        for edge in chosen:
            for end in (edge["up"], edge["down"]):
                nodes.setdefault(end["layer"], set()).add(end["feature_idx"])
        each = TOTAL / len(nodes)
        strengths = {layer: _shared(sorted(nodes[layer]), each * norms[layer]) for layer in sorted(nodes)}
        subjects.append(Subject("circuit", topic, strengths))
    write_json(build.state / "subjects.json", [asdict(subject) for subject in subjects])
    return subjects


def circuits(edges: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Topic → the edges of its circuit: the best whose tested edges all passed, and one, the worst, as it is.

    Of a topic with edges that failed, only those that passed make a circuit; a topic of which all passed comes first.
    The last circuit shows what falls short: all its edges, the failed ones included.
    """
    topics = dict.fromkeys(edge["topic"] for edge in edges)
    of = {topic: [edge for edge in edges if edge["topic"] == topic] for topic in topics}
    passed = {topic: [edge for edge in own if edge["passed"]] for topic, own in of.items()}

    def order(topic: str) -> tuple[int, float]:
        return (-len(passed[topic]), -min(edge["effect"] for edge in passed[topic]))

    good = sorted((topic for topic in of if passed[topic]), key=order)
    worst = min(of, key=lambda topic: (len(passed[topic]), min(edge["effect"] for edge in of[topic])), default=None)
    chosen = {topic: passed[topic] for topic in good[:PASSED_CIRCUITS] if topic != worst}
    if worst is not None:
        chosen[worst] = of[worst]
    return chosen


def load(build: Build) -> list[Subject]:
    """What :func:`choose` wrote."""
    return [
        Subject(
            each["kind"],
            each["topic"],
            {int(layer): {int(i): s for i, s in row.items()} for layer, row in each["strengths"].items()},
        )
        for each in read_json(build.state / "subjects.json")
    ]


def _clusters(labels: list[dict[str, Any]], build: Build) -> list[tuple[str, list[int]]]:
    """Topics with two to four sure features on the layer, the surest first."""
    found = []
    for topic in dict.fromkeys(each["topic"] for each in labels if each["how"] == "contrast"):
        own = [each for each in labels if each.get("topic") == topic and each["confidence"] is not None]
        own.sort(key=_sureness, reverse=True)
        sure = [each for each in own if each["confidence"] >= SUREST or build.test]
        # Two at least; a feature far weaker than the topic's best is seldom about the same thing.
        own = sure if len(sure) >= 2 else own[:2]
        own = [each for each in own if each["contrast_score"] >= 0.1 * own[0]["contrast_score"]][:MOST_MEMBERS]
        if len(own) >= 2:
            surest = sum(_sureness(each) for each in own[:2])
            found.append((surest, topic, [each["feature_idx"] for each in own]))
    found.sort(key=lambda each: (each[1] not in FIRST, -each[0], each[1]))
    return [(topic, features) for _, topic, features in found[:CLUSTERS]]


def _sureness(label: dict[str, Any]) -> float:
    """How clearly a feature is about its topic: by what was measured on the corpus and by the contrast."""
    return float(label["confidence"] * math.sqrt(max(0.0, label["contrast_score"])))


def _singles(labels: list[dict[str, Any]], clusters: list[str]) -> list[tuple[str, int]]:
    """The best feature of topics, those without a cluster first."""
    best: dict[str, dict[str, Any]] = {}
    for each in labels:
        if each["how"] == "contrast" and each["confidence"] is not None and each["rank"] == 1:
            best[each["topic"]] = each

    def order(each: dict[str, Any]) -> tuple[bool, float]:
        return each["topic"] in clusters, -each["confidence"] * each["contrast_score"]

    return [(each["topic"], each["feature_idx"]) for each in sorted(best.values(), key=order)[:PROFILES]]


def _shared(features: list[int], total: float) -> dict[int, float]:
    return {feature: round(total / len(features), 2) for feature in features}
