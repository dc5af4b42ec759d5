"""Copies of SAEs in the data directory: whole under their final name, or not there at all.

A copy is made and checked under a temporary name beside its place and then renamed. From the rename until the row is
written, and from before the row is removed until the files are gone, a marker lies in the folder: after a kill, a
folder with a marker stays exactly if its row is there. One without a marker is never touched by the sweep.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.actions.saes.described import same_sae
from engine.actions.writing import Writing, copy_file, remove_tree
from engine.errors import MillmError
from engine.library.errors import SaeAlreadyExists
from engine.saes.config import SourceFormat
from engine.saes.errors import SaeLoadFailed

if TYPE_CHECKING:
    from engine.saes.formats import Detected

log = logging.getLogger(__name__)

IMPORTING = ".importing-"
REMOVED = ".removed-"
MARKER = ".unsettled"

_KEPT_PARENTS = 6
"""Folders above an SAE whose names may say what it is (see ``engine.saes.formats.common.near_path``)."""


@dataclass(frozen=True)
class Staged:
    """A copy that is whole and checked, still under its temporary name.

    ``weights`` is the weight file's place inside the SAE's own folder.
    """

    sae_id: str
    temporary: Path
    weights: Path


class SaeFolder:
    """The folder ``root`` with one folder per copied SAE, named by its id. Calls that name an id are the caller's to
    serialise.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writing = Writing(root, "a copy of the SAE")

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
                weights = self._copy(detected, temporary, sae_id, digest)
            yield Staged(sae_id, temporary, weights)
        finally:
            remove_tree(temporary)

    def put(self, staged: Staged) -> Path:
        """Give a staged copy its final name, marked until :meth:`settle`; returns its weight file.

        Raises :class:`SaeAlreadyExists` when a folder of that name, in any case, is there.
        """
        self._refuse_taken(staged.sae_id)
        with self._writing.translated():
            os.replace(staged.temporary / staged.sae_id, self.root / staged.sae_id)
        return self.root / staged.sae_id / staged.weights

    def adopt(self, sae_id: str, folder: Path) -> Path:
        """Give a folder on the same disk, whole and downloaded, its final name, marked until :meth:`settle`.

        Raises :class:`SaeAlreadyExists` as :meth:`put` does, and :class:`DataDirectoryUnusable`.
        """
        self._refuse_taken(sae_id)
        with self._writing.translated():
            (folder / MARKER).touch()
            os.replace(folder, self.root / sae_id)
        return self.root / sae_id

    def settle(self, sae_id: str) -> None:
        """The row is written: the folder stays."""
        (self.root / sae_id / MARKER).unlink(missing_ok=True)

    def mark(self, sae_id: str) -> None:
        """The row is about to be removed: from then on the folder goes."""
        folder = self.root / sae_id
        if folder.is_dir():
            with self._writing.translated():
                (folder / MARKER).touch()

    def discard(self, sae_id: str) -> int:
        """Remove a folder; returns the bytes that it held. What cannot be removed now goes at the next start."""
        folder = self.root / sae_id
        if not folder.is_dir():
            return 0
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != MARKER)
        gone = Path(tempfile.mkdtemp(prefix=REMOVED, dir=self.root))
        try:
            os.replace(folder, gone / sae_id)
        except OSError:
            log.warning("the folder %s could not be removed; it goes at the next start", folder, exc_info=True)
        remove_tree(gone)
        return size

    def sweep(self, has_row: Callable[[str], bool]) -> list[str]:
        """Remove what a killed process left; returns the names of what was removed. Not while an import runs."""
        removed: list[str] = []
        if not self.root.is_dir():
            return removed
        for entry in sorted(self.root.iterdir()):
            if entry.name.startswith((IMPORTING, REMOVED)):
                remove_tree(entry)
                removed.append(entry.name)
            elif (entry / MARKER).is_file():
                if has_row(entry.name):
                    self.settle(entry.name)
                else:
                    self.discard(entry.name)
                    removed.append(entry.name)
        if removed:
            log.info("left over from a process that was killed, removed from %s: %s", self.root, ", ".join(removed))
        return removed

    # --- steps ------------------------------------------------------------------------------------------------------

    def _copy(self, detected: Detected, temporary: Path, sae_id: str, digest: str) -> Path:
        base = _base(detected)
        stage = temporary / "files"
        for source in _files(detected):
            target = stage / source.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy_file(source, target)
        home = temporary / sae_id
        weights = _arrange(stage, home, detected, base)
        (home / MARKER).touch()
        from engine.saes.formats import detect

        if detect(home / weights).digest() != digest:
            raise SaeLoadFailed(
                "The files changed while they were copied.", remedy="Import the SAE again once nothing writes to them."
            )
        return weights

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


def _arrange(stage: Path, home: Path, detected: Detected, base: Path) -> Path:
    """Move the staged files into ``home``, below as many of their former folders as it takes to be read as before.

    Some sources say in the names of folders what an SAE is. Returns the weight file's place inside ``home``.
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
                return inner / weights
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
