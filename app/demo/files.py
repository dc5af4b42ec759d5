"""Files that appear whole or not at all: checksums, manifests, and the rename that makes a folder real."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from app.demo.pack import MANIFEST

CHUNK = 1 << 20

Advance = Callable[[int], None]
"""Called with the number of bytes done since the last call."""


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def copy_hashed(source: IO[bytes], target: Path, advance: Advance | None = None) -> str:
    """Copy a stream into ``target``, flushed to the disk; returns the hex digest of what was written."""
    digest = hashlib.sha256()
    with target.open("wb") as file:
        while block := source.read(CHUNK):
            digest.update(block)
            file.write(block)
            if advance is not None:
                advance(len(block))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def write_manifest(folder: Path, source_sha256: str, known: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write down every file of ``folder`` with its length and digest, and what it was made from.

    ``known``: digests by name that were taken while the files were written; the others are read.
    """
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": known.get(path.name) or sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({"source_sha256": source_sha256, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def put_in_place(folder: Path, final: Path) -> None:
    """Make ``folder`` appear as ``final``. What stood there, incomplete, is replaced file by file; what a person put
    beside it stays. The manifest comes last: until then the folder counts as incomplete.
    """
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        (final / MANIFEST).unlink(missing_ok=True)
        for path in sorted(folder.iterdir(), key=lambda each: (each.name == MANIFEST, each.name)):
            path.replace(final / path.name)
        folder.rmdir()
    else:
        folder.replace(final)
    if hasattr(os, "O_DIRECTORY"):  # not on Windows, which keeps directories in order by itself
        handle = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def take_away(folder: Path) -> None:
    """Remove from ``folder`` the files of its manifest that are as they were written, the manifest last, and the folder
    itself where nothing else is in it.
    """
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        ours = {folder / name: facts for name, facts in files.items() if Path(name).name == name}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # nothing says that anything there is ours
    for path, facts in ours.items():
        same = path.is_file() and not path.is_symlink() and path.stat().st_size == facts["bytes"]
        if same and sha256_of(path) == facts["sha256"]:
            path.unlink()
    (folder / MANIFEST).unlink()
    remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder that holds nothing."""
    with suppress(OSError):
        folder.rmdir()
