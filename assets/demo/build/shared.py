"""What several stages need: the trained SAEs, texts by their number, JSON files that appear whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.chats import PIECE_OFFSET
from assets.demo.build.chunks import chunk_files
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


# --- what a stage's result was made from ------------------------------------------------------------------------------


def fingerprint(*paths: Path) -> str:
    """A digest of files, a missing one included. A folder counts by its chunks' names and sizes: they are gigabytes."""
    digest = hashlib.sha256()
    for path in paths:
        if path.is_dir():
            found = "".join(f"{each.name} {each.stat().st_size}\n" for each in chunk_files(path)).encode()
        else:
            found = path.read_bytes() if path.exists() else b"missing"
        digest.update(f"{path.name} {len(found)}\n".encode())
        digest.update(found)
    return digest.hexdigest()


def is_made_from(build: Build, stage: str, mark: str) -> bool:
    """Whether what a stage left on disk was made from files of this fingerprint; else it begins anew."""
    path = build.state / "made-from" / stage
    return path.exists() and path.read_text(encoding="utf-8").strip() == mark


def note_made_from(build: Build, stage: str, mark: str) -> None:
    """Remember what a stage's result was made from."""
    path = build.state / "made-from" / stage
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(mark + "\n", encoding="utf-8")


def sae_files(build: Build) -> list[Path]:
    """The trained weights."""
    return [build.sae_folder(layer) / "sae_weights.safetensors" for layer in build.layers]


def label_file(build: Build, layer: int) -> Path:
    """A layer's labels in the pack."""
    return build.pack / "labels" / f"layer_{layer}.json"


def read_labels(build: Build) -> dict[int, list[dict[str, Any]]]:
    """Every layer's labels."""
    return {layer: read_json(label_file(build, layer))["labels"] for layer in build.layers}


# --- files ------------------------------------------------------------------------------------------------------------


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` so that the file is whole or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".part")
    scratch.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_json(path: Path) -> Any:
    """The JSON value of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def manifest_path(document: Path) -> Path:
    """Where the figures behind a document of the pack stand."""
    return document.with_name(document.name.removesuffix(".json") + ".manifest.json")


def manifest_of(document: Path) -> Any:
    """The figures behind a document of the pack."""
    return read_json(manifest_path(document))


def encode_sparse(sae: Sae, x: Tensor) -> tuple[Tensor, Tensor]:
    """Values and indices [n, k] of the active features of ``x`` [n, d_in]."""
    return sae.top_features(x, sae.config.k or 1)


def without(sae: Sae, hidden: Tensor, features: list[int]) -> Tensor:
    """``hidden`` with what ``features`` contribute taken out at every position but the first: x − Σ aᵢ · rowᵢ."""
    activations = sae.encode_features(hidden, features)
    activations[..., :1, :] = 0
    return hidden - activations @ sae.decoder_rows(features)
