"""Models that other programs keep on this machine: the Hugging Face cache, LM Studio's folders, Ollama's blobs.

Only what can be told from names and a few header bytes is said here; an import looks closer. Links are followed for
files, since caches consist of them, and never into a folder of the operating system.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine.errors import InvalidParameter
from engine.files import read_text
from engine.models.inspection.checkpoint import refuse_system_folder
from engine.models.inspection.gguf_file import label_of, set_of, starts_as_gguf, whole_stem

log = logging.getLogger(__name__)

MOST_FOUND = 500
MOST_LOOKED_AT = 20_000
"""Entries of a folder tree; a home directory given by mistake must not be walked to its end."""

DEPTH = 4
MANIFEST_BYTES, COMMIT_BYTES = 1_000_000, 1000

_HUB = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>.+)")
_DIGEST = re.compile(r"sha256[:-](?P<hex>[0-9a-f]{64})")


@dataclass(frozen=True)
class FoundModel:
    """A model that can be imported by reference.

    Attributes:
        name: As its program calls it.
        path: What to import: a checkpoint folder or a GGUF file.
        kind: ``transformers`` or ``gguf``.
        origin: ``Hugging Face cache``, ``LM Studio`` or ``Ollama``.
        size_bytes: All its files.
        on_shelf: Whether the library has it.
    """

    name: str
    path: Path
    kind: str
    origin: str
    size_bytes: int
    on_shelf: bool


@dataclass(frozen=True)
class CachePaths:
    """Where the programs keep their models."""

    hub: tuple[Path, ...]
    lm_studio: tuple[Path, ...]
    ollama: tuple[Path, ...]

    @classmethod
    def usual(cls, environ: Mapping[str, str] | None = None, home: Path | None = None) -> CachePaths:
        """The places on this system; variables of those programs come first."""
        env = os.environ if environ is None else environ
        house = home or Path(os.path.expanduser("~"))
        hub = [Path(env["HF_HUB_CACHE"])] if env.get("HF_HUB_CACHE") else []
        if env.get("HF_HOME"):
            hub.append(Path(env["HF_HOME"]) / "hub")
        hub.append(Path(env.get("XDG_CACHE_HOME") or house / ".cache") / "huggingface" / "hub")
        ollama = [Path(env["OLLAMA_MODELS"])] if env.get("OLLAMA_MODELS") else []
        ollama.append(house / ".ollama" / "models")
        if sys.platform.startswith("linux"):
            ollama.append(Path("/usr/share/ollama/.ollama/models"))
        studio = [house / ".lmstudio" / "models", house / ".cache" / "lm-studio" / "models"]
        return cls(tuple(dict.fromkeys(hub)), tuple(studio), tuple(dict.fromkeys(ollama)))


def find_models(known_paths: Collection[str], places: CachePaths | None = None) -> tuple[FoundModel, ...]:
    """All models found, by origin and name. ``known_paths`` are the library's.

    Folders that cannot be read are passed over: another program's mess is no error of ours.
    """
    where = places or CachePaths.usual()
    known = {os.path.realpath(path) for path in known_paths} | set(known_paths)
    found: list[FoundModel] = []
    for search, roots in ((_hub_cache, where.hub), (_lm_studio, where.lm_studio), (_ollama, where.ollama)):
        for root in roots:
            if not root.is_dir() or not _allowed(root):
                continue
            try:
                found += search(root, known)
            except OSError as error:
                log.info("%s cannot be looked through: %s", root, error.strerror or error)
    unique = {os.path.realpath(each.path): each for each in reversed(found)}
    return tuple(sorted(unique.values(), key=lambda each: (each.origin, each.name.casefold(), each.path))[:MOST_FOUND])


# --- Hugging Face cache -----------------------------------------------------------------------------------------------


def _hub_cache(root: Path, known: Collection[str]) -> Iterator[FoundModel]:
    for folder in _folders(root):
        match = _HUB.fullmatch(folder.name)
        if match is None or not (folder / "snapshots").is_dir():
            continue
        name = f"{match['owner']}/{match['name']}"
        snapshot = _present_snapshot(folder)
        if snapshot is None or not _allowed(snapshot):
            continue
        names = {entry.name for entry in snapshot.iterdir()}
        if "config.json" in names and names & {"model.safetensors", "model.safetensors.index.json"}:
            size = sum(_size(snapshot / each) for each in names)
            yield FoundModel(name, snapshot, "transformers", "Hugging Face cache", size, _is_known(snapshot, known))
        yield from _ggufs(snapshot, "Hugging Face cache", known, partial(_tagged, name))


def _present_snapshot(folder: Path) -> Path | None:
    """The snapshot that ``main`` points to, else the newest."""
    try:
        commit = read_text(folder / "refs" / "main", COMMIT_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if re.fullmatch(r"[0-9a-f]{40}", commit) and (folder / "snapshots" / commit).is_dir():
        return folder / "snapshots" / commit
    snapshots = list(_folders(folder / "snapshots"))
    return max(snapshots, key=lambda each: each.stat().st_mtime, default=None)


# --- LM Studio --------------------------------------------------------------------------------------------------------


def _lm_studio(root: Path, known: Collection[str]) -> Iterator[FoundModel]:
    """``owner/repository/file.gguf``."""

    def named(path: Path) -> str:
        inside = path.relative_to(root).parts
        return f"{'/'.join(inside[:-1]) or whole_stem(path.name)}{_tag(path)}"

    yield from _ggufs(root, "LM Studio", known, named)


# --- Ollama -----------------------------------------------------------------------------------------------------------


def _ollama(root: Path, known: Collection[str]) -> Iterator[FoundModel]:
    """Manifests below ``manifests/HOST/NAMESPACE/NAME/TAG`` name the blob that is a GGUF file without its ending."""
    manifests = root / "manifests"
    looked_at = 0
    for top, folders, files in os.walk(manifests):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            looked_at += 1
            if looked_at > MOST_LOOKED_AT:
                return
            found = _ollama_model(root, Path(top) / file, known)
            if found is not None:
                yield found


def _ollama_model(root: Path, manifest: Path, known: Collection[str]) -> FoundModel | None:
    try:
        value = json.loads(read_text(manifest, MANIFEST_BYTES))
        layers = value["layers"]
        digest = next(each["digest"] for each in layers if each["mediaType"].endswith("image.model"))
        match = _DIGEST.fullmatch(digest)
    except (OSError, ValueError, KeyError, TypeError, StopIteration, AttributeError, RecursionError):
        return None
    if match is None:
        return None
    blob = root / "blobs" / f"sha256-{match['hex']}"
    if not starts_as_gguf(blob) or not _allowed(blob):
        return None
    parts = manifest.relative_to(root / "manifests").parts
    model, tag = parts[-2:] if len(parts) >= 2 else ("model", parts[-1])
    owner = parts[-3] if len(parts) >= 4 and parts[-3] != "library" else ""
    name = f"{owner}/{model}:{tag}" if owner else f"{model}:{tag}"
    return FoundModel(name, blob, "gguf", "Ollama", _size(blob), _is_known(blob, known))


# --- shared -----------------------------------------------------------------------------------------------------------


def _ggufs(root: Path, origin: str, known: Collection[str], named: Callable[[Path], str]) -> Iterator[FoundModel]:
    looked_at = 0
    for top, folders, files in os.walk(root):
        depth = len(Path(top).relative_to(root).parts)
        folders[:] = [] if depth >= DEPTH else sorted(each for each in folders if not each.startswith("."))
        seen: set[str] = set()
        for file in sorted(files):
            looked_at += 1
            if looked_at > MOST_LOOKED_AT:
                return
            path = Path(top) / file
            stem = whole_stem(file)
            skipped = any(word in file.lower() for word in ("mmproj", "imatrix"))
            if path.suffix.lower() != ".gguf" or skipped or stem in seen or not _allowed(path):
                continue
            seen.add(stem)
            parts = set_of(path)
            if not all(part.is_file() for part in parts):
                continue  # a download under way
            size = sum(_size(part) for part in parts)
            yield FoundModel(named(path), parts[0], "gguf", origin, size, _is_known(parts[0], known))


def _tagged(name: str, path: Path) -> str:
    return f"{name}{_tag(path)}"


def _tag(path: Path) -> str:
    label = label_of(path)
    return f":{label}" if label else f":{whole_stem(path.name)}"


def _folders(root: Path) -> Iterator[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    yield from (entry for entry in entries if entry.is_dir())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_known(path: Path, known: Collection[str]) -> bool:
    return str(path) in known or os.path.realpath(path) in known


def _allowed(path: Path) -> bool:
    try:
        refuse_system_folder(path)
    except InvalidParameter:
        return False
    return True
