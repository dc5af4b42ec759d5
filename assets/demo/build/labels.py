"""Names for features, each with how it was found: by contrast between topics, or by the token it fires on.

Contrast: a feature is on for a topic's sentences and off for all others'. Its confidence is measured elsewhere: of the
40 strongest activations in the corpus, the share that stands in texts with the topic's words, beyond what chance gives.
Token: of the 40 strongest activations, at least 60 % are on one token; that share is the confidence. Texts of the
corpus are never quoted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build import topics
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
    read_labels,
    sae_files,
    texts_by_number,
    write_json,
)
from assets.demo.build.topics import NEUTRAL_SENTENCES, TOPICS, Topic
from engine.saes.sae import Sae

STRONGEST = 40
MOST_DENSE = 0.06
PER_TOPIC = 4
ONE_TOKEN = 0.6
LEAST_CONFIDENCE = 0.3
SAMPLE = 120_000
"""Tokens of the corpus that statistics are taken from."""


@dataclass(frozen=True)
class Statistics:
    """Per feature over the sample: share of tokens it fires on, largest and mean activation, its strongest tokens."""

    density: Tensor
    largest: Tensor
    mean_active: Tensor
    strongest: dict[int, list[tuple[float, int, int]]]
    """Feature to (activation, token id, text number), strongest first."""
    n_tokens: int


def run(build: Build) -> dict[int, list[dict[str, Any]]]:
    """Label every layer; writes ``labels/layer_N.json`` into the pack and returns the labels by layer.

    Those that are there are kept while SAEs, activations and topics are the same.
    """
    mark = fingerprint(Path(topics.__file__), build.activations, *sae_files(build))
    if is_made_from(build, "labels", mark) and all(label_file(build, layer).exists() for layer in build.layers):
        return read_labels(build)
    torch.set_num_threads(build.threads)
    saes = load_saes(build)
    model = Model(build, depth=build.layers[-1] + 1)
    texts = texts_by_number(build)
    on_topic = {topic.name: _texts_on(topic, texts) for topic in TOPICS if topic.words}
    sentences = _sentence_activations(build, model, saes)
    found = {}
    for layer, sae in saes.items():
        statistics = _statistics(build, layer, sae)
        least = LEAST_CONFIDENCE if not build.test else 0.0
        labels = _by_contrast(model, sentences[layer], statistics, on_topic, len(texts), least)
        labels += _by_token(model, statistics, {each["feature_idx"] for each in labels})
        found[layer] = labels[: max(build.labels_per_layer, sum(each["how"] == "contrast" for each in labels))]
        document = {
            "sae_id": build.sae_id(layer),
            "layer": layer,
            "n_tokens": statistics.n_tokens,
            "labels": found[layer],
        }
        write_json(label_file(build, layer), document)
    note_made_from(build, "labels", mark)
    return found


# --- statistics -------------------------------------------------------------------------------------------------------


def _statistics(build: Build, layer: int, sae: Sae) -> Statistics:
    values, features, tokens, numbers = [], [], [], []
    fired = torch.zeros(build.d_sae)
    seen = 0
    files = chunk_files(build.activations)
    each_file = max(256, SAMPLE // max(1, len(files)))
    for path in files:
        chunk = load_chunk(path)
        # A stretch of whole texts rather than scattered tokens; chats' chunks are smaller than packages'.
        part = slice(0, each_file)
        found, index = encode_sparse(sae, chunk[f"layer_{layer}"][part].float())
        active = found > 0
        fired += torch.bincount(index[active], minlength=build.d_sae)
        seen += len(found)
        values.append(found[active])
        features.append(index[active])
        tokens.append(chunk["ids"][part, None].expand_as(index)[active])
        numbers.append(chunk["piece"][part, None].expand_as(index)[active])
    value, feature = torch.cat(values), torch.cat(features)
    token, number = torch.cat(tokens), torch.cat(numbers)
    order = value.argsort(descending=True)
    order = order[feature[order].argsort(stable=True)]
    value, feature, token, number = value[order], feature[order], token[order], number[order]
    counts = torch.bincount(feature, minlength=build.d_sae)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    sums = torch.zeros(build.d_sae).scatter_add_(0, feature, value)
    strongest, largest = {}, torch.zeros(build.d_sae)
    for feature_idx in range(build.d_sae):
        start, stop = int(starts[feature_idx]), int(starts[feature_idx + 1])
        if stop == start:
            continue
        largest[feature_idx] = value[start]
        stop = min(stop, start + STRONGEST)
        rows = zip(value[start:stop].tolist(), token[start:stop].tolist(), number[start:stop].tolist(), strict=True)
        strongest[feature_idx] = list(rows)
    return Statistics(fired / seen, largest, sums / counts.clamp_min(1), strongest, seen)


def _sentence_activations(build: Build, model: Model, saes: dict[int, Sae]) -> dict[int, Tensor]:
    """Mean activation over each sentence's tokens but the first, by layer: [sentences, d_sae]."""
    rows = [model.ids(each)[:64] for each in _all_sentences()]
    parts: dict[int, list[Tensor]] = {layer: [] for layer in saes}
    for start in range(0, len(rows), 16):
        streams, mask = model.read(rows[start : start + 16], build.layers)
        mask = mask.clone()
        mask[:, 0] = False
        for layer, sae in saes.items():
            f = sae.encode(streams[layer]) * mask[..., None]
            parts[layer].append(f.sum(dim=1) / mask.sum(dim=1, keepdim=True))
    return {layer: torch.cat(each) for layer, each in parts.items()}


