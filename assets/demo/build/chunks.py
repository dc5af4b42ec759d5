"""Harvested activations on disk: numbered safetensors files, each whole or absent, in float16.

A chunk holds ``layer_10`` … [n, d_model], and per token ``ids``, ``piece`` (which text it comes from), ``position`` (in
that text) and ``held_out``. Attention sinks are left out: the first position and whatever is above five times the
median norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.saes.checks import SINK_FACTOR


class ChunkWriter:
    """Collects tokens and writes a file whenever there are enough. ``kind`` is the first part of the name."""

    def __init__(self, folder: Path, kind: str, layers: Sequence[int], size: int = 8192) -> None:
        self._folder, self._kind, self._layers, self._size = folder, kind, layers, size
        folder.mkdir(parents=True, exist_ok=True)
        self._parts: list[dict[str, Tensor]] = []
        self._held = 0
        self.number = len(list(folder.glob(f"{kind}-*.safetensors")))

    def add(self, streams: dict[int, Tensor], ids: Tensor, piece: Tensor, position: Tensor, held_out: Tensor) -> None:
        """Keep the tokens that are no sinks; ``streams`` [n, d_model] each, the others [n]."""
        keep = position > 0
        for stream in streams.values():
            norms = torch.linalg.vector_norm(stream.float(), dim=-1)
            keep &= norms <= SINK_FACTOR * norms[position > 0].median()
        part = {f"layer_{layer}": stream[keep].to(torch.float16) for layer, stream in streams.items()}
        part |= {"ids": ids[keep].int(), "piece": piece[keep].int(), "position": position[keep].int()}
        part["held_out"] = held_out[keep].to(torch.uint8)
        self._parts.append(part)
        self._held += int(keep.sum())

    def flush(self, *, force: bool = False) -> bool:
        """Write a chunk if there is enough for one; whether one was written."""
        if not self._parts or (self._held < self._size and not force):
            return False
        whole = {name: torch.cat([part[name] for part in self._parts]).contiguous() for name in self._parts[0]}
        target = self._folder / f"{self._kind}-{self.number:04d}.safetensors"
        scratch = target.with_suffix(".part")
        save_file(whole, scratch)
        scratch.replace(target)
        self._parts, self._held = [], 0
        self.number += 1
        return True


def chunk_files(folder: Path) -> list[Path]:
    """The chunks there are."""
    return sorted(folder.glob("*.safetensors"))


def load_chunk(path: Path) -> dict[str, Tensor]:
    """One chunk's tensors."""
    return load_file(path)
