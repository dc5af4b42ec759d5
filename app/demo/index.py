"""The demo pack's files: where they lie, what they are, and whether the library has them. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

INDEX = "pack.json"
STATE_KEY = "demo_pack"
"""Under which the library remembers what came from the pack."""


def pack_folder() -> Path:
    """Where the pack's files lie: beside the packages, or in the folder a frozen program unpacks to."""
    root = Path(getattr(sys, "_MEIPASS", Path(__file__).resolve().parents[2]))
    return root / "assets" / "demo"


def read_index(pack: Path) -> Any:
    """The pack's index: its SAEs, labels and documents by path."""
    return json.loads((pack / INDEX).read_text(encoding="utf-8"))


def digest_of(pack: Path) -> str:
    """A digest of everything that is installed from ``pack``."""
    index = read_index(pack)
    names = [INDEX, *index["labels"], *index["profiles"], *index["clusters"], *index["circuits"]]
    names += [f"{each['path']}/{name}" for each in index["saes"] for name in ("cfg.json", "sae_weights.safetensors")]
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode())
        digest.update((pack / name).read_bytes())
    return digest.hexdigest()


def content_is_current(database: Path, pack: Path | None = None) -> bool:
    """Whether the library file holds the pack that lies here; True where none lies here.

    Only reads, without the lock of the data directory and without upgrading the file.
    """
    folder = pack or pack_folder()
    if not (folder / INDEX).is_file():
        return True
    if not database.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT value FROM state WHERE key = ?", (STATE_KEY,)).fetchone()
        return row is not None and json.loads(row[0])["digest"] == digest_of(folder)
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return False