def _all_sentences() -> list[str]:
    return [sentence for topic in TOPICS for sentence in topic.sentences] + list(NEUTRAL_SENTENCES)


# --- by contrast ------------------------------------------------------------------------------------------------------


def contrast_scores(sentences: Tensor) -> Tensor:
    """(mean on − mean off) × (share on − share off) of every topic and feature: [topics, d_sae]."""
    scores = []
    start = 0
    for topic in TOPICS:
        on = torch.zeros(len(sentences), dtype=torch.bool)
        on[start : start + len(topic.sentences)] = True
        start += len(topic.sentences)
        mean = sentences[on].mean(dim=0) - sentences[~on].mean(dim=0)
        share = (sentences[on] > 0).float().mean(dim=0) - (sentences[~on] > 0).float().mean(dim=0)
        scores.append(mean.clamp_min(0) * share.clamp_min(0))
    return torch.stack(scores)


def _by_contrast(
    model: Model, sentences: Tensor, statistics: Statistics, on_topic: dict[str, set[int]], n_texts: int, least: float
) -> list[dict[str, Any]]:
    scores = contrast_scores(sentences)
    scores[:, statistics.density > MOST_DENSE] = 0
    best = scores.max(dim=0)
    found = []
    for position, topic in enumerate(TOPICS):
        rank = 0
        for feature in scores[position].argsort(descending=True).tolist()[: 3 * PER_TOPIC]:
            score = float(scores[position, feature])
            if rank == PER_TOPIC or score <= 0 or int(best.indices[feature]) != position:
                continue
            confidence = _confidence(topic, feature, statistics, on_topic, n_texts)
            if confidence is not None and confidence < least:
                continue
            rank += 1
            found.append(
                _label(model, feature, topic.label, statistics)
                | {
                    "how": "contrast",
                    "topic": topic.name,
                    "rank": rank,
                    "contrast_score": round(score, 3),
                    "confidence": confidence,
                }
            )
    return found


def _confidence(
    topic: Topic, feature: int, statistics: Statistics, on_topic: dict[str, set[int]], n_texts: int
) -> float | None:
    """None where the topic has no words to check by."""
    rows = statistics.strongest.get(feature, [])
    if topic.name not in on_topic:
        return None
    if not rows:
        return 0.0
    chance = len(on_topic[topic.name]) / max(1, n_texts)
    share = sum(number in on_topic[topic.name] for _, _, number in rows) / len(rows)
    return round(max(0.0, (share - chance) / (1 - chance)), 3)


def _texts_on(topic: Topic, texts: dict[int, str]) -> set[int]:
    """Texts in which at least two words are the topic's."""
    return {
        number
        for number, text in texts.items()
        if sum(word in topic.words for word in re.findall(r"[a-z']+", text.lower())) >= 2
    }


# --- by token ---------------------------------------------------------------------------------------------------------


def _by_token(model: Model, statistics: Statistics, taken: set[int]) -> list[dict[str, Any]]:
    found = []
    for feature, rows in statistics.strongest.items():
        if feature in taken or len(rows) < STRONGEST or float(statistics.density[feature]) > MOST_DENSE:
            continue
        counts = Counter(_plain(model, token) for _, token, _ in rows)
        word, times = counts.most_common(1)[0]
        share = times / len(rows)
        if share < ONE_TOKEN or not word or len({number for _, _, number in rows}) < STRONGEST // 4:
            continue
        label = _label(model, feature, f'the token "{word}"', statistics)
        found.append(label | {"how": "token", "confidence": round(share, 3)})
    found.sort(key=lambda each: (-(each["confidence"] or 0), -each["density"], each["feature_idx"]))
    # One feature for a word: the surest.
    surest: dict[str, dict[str, Any]] = {}
    for each in found:
        surest.setdefault(each["label"], each)
    return list(surest.values())


def _plain(model: Model, token: int) -> str:
    return str(model.tokenizer.decode([token])).strip().lower()


def _label(model: Model, feature: int, label: str, statistics: Statistics) -> dict[str, Any]:
    rows: Sequence[tuple[float, int, int]] = statistics.strongest.get(feature, [])
    tokens = Counter(str(model.tokenizer.decode([token])) for _, token, _ in rows)
    return {
        "feature_idx": feature,
        "label": label,
        "source": "demo pack",
        "top_tokens": [token for token, _ in tokens.most_common(8)],
        "density": round(float(statistics.density[feature]), 5),
        "max_activation": round(float(statistics.largest[feature]), 2),
        "mean_activation": round(float(statistics.mean_active[feature]), 2),
    }


if __name__ == "__main__":
    for layer, labels in run(from_arguments(__doc__ or "")).items():
        print(layer, len(labels), sum(each["how"] == "contrast" for each in labels))
