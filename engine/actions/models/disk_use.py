"""What models and SAEs take on the disk: read from the files themselves, each counted once whoever refers to it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.library.records import EngineKind, ModelRecord, SaeRecord
from engine.models.inspection.gguf_file import set_of

Sizes = Mapping[tuple[int, int], int]
"""Bytes of files by device and inode, so that a file has one size under however many names."""


@dataclass(frozen=True)
class DiskItem:
    """What the files of one model or SAE take; two that share files both count them.

    Attributes:
        here: They lie in the data directory.
        ours: This program wrote them, so removing the row frees them, unless another row uses them too.
    """

    kind: str
    id: int | str
    name: str
    bytes: int
    here: bool
    ours: bool


@dataclass(frozen=True)
class DiskUse:
    """What models and SAEs take, largest first, and the room left where the data directory is. All bytes.

    The sums count each file once. ``models_bytes`` and ``saes_bytes`` lie in the data directory, ``elsewhere_bytes`` do
    not; ``ours_bytes`` are those that this program wrote.
    """

    items: tuple[DiskItem, ...]
    models_bytes: int
    saes_bytes: int
    elsewhere_bytes: int
    ours_bytes: int
    free_bytes: int
    total_bytes: int


def model_files(record: ModelRecord) -> Sizes:
    """The files that a model is read from, as they are now; empty where none is there."""
    if not record.local_path:
        return {}
    place = Path(record.local_path)
    if record.engine is EngineKind.LLAMACPP:
        return _sizes(set_of(place))
    try:
        # As an import counts and copies them: what lies in the folder itself and is not hidden.
        return _sizes(Path(each.path) for each in os.scandir(place) if not each.name.startswith("."))
    except OSError:
        return {}


def disk_use(
    data_directory: Path,
    models: Iterable[ModelRecord],
    saes: Iterable[SaeRecord],
    written: Callable[[ModelRecord], int | None],
) -> DiskUse:
    """Look at all files. ``written``: bytes that go with a model's row, None where none do."""
    here = os.path.realpath(data_directory)
    items: list[DiskItem] = []
    parts: dict[str, dict[tuple[int, int], int]] = {"model": {}, "sae": {}, "elsewhere": {}, "ours": {}}

    def count(kind: str, row: ModelRecord | SaeRecord, files: Sizes, inside: bool, ours: bool) -> None:
        items.append(DiskItem(kind, row.id, row.name, sum(files.values()), inside, ours))
        parts[kind if inside else "elsewhere"].update(files)
        if ours:
            parts["ours"].update(files)

    growing = 0
    for model in models:
        own, files = written(model), model_files(model)
        inside = _is_inside(model.local_path, here)
        if files:
            count("model", model, files, inside, own is not None)
        elif own:
            # What has come of a download.
            items.append(DiskItem("model", model.id, model.name, own, True, True))
            growing += own
    for sae in saes:
        if sae.local_path is not None and (files := _sae_files(sae)):
            count("sae", sae, files, _is_inside(sae.local_path, here), sae.copied)
    items.sort(key=lambda item: (-item.bytes, item.name))
    usage = shutil.disk_usage(data_directory)
    total = {part: sum(files.values()) for part, files in parts.items()}
    return DiskUse(
        tuple(items),
        models_bytes=total["model"] + growing,
        saes_bytes=total["sae"],
        elsewhere_bytes=total["elsewhere"],
        ours_bytes=total["ours"] + growing,
        free_bytes=usage.free,
        total_bytes=usage.total,
    )


def _sae_files(sae: SaeRecord) -> Sizes:
    """The weight file stands for all of an SAE's, whose length the row knows."""
    found = _sizes([Path(sae.local_path or "")])
    return {key: sae.file_size_bytes or size for key, size in found.items()}


def _sizes(paths: Iterable[Path]) -> Sizes:
    found: dict[tuple[int, int], int] = {}
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue  # gone, or a link to nothing
        if stat.S_ISREG(state.st_mode):
            found[state.st_dev, state.st_ino] = state.st_size
    return found


def _is_inside(local_path: str | None, folder: str) -> bool:
    return local_path is not None and Path(os.path.realpath(local_path)).is_relative_to(folder)
