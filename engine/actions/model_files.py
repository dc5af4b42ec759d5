"""Model files in the data directory: whole under their final name, or not there at all.

Downloads grow in ``.downloading/KEY`` and stay there after a cut, so that they can be gone on with; copies are made in
``.importing-…``. Either becomes ``KEY`` by one rename. Until the row is written a marker lies in the folder: after a
kill, a folder with a marker stays exactly if a row points into it. The demo model's own folder is never touched.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.actions.writing import Writing, copy_file, remove_tree

log = logging.getLogger(__name__)

FOLDER = "models"
"""Beside the library."""
DOWNLOADING = ".downloading"
IMPORTING = ".importing-"
REMOVED = ".removed-"
MARKER = ".unsettled"
NOT_OURS = frozenset({"demo"})

_FOREIGN = re.compile(r"[^A-Za-z0-9._@-]+")
_MAX_KEY = 150


def folder_key(repo_id: str, commit: str, label: str | None = None) -> str:
    """The folder of what comes from a hub repository: its name, the commit and a GGUF's label."""
    owner, _, name = repo_id.partition("/")
    key = f"{owner}--{name}"[: _MAX_KEY - 80] + f"@{commit[:12]}"
    return _clean(key if label is None else f"{key}--{label[:64]}")


def _clean(text: str) -> str:
    return _FOREIGN.sub("-", text).strip("-.") or "model"


class ModelFolder:
    """The folder ``root`` with one folder per model that is ours."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writing = Writing(root, "the model")

    def place(self, key: str) -> Path:
        """Where the files of ``key`` are when they are whole."""
        return self.root / key

    def staging(self, key: str) -> Path:
        """Where the files of ``key`` grow."""
        return self.root / DOWNLOADING / key

    def owns(self, path: Path) -> str | None:
        """The key of the folder that ``path`` lies in, None when it is not ours."""
        try:
            inside = path.relative_to(self.root)
        except ValueError:
            return None
        first = inside.parts[0] if inside.parts else ""
        return None if not first or first.startswith(".") or first in NOT_OURS else first

    def put(self, key: str) -> Path:
        """Give what grew for ``key`` its final name, marked until :meth:`settle`; returns that folder."""
        with self._writing.translated():
            (self.staging(key) / MARKER).touch()
            os.replace(self.staging(key), self.place(key))
        return self.place(key)

    def settle(self, key: str) -> None:
        """The row is written: the folder stays."""
        (self.place(key) / MARKER).unlink(missing_ok=True)

    @contextmanager
    def copied(self, files: Sequence[Path], name: str, check: Callable[[], None] = lambda: None) -> Iterator[Path]:
        """Copies of ``files`` in a new folder of ours named after ``name``; gone when the block raises, settled when it
        ends.

        ``check`` is called between blocks and may raise. Raises :class:`InsufficientDisk`,
        :class:`DataDirectoryUnusable`.
        """
        with self._writing.translated():
            self.root.mkdir(parents=True, exist_ok=True)
            self._writing.require_space(sum(file.stat().st_size for file in files))
            temporary = Path(tempfile.mkdtemp(prefix=IMPORTING, dir=self.root))
        key: str | None = None
        try:
            for file in files:
                with self._writing.translated():
                    copy_file(file, temporary / file.name, check)
            with self._writing.translated():
                (temporary / MARKER).touch()
                key = self._free_key(name)
                os.replace(temporary, self.place(key))
            yield self.place(key)
            self.settle(key)
        except BaseException:
            remove_tree(temporary)
            if key is not None:
                self.discard(key)
            raise

    def discard(self, key: str) -> int:
        """Remove the folder of ``key``, whole or half; the bytes that are free again."""
        freed = 0
        for folder in (self.place(key), self.staging(key)):
            if folder.is_dir():
                freed += tree_bytes(folder)
                gone = Path(tempfile.mkdtemp(prefix=REMOVED, dir=self.root))
                try:
                    os.replace(folder, gone / key)
                except OSError:
                    log.warning("%s could not be removed; it goes at the next start", folder, exc_info=True)
                remove_tree(gone)
        return freed

    def sweep(self, keys_with_rows: Collection[str]) -> list[str]:
        """Remove what a killed process left and no row wants. For the start, before anything is fetched or copied."""
        removed: list[str] = []
        if not self.root.is_dir():
            return removed
        for entry in sorted(self.root.iterdir()):
            if entry.name.startswith((IMPORTING, REMOVED)):
                remove_tree(entry)
                removed.append(entry.name)
            elif (entry / MARKER).is_file():
                if entry.name in keys_with_rows:
                    self.settle(entry.name)
                else:
                    self.discard(entry.name)
                    removed.append(entry.name)
        growing = self.root / DOWNLOADING
        for entry in sorted(growing.iterdir()) if growing.is_dir() else ():
            if entry.name not in keys_with_rows:
                remove_tree(entry)
                removed.append(f"{DOWNLOADING}/{entry.name}")
        if removed:
            log.info("left over in %s and removed: %s", self.root, ", ".join(removed))
        return removed

    # --- steps ------------------------------------------------------------------------------------------------------

    def _free_key(self, name: str) -> str:
        taken = {entry.name.casefold() for entry in self.root.iterdir()} | {each.casefold() for each in NOT_OURS}
        base = _clean(name)[:_MAX_KEY]
        candidates = (base if number == 1 else f"{base}-{number}" for number in range(1, 10_000))
        return next(each for each in candidates if each.casefold() not in taken)


def tree_bytes(folder: Path) -> int:
    """Bytes of all files below ``folder``; links are not followed."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(top, name)).st_size
            except OSError:
                continue  # it went away between listing and looking
    return total
