"""Copies of SAEs in the data directory: whole under their final name, or not there at all.

A copy is made and checked under a temporary name beside its place and then renamed. From the rename until the row is
written, and from before the row is removed until the files are gone, a marker lies in the folder: after a kill, a
folder with a marker stays exactly if its row is there. One without a marker is never touched by the sweep. What we
wrote is noted (``engine/actions/written.py``), and nothing else is ever removed.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.actions.durable_files import Writing, copy_file, refuse_stray_links, remove_tree
from engine.actions.saes.verify import same_sae
from engine.actions.written import (
    REMOVED,
    Note,
    Notes,
    assumed,
    mark,
    marked_note,
    note_of,
    sweep_marked,
    take_away,
    unmark,
)
from engine.errors import MillmError
from engine.library.errors import SaeAlreadyExists
from engine.library.records import SaeRecord
from engine.library.state import StateRepository
from engine.saes.config import SourceFormat
from engine.saes.errors import SaeLoadFailed

if TYPE_CHECKING:
    from engine.saes.formats import Detected

log = logging.getLogger(__name__)

FOLDER = "saes"
"""Folder beside the library that holds copied SAEs."""
IMPORTING = ".importing-"

_ENDINGS = frozenset({".safetensors", ".npz", ".pt", ".pth", ".bin", ".ckpt", ".json"})
"""Of the files that make an SAE."""

_KEPT_PARENTS = 6
"""Folders above an SAE whose names may say what it is (see ``engine.saes.formats.common.near_path``)."""


@dataclass(frozen=True)
class Staged:
    """A copy that is whole and checked, still under its temporary name.

    ``weights`` is the weight file's place inside the SAE's own folder, ``digests`` the SHA-256 of its files by their
    places there.
    """

    sae_id: str
    temporary: Path
    weights: Path
    digests: Mapping[str, str]


class SaeFolder:
    """The folder ``root`` with one folder per copied SAE, named by its id. Calls that name an id are the caller's to
    serialise.
    """

    def __init__(self, root: Path, state: StateRepository) -> None:
        self.root = root
        self._writing = Writing(root, "a copy of the SAE", "path")
        self._notes = Notes(state, FOLDER)

    @contextmanager
    def staged(self, detected: Detected, sae_id: str, digest: str) -> Iterator[Staged]:
        """Copy the files of ``detected`` under a temporary name; what was not put in place is gone after the block.

        Raises :class:`InsufficientDisk`, :class:`DataDirectoryUnusable`, and :class:`SaeLoadFailed` when the files
        changed meanwhile or mean something else away from where they lie.
        """
        with self._writing.translated():
            self.root.mkdir(parents=True, exist_ok=True)
            self._writing.require_space(detected.size_bytes)
            temporary = Path(tempfile.mkdtemp(prefix=IMPORTING, dir=self.root))
        try:
            with self._writing.translated():
                staged = self._copy(detected, temporary, sae_id, digest)
            yield staged
        finally:
            remove_tree(temporary)

    def put(self, staged: Staged) -> Path:
        """Give a staged copy its final name, marked until :meth:`settle`; returns its weight file.

        Raises :class:`SaeAlreadyExists` when a folder of that name, in any case, is there.
        """
        self._refuse_taken(staged.sae_id)
        home = staged.temporary / staged.sae_id
        self._place(home, staged.sae_id, staged.digests)
        return self.root / staged.sae_id / staged.weights

    def adopt(self, sae_id: str, folder: Path, digests: Mapping[str, str]) -> Path:
        """Give a folder on the same disk, whole and downloaded, its final name, marked until :meth:`settle`.

        Raises :class:`SaeAlreadyExists` as :meth:`put` does, and :class:`DataDirectoryUnusable`.
        """
        self._refuse_taken(sae_id)
        self._place(folder, sae_id, digests)
        return self.root / sae_id

    def settle(self, sae_id: str) -> None:
        """The row is written: the folder stays."""
        try:
            unmark(self.root / sae_id)
        except OSError:
            log.warning("%s could not be put right; that is done at the next start", sae_id, exc_info=True)

    def mark_going(self, record: SaeRecord) -> None:
        """Before a row is removed or gives way: from then on what we wrote for it goes, whatever happens."""
        folder = self.root / record.id
        if not folder.is_dir() or folder.is_symlink():
            return
        note = self._notes.get(record.id)
        if note is None and record.copied:
            note = _of_earlier_version(folder)
        if note is not None:
            with self._writing.translated():
                mark(folder, note)

    def discard(self, sae_id: str) -> int:
        """Remove what we wrote into a folder, where it is marked; the bytes that are free again."""
        folder = self.root / sae_id
        note = marked_note(folder)
        self._notes.forget(sae_id)
        return 0 if note is None else take_away(folder, note, self.root)

    def sweep(self, has_row: Callable[[str], bool]) -> list[str]:
        """Remove what a killed process left; returns the names of what was removed. Not while an import runs."""
        removed: list[str] = []
        if not self.root.is_dir():
            return removed
        for entry in sorted(self.root.iterdir()):
            if entry.name.startswith((IMPORTING, REMOVED)) and entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
                removed.append(entry.name)

        def wanted(sae_id: str, note: Note | None) -> bool:
            there = has_row(sae_id)
            if not there:
                self._notes.forget(sae_id)
            elif note is not None:
                self._notes.keep(sae_id, note)
            return there

        removed += sweep_marked(self.root, wanted)
        self._notes.forget_gone(self.root)
        if removed:
            log.info("left over from a process that was killed, removed from %s: %s", self.root, ", ".join(removed))
        return removed

    # --- steps ------------------------------------------------------------------------------------------------------

    def _place(self, folder: Path, sae_id: str, digests: Mapping[str, str]) -> None:
        with self._writing.translated():
            note = note_of(folder, digests)
            mark(folder, note)
            self._notes.keep(sae_id, note)
            os.replace(folder, self.root / sae_id)

    def _copy(self, detected: Detected, temporary: Path, sae_id: str, digest: str) -> Staged:
        base = _base(detected)
        stage = temporary / "files"
        digests: dict[Path, str] = {}
        weights_file, *others = _files(detected)
        # The weights were named and found to be an SAE; what lies beside them is taken along.
        refuse_stray_links(others, base, "path")
        for source in (weights_file, *others):
            target = stage / source.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            digests[source.relative_to(base)] = copy_file(source, target)
        home = temporary / sae_id
        inner, weights = _arrange(stage, home, detected, base)
        from engine.saes.formats import detect

        if detect(home / weights).digest() != digest:
            raise SaeLoadFailed(
                "The files changed while they were copied.", remedy="Import the SAE again once nothing writes to them."
            )
        return Staged(sae_id, temporary, weights, {(inner / name).as_posix(): each for name, each in digests.items()})

    def _refuse_taken(self, sae_id: str) -> None:
        # Two ids that differ in case only would share a folder on Windows and macOS.
        taken = next((entry.name for entry in self.root.iterdir() if entry.name.casefold() == sae_id.casefold()), None)
        if taken is not None:
            raise SaeAlreadyExists(
                f"There is a folder {taken} in {self.root} already.",
                param="sae_id",
                details={"existing_sae_id": taken},
                remedy="Give this SAE another id.",
            )


def _of_earlier_version(folder: Path) -> Note:
    """What an earlier version, which kept no notes, wrote for an SAE: weights and the settings beside them."""
    return assumed((path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS), folder)


def _base(detected: Detected) -> Path:
    """The folder that the copy's layout starts from: sparsify also reads the settings one folder up."""
    above = detected.folder.parent
    if detected.format is SourceFormat.SPARSIFY and (above / "config.json").is_file():
        return above
    return detected.folder


