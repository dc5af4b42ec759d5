"""What the SAEs page reads off the GUI thread, and how it tells files apart. No widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.engine import Engine
from engine.errors import MillmError, ModelNotLoaded
from engine.public.downloads import SaePreview
from engine.public.library import AttachSetRecord, SaeRecord
from engine.public.saes import id_from_hub

WEIGHTS = (".safetensors", ".npz", ".pt", ".pth", ".bin", ".ckpt")


@dataclass(frozen=True)
class SaesOnShelf:
    """What the page shows, read in one go off the GUI thread."""

    records: Sequence[SaeRecord]
    labels: Mapping[str, int]
    sets: Sequence[tuple[AttachSetRecord, Sequence[str]]]


def read_shelf(engine: Engine) -> SaesOnShelf:
    """Every SAE with its number of labels, and every set with what speaks against attaching it now. Reads files."""
    records = engine.saes.list()
    known = {record.id for record in records}
    labels = {record.id: engine.library.labels.count(record.id) for record in records}
    sets = [(each, set_problems(engine, each, known)) for each in engine.library.attach_sets.list()]
    return SaesOnShelf(records, labels, sets)


def set_problems(engine: Engine, record: AttachSetRecord, known: set[str]) -> list[str]:
    """What keeps a set from being attached to the loaded model; nothing is said while none is loaded."""
    gone = [item.sae_id for item in record.items if item.sae_id not in known]
    if gone:
        return [f"{', '.join(gone)} is not on the shelf any more."]
    found: list[str] = []
    for item in record.items:
        try:
            found += engine.attachments.compatibility(item.sae_id, item.layer).errors
        except ModelNotLoaded:
            return []
        except MillmError as error:
            found.append(error.message)
    return found


def may_be_sae(path: Path) -> bool:
    """Whether a dropped path is worth looking at: a folder, or a file of weights."""
    return path.is_dir() or path.suffix.lower() in WEIGHTS


def file_of(sae_id: str, found: SaePreview) -> str | None:
    """The file of a repository whose id is ``sae_id``; None where none is (the only one there, then).

    An id is made from the file's folder, or from folder and name where several files share one.
    """
    for each in found.files:
        path = Path(each.path)
        for place in (each.path, (path.parent / path.stem / path.name).as_posix()):
            if id_from_hub(found.repository_id, revision=found.revision, file_path=place) == sae_id:
                return each.path
    return None
