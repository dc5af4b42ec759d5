"""Activations of the packages' texts at the three layers, in chunks; goes on after the last whole chunk."""

from __future__ import annotations

import json
import time

import torch

from assets.demo.build import corpus
from assets.demo.build.chunks import ChunkWriter
from assets.demo.build.model import Model
from assets.demo.build.settings import Build, from_arguments

ROWS = 16
WIDTH = 128
WINDOW = 256
"""Pieces sorted by length together, so that rows of a batch need little padding."""


def harvest(build: Build) -> int:
    """Harvest up to ``plain_tokens``; the number there are afterwards."""
    progress = build.state / "harvest.json"
    done = json.loads(progress.read_text()) if progress.exists() else {"pieces": 0, "tokens": 0}
    if done["tokens"] >= build.plain_tokens or done.get("all"):
        return int(done["tokens"])
    model = Model(build, depth=build.layers[-1] + 1)
    pieces = list(corpus.read(build))
    writer = ChunkWriter(build.activations, "plain", build.layers)
    began, since = time.monotonic(), 0
    number = int(done["pieces"])
    while number < len(pieces) and done["tokens"] < build.plain_tokens:
        window = [(number + i, each) for i, each in enumerate(pieces[number : number + WINDOW])]
        rows = [(i, each, model.ids(each.text)[:WIDTH]) for i, each in window]
        rows.sort(key=lambda row: len(row[2]))
        kept = 0
        for start in range(0, len(rows), ROWS):
            batch = rows[start : start + ROWS]
            streams, mask = model.read([ids for _, _, ids in batch], build.layers)
            numbers = torch.tensor([i for i, _, _ in batch])[:, None].expand_as(mask)
            held = torch.tensor([each.held_out for _, each, _ in batch])[:, None].expand_as(mask)
            positions = torch.arange(mask.shape[1])[None, :].expand_as(mask)
            ids, _ = model._padded([ids for _, _, ids in batch])
            flat = {layer: stream[mask] for layer, stream in streams.items()}
            writer.add(flat, ids[mask], numbers[mask], positions[mask], held[mask])
            kept += int(mask.sum())
        # A window is a chunk, so that progress and files always agree.
        writer.flush(force=True)
        number += len(window)
        since += kept
        done = {"pieces": number, "tokens": done["tokens"] + kept, "all": number >= len(pieces)}
        progress.write_text(json.dumps(done))
        print(f"plain: {done['tokens']} tokens, {since / (time.monotonic() - began):.0f} a second", flush=True)
    return int(done["tokens"])


if __name__ == "__main__":
    harvest(from_arguments(__doc__ or ""))
