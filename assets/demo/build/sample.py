"""A small part of what was measured, with the very texts it was measured on: ``sample.json`` in the pack.

Anyone who has the pack and the model can repeat it without the corpus; ``tests/assets/test_demo_measured.py`` does. It
holds held-out chats of the model with each SAE's figures on them, one circuit's first edge with every text it was
tested on, and what the sweep wrote down for one cluster at its sweet spot. Texts are token ids. Nothing is measured
here: the chats' figures come from the harvested activations, the edge's and the sweep's from those stages' results, so
that a repetition is a second measurement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build import corpus
from assets.demo.build.chats import PIECE_OFFSET
from assets.demo.build.chunks import chunk_files, load_chunk
from assets.demo.build.documents import documents_of
from assets.demo.build.edges import Bench, Node
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import (
    fingerprint,
    is_made_from,
    load_saes,
    manifest_of,
    note_made_from,
    read_json,
    sae_files,
    write_json,
)
from assets.demo.build.subjects import FIRST, load
from assets.demo.build.sweep import INTENSITIES, PROMPTS, ROWS, SAMPLES, TEMPERATURE, TOKENS, TOP_P
from assets.demo.build.topics import SWEEP_PROMPTS
from engine.saes.checks import measure

NAME = "sample.json"
CHATS = 12
MAY_BE_GIVEN = ("chat", "wordnet", "bible", "devil", "state", "bundled")
"""Sources of which a passage may be shipped with no more than a notice; ``SOURCES.md`` has it."""


def run(build: Build) -> Path:
    """Write ``sample.json``; kept while all that goes into it is the same."""
    target = build.pack / NAME
    documents = [path for kind in ("cluster", "circuit") for path in documents_of(build.pack, kind)]
    results = [build.state / name for name in ("edges.json", "sweep.json", "pieces.jsonl", "chats.jsonl")]
    mark = fingerprint(*sae_files(build), *documents, *results, build.activations)
    if target.exists() and is_made_from(build, "sample", mark):
        return target
    torch.set_num_threads(build.threads)
    found = {"chats": _chats(build), "edge": _edge(build), "sweep": _sweep(build)}
    write_json(target, {key: value for key, value in found.items() if value is not None})
    note_made_from(build, "sample", mark)
    return target


def rewrite_sweep(build: Build) -> None:
    """Put the sweep's part anew into the sample that is there."""
    target = build.pack / NAME
    found = read_json(target)
    swept = _sweep(build)
    if swept is not None:
        found["sweep"] = swept
    write_json(target, found)


def _chats(build: Build) -> dict[str, Any] | None:
    """The first held-out chats, and the SAEs' figures on their tokens from ``from`` on, as they were harvested."""
    bench_ids = _ChatIds(build)
    rows: list[dict[str, Any]] = []
    streams: dict[int, list[Tensor]] = {layer: [] for layer in build.layers}
    for path in chunk_files(build.activations):
        chunk = load_chunk(path)
        if not path.name.startswith("chat-"):
            continue
        for number in chunk["piece"][chunk["held_out"] == 1].unique().tolist():
            own = chunk["piece"] == number
            row = bench_ids.whole(int(number), chunk["ids"][own].tolist(), chunk["position"][own].tolist())
            if row is None or len(rows) == CHATS:
                continue
            rows.append(row)
            for layer, parts in streams.items():
                parts.append(chunk[f"layer_{layer}"][own].float())
    if not rows:
        return None
    layers = {}
    for layer, sae in load_saes(build).items():
        quality = measure(sae, torch.cat(streams[layer]))
        layers[str(layer)] = {
            "tokens": quality.n_tokens,
            "l0": quality.l0,
            "variance_explained": round(quality.variance_explained, 4),
        }
    return {"texts": rows, "layers": layers}


class _ChatIds:
    """A chat's tokens in full: the start all chats share was not harvested with each."""

    def __init__(self, build: Build) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(build.checkpoint))
        with (build.state / "chats.jsonl").open(encoding="utf-8") as file:
            self._lines = file.readlines()

    def whole(self, number: int, ids: list[int], positions: list[int]) -> dict[str, Any] | None:
        """None where a token in the middle was left out as a sink."""
        start = positions[0]
        if positions != list(range(start, start + len(ids))):
            return None
        prompt = json.loads(self._lines[number - PIECE_OFFSET])["prompt"]
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        begin = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return {"from": start, "ids": _joined([*begin[:start], *ids])}


def _edge(build: Build) -> dict[str, Any] | None:
    """The first edge of the first circuit of rung 2 or higher whose texts may all be given away, with those texts."""
    sources = {number: each.source for number, each in enumerate(corpus.read(build))}
    bench: Bench | None = None
    for name in read_json(build.pack / "pack.json")["circuits"]:
        path = build.pack / name
        manifest = manifest_of(path)
        if manifest["rung"] < 2:
            continue
        bench = bench or Bench(build)
        up = manifest["edges"][0]["up"]
        rows = bench.numbered_held_out_texts(Node(up["layer"], up["feature_idx"]))
        texts = [{"source": sources.get(number, "chat"), "ids": _joined(row)} for number, row in rows]
        if all(each["source"] in MAY_BE_GIVEN for each in texts):
            return {"circuit": path.name, "edge": 0, "texts": texts}
    return None


def _sweep(build: Build) -> dict[str, Any] | None:
    """Every answer the sweep noted for one cluster at its sweet spot, and the plain ones, with what writes them again.

    A row of a batch takes its own part of the generator's numbers, so the rows' places belong to it.
    """
    there = {path.name.split(".")[0]: path for path in documents_of(build.pack, "cluster")}
    topic = next((each for each in FIRST if each in there), None)
    if topic is None or build.test:
        return None
    intensity = read_json(there[topic])["budget"]["intensity"]
    subjects = load(build)
    place = [subject.key for subject in subjects].index(f"cluster {topic}")
    # Plain texts first, then subject by subject, intensity by intensity; see the loop of the sweep.
    steps = len(INTENSITIES) - 1
    first = SAMPLES * (1 + place * steps + INTENSITIES.index(intensity) - 1)
    if first + SAMPLES > ROWS:
        raise ValueError(f"{topic} does not stand in the sweep's first batch")
    texts = read_json(build.state / "sweep.json")["texts"]
    questions = []
    for number, prompt in enumerate(SWEEP_PROMPTS[:PROMPTS]):
        keys = {"plain": f"unsteered | 0 | {number}", "steered": f"cluster {topic} | {intensity:g} | {number}"}
        found = {
            name: [_facts(texts[f"{key} | {sample}"], topic) for sample in range(SAMPLES)] for name, key in keys.items()
        }
        questions.append({"prompt": prompt, "seed": build.seed + number, **found})
    return {
        "cluster": there[topic].name,
        "topic": topic,
        "intensity": intensity,
        "sampling": {"tokens": TOKENS, "temperature": TEMPERATURE, "top_p": TOP_P},
        "batch_rows": min(ROWS, SAMPLES * (1 + len(subjects) * steps)),
        "plain_rows": list(range(SAMPLES)),
        "steered_rows": list(range(first, first + SAMPLES)),
        "questions": questions,
    }


def _joined(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def _facts(text: dict[str, Any], topic: str) -> dict[str, float]:
    return {
        "tokens": text["tokens"],
        "loss": text["loss"],
        "trigrams": text["trigrams"],
        "words": text["words"][topic],
        "features": text["features"][f"cluster {topic}"],
    }


if __name__ == "__main__":
    print(run(from_arguments(__doc__ or "")))
