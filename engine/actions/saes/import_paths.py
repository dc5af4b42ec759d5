"""Where an SAE on disk lies and what it is called: the path a person gave, checked, and an id out of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath

from engine.errors import InvalidParameter
from engine.files import read_text
from engine.library.values import is_storable
from engine.models.inspection.checkpoint import refuse_system_folder
from engine.models.inspection.names import hub_snapshot
from engine.saes.ids import check_sae_id, id_from_folder, id_from_hub

COMMIT_BYTES = 1000
"""A file that names a commit is no longer."""


@dataclass(frozen=True)
class SaeOrigin:
    """What an SAE is called by default, and the hub repository it came from where its path shows one."""

    sae_id: str
    repository_id: str | None = None
    revision: str | None = None


def usable_place(path: Path) -> Path:
    """``path`` (absolute; a folder or a file) with links in its folders resolved.

    Raises :class:`InvalidParameter` (param ``path``) for one that cannot be used or lies in a folder of the system.
    """
    if not is_storable(str(path)) or "\0" in str(path):
        raise InvalidParameter(
            "The path holds bytes that are no text, so the library cannot remember it.",
            param="path",
            remedy="Rename the folder.",
        )
    if not path.is_absolute():
        raise InvalidParameter(f"{path} is not an absolute path.", param="path", remedy="Give the whole path.")
    try:
        refuse_system_folder(path)
    except InvalidParameter as error:
        raise InvalidParameter(
            f"{path} lies in a folder of the operating system; no SAE is read from there.",
            param="path",
            remedy="Put the SAE into a folder of your own, for example in your home directory.",
        ) from error
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise InvalidParameter(
            f"The path cannot be looked at: {error.strerror or 'the system refuses it'}.",
            param="path",
            remedy="Check that the folder may be read.",
        ) from error
    if is_folder:
        return Path(os.path.realpath(path))
    # A file keeps its own name: in a hub cache it is a link to a blob whose name says nothing.
    return Path(os.path.realpath(path.parent)) / path.name


RESERVED = frozenset(
    [
        "attach-set",
        "attach-sets",
        "attachment",
        "attachments",
        "download",
        "import",
        "monitoring",
        "preview",
        "steering",
    ]
)
"""Ids that would hide an SAE behind a route of the management API."""


def checked_id(sae_id: str) -> str:
    """An id that a person chose. Raises :class:`InvalidParameter` also for a leading dot: such folders are hidden."""
    if check_sae_id(sae_id).startswith("."):
        raise InvalidParameter(
            f"The SAE id {sae_id!r} begins with a dot.", param="sae_id", remedy="Begin it with a letter or a digit."
        )
    if sae_id.lower() in RESERVED:
        raise InvalidParameter(
            f"The SAE id {sae_id!r} is a word of the API's own paths.", param="sae_id", remedy="Choose another id."
        )
    return sae_id


def checked_layer(layer: int | None) -> int | None:
    """A layer that a person gave, 0-based, or None. Raises :class:`InvalidParameter`."""
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool) or layer < 0):
        raise InvalidParameter(
            f"Invalid value for 'layer': {str(layer)[:40]}; expected a whole number from 0.", param="layer"
        )
    return layer


def origin_of(folder: Path, weights: Path, layer: int | None) -> SaeOrigin:
    """The default id: from the hub repository and the file's folder in it, else from ``folder`` and ``layer``."""
    for place in (weights.parent, *weights.parent.parents):
        snapshot = hub_snapshot(place)
        if snapshot is None:
            continue
        repository, commit = snapshot
        revision = "main" if _main_commit(place) == commit else commit
        inside = weights.relative_to(place).as_posix()
        try:
            sae_id = id_from_hub(repository, revision=revision[:12], file_path=inside)
        except InvalidParameter:
            break
        return SaeOrigin(sae_id, repository, revision)
    return SaeOrigin(id_from_folder(PurePath(folder), layer))


def width_label(d_sae: int) -> str:
    """How sources call a number of features: 16384 is ``16k``."""
    if d_sae < 1000:
        return str(d_sae)
    return f"{d_sae // 1000}k" if d_sae < 1_000_000 else f"{d_sae // 1_000_000}m"


def _main_commit(snapshot: Path) -> str | None:
    try:
        return read_text(snapshot.parent.parent / "refs" / "main", COMMIT_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        return None
