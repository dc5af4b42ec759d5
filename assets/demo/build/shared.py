"""What several stages need: the trained SAEs, texts by their number, JSON files that appear whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.chats import PIECE_OFFSET
from assets.demo.build.settings import Build
from engine.saes.formats.loading import load_sae
from engine.saes.sae import Sae


def load_saes(build: Build) -> dict[int, Sae]:
    """The trained SAEs by layer, in float32, as the program loads them."""
    return {layer: load_sae(build.sae_folder(layer), dtype=torch.float32) for layer in build.layers}


def texts_by_number(build: Build) -> dict[int, str]:
    """Every text that was harvested, by the number its tokens carry."""
    found: dict[int, str] = {}
    pieces = build.state / "pieces.jsonl"
    with pieces.open(encoding="utf-8") as file:
        found |= {number: json.loads(line)["text"] for number, line in enumerate(file)}
    chats = build.state / "chats.jsonl"
    if chats.exists():
        with chats.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                chat = json.loads(line)
                found[PIECE_OFFSET + number] = f"{chat['prompt']}\n{chat['answer']}"
    return found


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` so that the file is whole or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_json(path: Path) -> Any:
    """The JSON value of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def encode_sparse(sae: Sae, x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and indices [n, k] of the active features of ``x`` [n, d_in]."""
    return sae.top_features(x, sae.config.k or 1)


def without(sae: Sae, hidden: Tensor, features: list[int]) -> Tensor:
    """``hidden`` with what ``features`` contribute taken out at every position but the first: x − Σ aᵢ · rowᵢ."""
    activations = sae.encode_features(hidden, features)
    activations[..., :1, :] = 0
    return hidden - activations @ sae.decoder_rows(features)
