"""What a file or folder is that a person dropped on the window, and which page takes it. No widgets; reads headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.errors import MillmError
from engine.files import open_file
from engine.public.documents import MAX_DOCUMENT_BYTES, DocumentKind, decode, kind_of
from engine.public.saes import SaeFormatUnknown
from ui.context.page_context import CIRCUITS, CLUSTERS, FEATURES, MODELS, PROFILES, SAES
from ui.shelf.saes_shelf import may_be_sae

DOCUMENT_PAGES = (PROFILES, CLUSTERS, CIRCUITS)
"""Each of them takes all three kinds and says where a document went."""
LABEL_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".csv.gz", ".jsonl.gz", ".ndjson.gz", ".json.gz")
TAKEN = "a model, an SAE, a profile, cluster or circuit (.json), or labels (.csv, .json)"
"""Short enough for the row under the bar, where a longer one is cut."""


@dataclass(frozen=True)
class Sorted:
    """``pages``: what each page takes, in the order in which it came; ``refused``: what nothing takes, in sentences."""

    pages: Mapping[str, tuple[Path, ...]]
    refused: tuple[str, ...]


def sort_out(engine: Engine, paths: Iterable[Path], here: str | None) -> Sorted:
    """Find the page of each of ``paths``; ``here`` is the page in front, which gets what may be its own.

    Blocks while headers are read: not for the window's own thread.
    """
    pages: dict[str, list[Path]] = {}
    refused: list[str] = []
    for path in paths:
        try:
            found = _page_of(engine, path, here)
        except OSError as error:
            found = f"{path.name} cannot be read: {error.strerror or error}."
        if found in (*DOCUMENT_PAGES, FEATURES, MODELS, SAES):
            pages.setdefault(found, []).append(path)
        else:
            refused.append(found)
    return Sorted({key: tuple(each) for key, each in pages.items()}, tuple(refused))


def _page_of(engine: Engine, path: Path, here: str | None) -> str:
    """The page's key, else why there is none."""
    name, ending = path.name, path.suffix.lower()
    if path.is_dir():
        return _of_folder(engine, path, here)
    if ending == ".gguf":
        return MODELS
    if name.lower().endswith(LABEL_ENDINGS):
        return FEATURES
    if ending == ".json":
        return _of_json(path, here)
    if may_be_sae(path):
        return SAES if here == SAES or _is_sae(path) else f"{name} holds no SAE. A model is dropped as its folder."
    if not path.exists():
        return f"There is no file at {path} any more."
    return f"{name} is nothing that is taken here: drop {TAKEN}."


def _of_folder(engine: Engine, path: Path, here: str | None) -> str:
    try:
        engine.models.look_at(path)
        return MODELS
    except MillmError as error:
        if _is_sae(path):
            return SAES
        if here in (MODELS, SAES):
            return here  # it says what is wrong with it as a model, or as an SAE
        if (path / "config.json").is_file():
            return MODELS
        if any(each.name.lower().endswith((*LABEL_ENDINGS, ".json")) for each in path.iterdir()):
            return FEATURES
        return f"{path.name} is neither the folder of a model nor of an SAE. {error.message}"


def _is_sae(path: Path) -> bool:
    """Also one that is damaged or cannot be used: the page of SAEs says why."""
    # The window stands before this is needed, and with it torch.
    from engine.saes.formats.detection import detect

    try:
        detect(path)
    except SaeFormatUnknown:
        return False
    except MillmError:
        return True
    return True


def _of_json(path: Path, here: str | None) -> str:
    own = here if here in (*DOCUMENT_PAGES, FEATURES) else None
    try:
        with open_file(path) as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError:
        if own is not None:
            return own  # its report names the file and the reason
        raise
    if raw.lstrip().startswith(b"["):
        return FEATURES
    try:
        document = decode(raw)
    except MillmError as error:
        # Labels may be longer than a document can be.
        return own or (FEATURES if len(raw) > MAX_DOCUMENT_BYTES else f"{path.name}: {error.message}")
    page = _of_document(document)
    if page is None:
        return own or FEATURES
    return here if here in DOCUMENT_PAGES else page


def _of_document(document: dict[str, Any]) -> str | None:
    kind = kind_of(document)
    if kind is DocumentKind.CIRCUIT:
        return CIRCUITS
    if kind in (DocumentKind.CLUSTER, DocumentKind.BUNDLE):
        return CLUSTERS
    if "kind" not in document and ("steering" in document or "features" in document):
        return PROFILES
    return CLUSTERS if "kind" in document else None
