"""The demo pack's files: where they lie, what they are, and whether the library has them. Imports nothing heavy."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
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


def read_measured(pack: Path, index: Any) -> dict[str, dict[str, float]]:
    """By layer the figures of the pack's SAEs on its model; empty for packs that bring none."""
    name = index.get("measured")
    return {} if name is None else dict(json.loads((pack / name).read_text(encoding="utf-8"))["layers"])


def digest_of(pack: Path) -> str:
    """A digest of everything that is installed from ``pack``."""
    index = read_index(pack)
    names = [INDEX, *index["labels"], *index["profiles"], *index["clusters"], *index["circuits"]]
    names += [f"{each['path']}/{name}" for each in index["saes"] for name in ("cfg.json", "sae_weights.safetensors")]
    if "measured" in index:
        names.append(index["measured"])
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode())
        digest.update((pack / name).read_bytes())
    return digest.hexdigest()


class PackStanding(Enum):
    """How the pack in a library compares with the one that lies here."""

    CURRENT = "current"
    MISSING = "missing"
    UNFINISHED = "unfinished"
    OLDER = "older"
    OTHER = "other"
    """Of the same version with other contents, or of a newer one."""


@dataclass(frozen=True)
class Content:
    """What a library holds of the pack. ``version``: that of what it holds, where it is known; ``here``: the pack's."""

    standing: PackStanding
    version: str | None = None
    here: str | None = None

    @property
    def in_words(self) -> str:
        """What is wrong, as the end of a sentence about the demo model; empty when nothing is."""
        match self.standing:
            case PackStanding.CURRENT:
                return ""
            case PackStanding.MISSING:
                return "but not the SAEs and documents that go with it; to add them: demo install"
            case PackStanding.UNFINISHED:
                return "but adding its SAEs and documents was cut short; to finish: demo install"
        which = f"version {self.version}" if self.version else "an early version"
        if self.standing is PackStanding.OLDER:
            return (
                f"but its demo pack is older ({which}, this program has version {self.here}); to upgrade: demo install"
            )
        return f"but its demo pack is another one ({which}, this program has {self.here}); to replace it: demo install"


def compare(remembered: Any, pack: Path) -> Content:
    """What a library remembers under :data:`STATE_KEY`, compared with ``pack``. Reads the whole pack."""
    here = str(read_index(pack)["version"])
    if not isinstance(remembered, dict):
        return Content(PackStanding.MISSING, here=here)
    version, digest = remembered.get("version"), remembered.get("digest")
    if not digest:
        return Content(PackStanding.UNFINISHED, version, here)
    if digest == digest_of(pack):
        return Content(PackStanding.CURRENT, version, here)
    return Content(PackStanding.OLDER if is_older(remembered, here) else PackStanding.OTHER, version, here)


def is_older(remembered: Any, here: str) -> bool:
    """Whether what a library remembers is a whole pack of a version before ``here``; at first none was remembered."""
    if not isinstance(remembered, dict) or not remembered.get("digest"):
        return False
    version = remembered.get("version")
    try:
        return version is None or int(version) < int(here)
    except ValueError:
        return False


def content_of(database: Path, pack: Path | None = None) -> Content:
    """What the library file holds of the pack that lies here; as it should be where none lies here.

    Only reads, without the lock of the data directory and without upgrading the file.
    """
    folder = pack or pack_folder()
    if not (folder / INDEX).is_file():
        return Content(PackStanding.CURRENT)
    if not database.is_file():
        return Content(PackStanding.MISSING)
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT value FROM state WHERE key = ?", (STATE_KEY,)).fetchone()
        return compare(None if row is None else json.loads(row[0]), folder)
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return Content(PackStanding.MISSING)


def content_is_current(database: Path, pack: Path | None = None) -> bool:
    """Whether the library file holds the pack that lies here; True where none lies here."""
    return content_of(database, pack).standing is PackStanding.CURRENT
