"""Model files in the data directory: whole under their final name, or not there at all.

Downloads grow in ``.downloading/KEY`` and stay there after a cut, so that they can be gone on with; copies are made in
``.importing-…``. Either becomes ``KEY`` by one rename. From the rename until the row is written, and from before the
row is removed until the files are gone, a marker lies in the folder: after a kill, a folder with a marker stays exactly
if a row uses what we wrote into it. What we wrote is noted (``engine/actions/written.py``), and nothing else is ever
removed. The demo model's own folder is never touched.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.actions.durable_files import Writing, copy_file, remove_tree
from engine.actions.written import (
    REMOVED,
    Note,
    Notes,
    assumed,
    mark,
    note_of,
    sweep_marked,
    take_away,
    unmark,
)
from engine.checked import there
from engine.library.records import EngineKind, ModelRecord, ModelSource
from engine.library.state import StateRepository
from engine.models.hub.repository_files import is_checkpoint_file
from engine.models.inspection.gguf_file import set_of

log = logging.getLogger(__name__)

FOLDER = "models"
"""Beside the library."""
DOWNLOADING = ".downloading"
IMPORTING = ".importing-"
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
    """The folder ``root`` with one folder per model that is ours.

    Whoever changes which rows use a folder, or gives one its name, does so under :attr:`changes`: of two at once, the
    second sees what the first has done.
    """

    changes = threading.RLock()
    """One for the process, since a data directory has one process; held for the time of some renames."""

    def __init__(self, root: Path, state: StateRepository) -> None:
        self.root = root
        self._writing = Writing(root, "the model")
        self._notes = Notes(state, FOLDER)

    def place(self, key: str) -> Path:
        """Where the files of ``key`` are when they are whole."""
        return self.root / key

    def staging(self, key: str) -> Path:
        """Where the files of ``key`` grow."""
        return self.root / DOWNLOADING / key

    def key_of(self, path: Path) -> str | None:
        """The key of the folder that ``path`` lies in; None outside of ``root`` and where no model of ours is kept."""
        try:
            inside = path.relative_to(self.root)
        except ValueError:
            return None
        first = inside.parts[0] if inside.parts else ""
        return None if not first or first.startswith(".") or first in NOT_OURS else first

    def free_key(self, key: str, in_use: Collection[str]) -> str:
        """``key``, or what is nearest to it where a folder of that name is there that we did not make: it has no note,
        and no row of those ``in_use`` is known to be from an earlier version.
        """
        candidates = (key if number == 1 else f"{key}-{number}" for number in range(1, 10_000))
        return next(
            each
            for each in candidates
            if each in in_use or not os.path.lexists(self.place(each)) or self._notes.get(each) is not None
        )

    # --- whose files ------------------------------------------------------------------------------------------------

    def used_by(self, record: ModelRecord) -> Note:
        """The files that we wrote and this row uses; empty for a row whose files are a person's own."""
        key = None if record.local_path is None else self.key_of(Path(record.local_path))
        if key is None or self.place(key).is_symlink():
            return {}
        note = self._notes.get(key)
        return _part(self._of_earlier_version(record, key) if note is None else note, record, self.place(key))

    def _of_earlier_version(self, record: ModelRecord, key: str) -> Note:
        """What an earlier version, which kept no notes, is known to have written for a row.

        Its downloads have a name that nobody else gives a folder, and files that it chose by their names. Its copies
        look like what a person may have put there and imported as it is, so nothing of them is known.
        """
        if record.source is not ModelSource.HUGGINGFACE or not (record.repo_id and record.revision):
            return {}
        if key != folder_key(record.repo_id, record.revision, record.gguf_label):
            return {}
        folder = self.place(key)
        if record.engine is EngineKind.LLAMACPP:
            return assumed(set_of(Path(record.local_path or "")), folder)
        return _assumed_in(folder, lambda name: is_checkpoint_file(name, with_code=record.trust_remote_code))

    # --- coming in --------------------------------------------------------------------------------------------------

    def put(self, key: str, digests: Mapping[str, str]) -> Path:
        """Give what grew for ``key`` its final name, marked until :meth:`settle`; returns that folder.

        ``digests``: SHA-256 of the files, where they are known.
        """
        with self._writing.translated():
            note = note_of(self.staging(key), digests)
            mark(self.staging(key), note)
            self._notes.keep(key, note)
            os.replace(self.staging(key), self.place(key))
        return self.place(key)

    def settle(self, key: str) -> None:
        """The row is written: the folder stays."""
        try:
            unmark(self.place(key))
        except OSError:
            log.warning("%s could not be put right; that is done at the next start", self.place(key), exc_info=True)

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
        placed: Path | None = None
        note: Note = {}
        try:
            digests = {}
            for file in files:
                with self._writing.translated():
                    digests[file.name] = copy_file(file, temporary / file.name, check)
            with self.changes, self._writing.translated():
                note = note_of(temporary, digests)
                mark(temporary, note)
                placed = self._named(temporary, name)
                self._notes.keep(placed.name, note)
            yield placed
            self.settle(placed.name)
        except BaseException:
            remove_tree(temporary)
            if placed is not None:
                self._notes.forget(placed.name)
                take_away(placed, note, self.root)
            raise

    # --- going away -------------------------------------------------------------------------------------------------

    def mark_going(self, record: ModelRecord) -> Note:
        """Before the row is removed: note in its folder what goes with it, and return that; see :meth:`take_away`."""
        note = self.used_by(record)
        if note:
            with self._writing.translated():
                mark(self._home(record), note)
        return note

    def keep(self, record: ModelRecord) -> None:
        """The row was not removed after all."""
        unmark(self._home(record))

    def take_away(self, record: ModelRecord, note: Note) -> int:
        """The row is gone: remove the files of ``note``; the bytes that are free again."""
        home = self._home(record)
        self._notes.forget(home.name)
        return take_away(home, note, self.root)

    def discard_staging(self, key: str) -> int:
        """Remove what grew for ``key``; the bytes that are free again."""
        growing = self.staging(key)
        freed = tree_bytes(growing) if growing.is_dir() else 0
        remove_tree(growing)
        return freed

    def sweep(self, records: Collection[ModelRecord]) -> list[str]:
        """Remove what a killed process left and no row wants. For the start, before anything is fetched or copied."""
        if not self.root.is_dir():
            return []
        removed: list[str] = []
        for entry in sorted(self.root.iterdir()):
            if entry.name.startswith((IMPORTING, REMOVED)) and entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
                removed.append(entry.name)
        here = {record: self.key_of(Path(record.local_path)) for record in records if record.local_path is not None}

        def wanted(key: str, note: Note | None) -> bool:
            users = [record for record, its in here.items() if its == key]
            if note is None:
                return bool(users)
            if not any(_part(note, record, self.place(key)) for record in users):
                self._notes.forget(key)
                return False
            self._notes.keep(key, note)
            return True

        removed += sweep_marked(self.root, wanted)
        self._notes.forget_gone(self.root)
        growing = self.root / DOWNLOADING
        keys = set(here.values())
        for entry in sorted(growing.iterdir()) if growing.is_dir() else ():
            if entry.name not in keys:
                remove_tree(entry)
                removed.append(f"{DOWNLOADING}/{entry.name}")
        if removed:
            log.info("left over in %s and removed: %s", self.root, ", ".join(removed))
        return removed

    # --- steps ------------------------------------------------------------------------------------------------------

    def _home(self, record: ModelRecord) -> Path:
        # What goes with a row lies in its folder.
        return self.place(there(self.key_of(Path(record.local_path or ""))))

    def _named(self, temporary: Path, name: str) -> Path:
        """Give ``temporary`` a free name; what has a name already is another's, whoever made it a moment ago."""
        while True:
            place = self.place(self._free_key(name))
            try:
                os.replace(temporary, place)
            except OSError:
                if not os.path.lexists(place):
                    raise
            else:
                return place

    def _free_key(self, name: str) -> str:
        taken = {entry.name.casefold() for entry in self.root.iterdir()} | {each.casefold() for each in NOT_OURS}
        # The sign before a commit stands in the names of downloads only.
        base = _clean(name).replace("@", "-")[:_MAX_KEY]
        candidates = (base if number == 1 else f"{base}-{number}" for number in range(1, 10_000))
        return next(each for each in candidates if each.casefold() not in taken)


def _part(note: Note, record: ModelRecord, folder: Path) -> Note:
    """What a row uses of the files in ``note``."""
    place = Path(record.local_path or "")
    if record.engine is EngineKind.LLAMACPP:
        own = {each.relative_to(folder).as_posix() for each in set_of(place)}
        return note if own & note.keys() else {}
    if place == folder:
        return note
    inside = place.relative_to(folder).as_posix()
    return note if any(name.startswith(f"{inside}/") for name in note) else {}


def _assumed_in(folder: Path, written: Callable[[str], bool]) -> Note:
    """What an earlier version may have written into a folder: files whose paths in it are as ``written`` knows them."""
    return assumed((path for path in folder.rglob("*") if written(path.relative_to(folder).as_posix())), folder)


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
