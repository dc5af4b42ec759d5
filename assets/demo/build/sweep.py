"""The dial against topic and fluency: every subject at every intensity, sampled with fixed seeds.

Topic twice: the share of the topic's words, and the subject's own features on an *unsteered* reading of the finished
text. Fluency twice: the unsteered model's perplexity of the text, and the share of trigrams that are repeated. From
these come onset, sweet spot and cliff, by the rules in :func:`calibrate`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build import topics
from assets.demo.build.model import Model, Reader, row_losses
from assets.demo.build.settings import Build, from_arguments
from assets.demo.build.shared import (
    fingerprint,
    is_made_from,
    load_saes,
    note_made_from,
    read_json,
    sae_files,
    write_json,
)
from assets.demo.build.subjects import Subject, choose
from assets.demo.build.topics import BY_NAME, SWEEP_PROMPTS
from engine.actions.sweeping.measures import repeated_trigrams
from engine.models.backends.residual import Intervention
from engine.saes.sae import Sae

INTENSITIES = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
SAMPLES, PROMPTS = 3, 4
TOKENS = 36
TEMPERATURE = 0.7
TOP_P = 0.95
ROWS = 64

ONSET_WORDS, ONSET_FEATURES = 1.5, 2.0
"""Onset: topic words above this many percentage points, or features above this many times, the unsteered text's."""
FLUENT_PERPLEXITY, FLUENT_TRIGRAMS = 2.0, 0.15
"""Fluent: perplexity below this many times the unsteered text's, repeated trigrams at most this much above."""
BROKEN_PERPLEXITY, BROKEN_TRIGRAMS = 2.5, 0.35
"""Cliff: the first intensity beyond the sweet spot with either of these."""


def run(build: Build, subjects: list[Subject] | None = None) -> dict[str, list[dict[str, float]]]:
    """Sweep all subjects; writes ``sweep.json`` (after each batch) and returns its curves.

    Texts that are in it are kept while SAEs and topics, and the subject's own strengths, are the same.
    """
    torch.set_num_threads(build.threads)
    subjects = choose(build) if subjects is None else subjects
    target = build.state / "sweep.json"
    mark = fingerprint(Path(topics.__file__), *sae_files(build))
    kept = target.exists() and is_made_from(build, "sweep", mark)
    done: dict[str, Any] = read_json(target) if kept else {"texts": {}, "curves": {}, "strengths": {}}
    _forget_changed(done, subjects)
    write_json(target, done)
    note_made_from(build, "sweep", mark)
    bench: tuple[Model, dict[int, Sae]] | None = None
    intensities = INTENSITIES if not build.test else (0.0, 1.0)
    prompts = SWEEP_PROMPTS[:PROMPTS] if not build.test else SWEEP_PROMPTS[:1]
    for number, prompt in enumerate(prompts):
        jobs: list[Job] = [(None, 0.0, sample) for sample in range(SAMPLES)]
        jobs += [
            (subject, intensity, sample)
            for subject in subjects
            for intensity in intensities[1:]
            for sample in range(SAMPLES)
        ]
        jobs = [job for job in jobs if not _have(job, number, done["texts"], subjects)]
        for start in range(0, len(jobs), ROWS):
            bench = bench or (Model(build), load_saes(build))
            model, saes = bench
            batch = jobs[start : start + ROWS]
            for job, facts in zip(batch, _sample(build, model, saes, subjects, prompt, number, batch), strict=True):
                done["texts"][_key(job, number)] = facts
            write_json(target, done)
            print(f"sweep: prompt {number + 1}, {start + len(batch)} of {len(jobs)} texts", flush=True)
    done["curves"] = {subject.key: _curve(subject, intensities, len(prompts), done["texts"]) for subject in subjects}
    write_json(target, done)
    return dict(done["curves"])


def _forget_changed(done: dict[str, Any], subjects: list[Subject]) -> None:
    """Take out the texts of subjects whose strengths are others now."""
    for subject in subjects:
        now = {str(layer): {str(i): s for i, s in row.items()} for layer, row in subject.strengths.items()}
        if done["strengths"].get(subject.key) == now:
            continue
        done["strengths"][subject.key] = now
        done["texts"] = {key: facts for key, facts in done["texts"].items() if not key.startswith(f"{subject.key} | ")}
        for facts in done["texts"].values():
            facts["features"].pop(subject.key, None)


Job = tuple[Subject | None, float, int]


def _key(job: Job, prompt: int) -> str:
    subject, intensity, sample = job
    return f"{subject.key if subject else 'unsteered'} | {intensity:g} | {prompt} | {sample}"


def _have(job: Job, prompt: int, texts: dict[str, Any], subjects: list[Subject]) -> bool:
    """Whether a text is there; an unsteered one must have been read for every subject."""
    found = texts.get(_key(job, prompt))
    return found is not None and (job[0] is not None or all(each.key in found["features"] for each in subjects))