def _files(detected: Detected) -> list[Path]:
    """The files used, and those that add to what is known about the SAE where they are."""
    base = _base(detected)
    more = [detected.folder / "sparsity.safetensors"]
    if base != detected.folder:
        more.append(base / "config.json")
    return [*detected.files, *(path for path in more if path.is_file())]


def _arrange(stage: Path, home: Path, detected: Detected, base: Path) -> tuple[Path, Path]:
    """Move the staged files into ``home``, below as many of their former folders as it takes to be read as before.

    Some sources say in the names of folders what an SAE is. Returns where in ``home`` they lie, and the weight file's
    place there.
    """
    from engine.saes.formats import detect

    weights = detected.files[0].relative_to(base)
    parents = [part for part in base.parts if part != base.anchor][-_KEPT_PARENTS:]
    for depth in range(len(parents) + 1):
        inner = Path(*parents[len(parents) - depth :])
        place = home / inner
        place.parent.mkdir(parents=True, exist_ok=True)
        os.rename(stage, place)
        try:
            if same_sae(detect(place / weights).config, detected.config):
                return inner, inner / weights
        except MillmError as error:
            log.debug("%s is not read as before below %s: %s", weights, inner, error.message)
        os.rename(place, stage)
        if home.is_dir():
            shutil.rmtree(home)
    raise SaeLoadFailed(
        f"What {detected.files[0].name} is depends on the folders it lies in, so a copy would not be the same SAE.",
        details={"path": str(detected.files[0])},
        remedy="Import it without copying.",
    )
