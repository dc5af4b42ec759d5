"""How good the SAEs are, on documents not seen in training: variance explained, loss recovered, L0, dead features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assets.demo.build import corpus
from assets.demo.build.chunks import chunk_files, load_chunk
from assets.demo.build.model import Model
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
from engine.saes.checks import SINK_FACTOR, measure
from engine.saes.sae import Sae

LOSS_TEXTS = 24
LOSS_WIDTH = 72


def run(build: Build) -> dict[str, Any]:
    """Measure everything and write ``quality.json``; what is there is kept while SAEs and activations are the same."""
    target = build.state / "quality.json"
    mark = fingerprint(build.state / "training.json", build.activations, *sae_files(build))
    if target.exists() and is_made_from(build, "quality", mark):
        return dict(read_json(target))
    torch.set_num_threads(build.threads)
    saes = load_saes(build)
    files = chunk_files(build.activations)
    report: dict[str, Any] = {"training": read_json(build.state / "training.json"), "layers": {}}
    fired = {layer: torch.zeros(build.d_sae, dtype=torch.bool) for layer in build.layers}
    held: dict[str, dict[int, list[Tensor]]] = {}
    tokens = {"plain": 0, "chat": 0}
    for path in files:
        chunk = load_chunk(path)
        kind = path.name.split("-")[0]
        tokens[kind] += len(chunk["ids"])
        out = chunk["held_out"] == 1
        for layer, sae in saes.items():
            stream = chunk[f"layer_{layer}"]
            held.setdefault(kind, {}).setdefault(layer, []).append(stream[out].float())
            some = stream[~out][:2048].float()
            if len(some):
                fired[layer] |= (sae.encode(some) > 0).any(dim=0)
    report["harvested_tokens"] = tokens
    for layer, sae in saes.items():
        facts: dict[str, Any] = {}
        for kind, parts in held.items():
            if sum(map(len, parts[layer])) > 1:
                facts[kind] = _facts(sae, torch.cat(parts[layer]))
        everything = torch.cat([each for parts in held.values() for each in parts[layer]])
        facts["all"] = _facts(sae, everything)
        facts["dead_on_training_sample"] = int((~fired[layer]).sum())
        facts["bytes"] = (build.sae_folder(layer) / "sae_weights.safetensors").stat().st_size
        report["layers"][str(layer)] = facts
    for layer, loss in _losses(build, saes).items():
        report["layers"][str(layer)]["loss"] = loss
    write_json(target, report)
    note_made_from(build, "quality", mark)
    return report


def _facts(sae: Sae, x: Tensor) -> dict[str, float | int]:
    quality = measure(sae, x)
    return {
        "tokens": quality.n_tokens,
        "variance_explained": round(quality.variance_explained, 4),
        "l0": round(quality.l0, 2),
        "median_norm": round(quality.median_norm, 2),
    }


@torch.inference_mode()
def _losses(build: Build, saes: dict[int, Sae]) -> dict[int, dict[str, float]]:
    """Loss of the next token with the stream as it is, rebuilt by the SAE, replaced by the mean, replaced by zero.

    Sinks stay as they are in all of them. Recovered = (replaced − rebuilt) ÷ (replaced − as it is).
    """
    model = Model(build)
    rows = [model.ids(each.text)[:LOSS_WIDTH] for each in corpus.read(build) if each.held_out]
    rows = [row for row in rows if len(row) >= 24][: LOSS_TEXTS if not build.test else 3]
    sums = {layer: dict.fromkeys(("base", "rebuilt", "mean", "zero"), 0.0) for layer in saes}
    count = 0
    for row in rows:
        streams, _ = model.read([row], build.layers)
        target = torch.tensor(row[1:])
        count += len(target)
        for layer, sae in saes.items():
            x = streams[layer]
            norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            sink = norms > SINK_FACTOR * norms.median()
            sink[:, 0] = True
            variants = [x, torch.where(sink, x, sae.reconstruct(x)), torch.where(sink, x, sae.b_dec), x * sink]
            _, logits = model.run_from(layer, torch.cat(variants), head=True)
            assert logits is not None
            logs = logits[:, :-1].float().log_softmax(dim=-1)
            found = -logs.gather(2, target[None, :, None].expand(4, -1, 1))[..., 0].sum(dim=1)
            for name, value in zip(sums[layer], found.tolist(), strict=True):
                sums[layer][name] += value
    result = {}
    for layer, total in sums.items():
        mean = {name: value / count for name, value in total.items()}
        rounded = {name: round(value, 4) for name, value in mean.items()}
        rounded["recovered_of_zero"] = round((mean["zero"] - mean["rebuilt"]) / (mean["zero"] - mean["base"]), 4)
        rounded["recovered_of_mean"] = round((mean["mean"] - mean["rebuilt"]) / (mean["mean"] - mean["base"]), 4)
        rounded["texts"], rounded["tokens"] = len(rows), count
        result[layer] = rounded
    return result


if __name__ == "__main__":
    found = run(from_arguments(__doc__ or ""))
    print(found["layers"])