def _sample(
    build: Build,
    model: Model,
    saes: dict[int, Sae],
    subjects: list[Subject],
    prompt: str,
    number: int,
    batch: list[Job],
) -> list[dict[str, Any]]:
    ids = model.chat_ids(prompt)
    deltas = {layer: torch.zeros(len(batch), model.d_model) for layer in build.layers}
    for row, (subject, intensity, _) in enumerate(batch):
        if subject is not None:
            for layer, strengths in subject.strengths.items():
                deltas[layer][row] = saes[layer].delta({i: s * intensity for i, s in strengths.items()})
    written = model.write(
        [ids] * len(batch),
        TOKENS if not build.test else 8,
        deltas=deltas,
        generator=torch.Generator().manual_seed(build.seed + number),
        temperature=TEMPERATURE,
        top_p=TOP_P,
    )
    facts: list[dict[str, Any]] = []
    for start in range(0, len(batch), 16):
        part = written[start : start + 16]
        # Read where it was written, after the whole prompt: as the Sweep page reads.
        losses, readings = _reread(model, saes, [[*ids, *each.ids] for each in part], len(ids))
        for offset, each in enumerate(part):
            subject = batch[start + offset][0]
            wanted = [subject] if subject is not None else subjects
            facts.append(
                {
                    "tokens": len(each.ids),
                    "loss": losses[offset],
                    "trigrams": round(repeated_trigrams(each.ids), 4),
                    "words": {item.topic: round(BY_NAME[item.topic].share(each.text), 4) for item in wanted},
                    "features": {item.key: _reading(item, readings, offset) for item in wanted},
                }
            )
    return facts


@torch.inference_mode()
def _reread(
    model: Model, saes: dict[int, Sae], rows: list[list[int]], start: int
) -> tuple[list[float | None], dict[int, list[Tensor]]]:
    """One unsteered pass over finished texts: loss from ``start`` on, and by layer each text's mean activations."""
    reader = Reader()
    logits, _ = model.logits(rows, Intervention(observers=dict.fromkeys(saes, (reader,))))
    found: dict[int, list[Tensor]] = {}
    for layer, sae in saes.items():
        found[layer] = []
        for number, row in enumerate(rows):
            part = reader.seen[layer][number, start : len(row)]
            found[layer].append(sae.encode(part).mean(dim=0) if len(part) else torch.zeros(sae.config.d_sae))
    losses = row_losses(logits, rows, [start] * len(rows))
    return [None if math.isnan(loss) else round(loss, 4) for loss in losses], found


def _reading(subject: Subject, readings: dict[int, list[Tensor]], row: int) -> float:
    total = sum(float(readings[layer][row][index]) for layer, part in subject.strengths.items() for index in part)
    return round(total, 4)


def _curve(
    subject: Subject, intensities: tuple[float, ...], prompts: int, texts: dict[str, Any]
) -> list[dict[str, float]]:
    """Means over prompts and samples at each intensity; perplexity is of the mean loss per token."""
    curve = []
    for intensity in intensities:
        of = subject if intensity else None
        facts = [texts[_key((of, intensity, sample), p)] for p in range(prompts) for sample in range(SAMPLES)]
        weighed = [(each["loss"], each["tokens"]) for each in facts if each["loss"] is not None]
        loss = sum(a * b for a, b in weighed) / max(1, sum(b for _, b in weighed))
        curve.append(
            {
                "intensity": intensity,
                "words": round(sum(each["words"][subject.topic] for each in facts) / len(facts), 4),
                "features": round(sum(each["features"][subject.key] for each in facts) / len(facts), 3),
                "perplexity": round(math.exp(min(loss, 20.0)), 2),
                "trigrams": round(sum(each["trigrams"] for each in facts) / len(facts), 4),
                "texts": len(facts),
            }
        )
    return curve


def calibrate(curve: list[dict[str, float]]) -> dict[str, Any] | None:
    """Onset, sweet spot and cliff of a curve; None where no intensity is both on topic by both measures and fluent.

    Onset: the least intensity at which words and features both exceed the unsteered text's (see the constants). Sweet
    spot: the fluent intensity from there on with the most of both, each as a share of the curve's largest. Cliff: the
    first intensity beyond it where the text breaks, the end of the dial where it does not.
    """
    base = curve[0]

    def on_topic(point: dict[str, float]) -> bool:
        words = point["words"] - base["words"] >= ONSET_WORDS / 100
        return words and point["features"] >= ONSET_FEATURES * max(base["features"], 0.05)

    def fluent(point: dict[str, float]) -> bool:
        few = point["trigrams"] <= base["trigrams"] + FLUENT_TRIGRAMS
        return few and point["perplexity"] <= FLUENT_PERPLEXITY * base["perplexity"]

    def broken(point: dict[str, float]) -> bool:
        many = point["trigrams"] >= base["trigrams"] + BROKEN_TRIGRAMS
        return many or point["perplexity"] >= BROKEN_PERPLEXITY * base["perplexity"]

    onset = next((point for point in curve[1:] if on_topic(point)), None)
    if onset is None:
        return None
    most_words = max(point["words"] for point in curve)
    most_features = max(point["features"] for point in curve)
    usable = [p for p in curve if p["intensity"] >= onset["intensity"] and fluent(p) and on_topic(p)]
    if not usable:
        return None
    sweet = max(usable, key=lambda p: p["words"] / most_words + p["features"] / most_features)
    beyond = [point for point in curve if point["intensity"] > sweet["intensity"]]
    cliff = next((point["intensity"] for point in beyond if broken(point)), curve[-1]["intensity"])
    rising = [point["words"] for point in curve if point["intensity"] <= sweet["intensity"]]
    return {
        "onset": onset["intensity"],
        "sweet_spot": sweet["intensity"],
        "cliff": cliff,
        "non_monotone": rising != sorted(rising),
        "cliff_seen": any(broken(point) for point in beyond),
    }


if __name__ == "__main__":
    for key, curve in run(from_arguments(__doc__ or "")).items():
        print(key, calibrate(curve))
        for point in curve:
            print("   ", point)
