"""Which files in a folder of ours this program wrote, and taking away exactly those.

A note with every file's length, time and digest is kept in the library for as long as the folder stands. While a row
is being written or removed it also lies in the folder itself, in the marker that says "this stays exactly if its row is
there", so that a start after a kill knows what to take away without any row. A file that a person added, or put in
place of one of ours, is not in the note, or not as it says: it stays, and the folder with it. See
``docs/decisions/0007-deleting-files.md``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from engine.actions.durable_files import BLOCK, remove_tree
from engine.files import open_file
from engine.library.state import StateRepository

log = logging.getLogger(__name__)

MARKER = ".unsettled"
REMOVED = ".removed-"
SAME_TIME_NS = 2_000_000_000
"""How far two times of the same file may lie apart: some file systems count in steps of two seconds."""

_MOST_NOTE_BYTES = 64_000_000
_KEY_LENGTH = 100
"""Characters of a key of the library's state."""


@dataclass(frozen=True)
class WrittenFile:
    """One file as it was written: bytes, time of its last change, and SHA-256 where it is known."""

    size: int
    mtime_ns: int
    sha256: str | None = None


Note = Mapping[str, WrittenFile]
"""Files by their path inside the folder, with slashes."""


def note_of(folder: Path, digests: Mapping[str, str] | None = None) -> Note:
    """What lies in ``folder``, which nobody but this program has had yet. ``digests``: SHA-256 by path, where known."""
    known = digests or {}
    found: dict[str, WrittenFile] = {}
    for path in _files_in(folder):
        name = path.relative_to(folder).as_posix()
        state = path.lstat()
        if path.name != MARKER and stat.S_ISREG(state.st_mode):
            found[name] = WrittenFile(state.st_size, state.st_mtime_ns, known.get(name))
    return found


class Notes:
    """The notes of one kind of folders, in the library's state."""

    def __init__(self, state: StateRepository, kind: str) -> None:
        self._state = state
        self._kind = kind

    def get(self, key: str) -> Note | None:
        """The note about the folder ``key``; None where there is none, as for those of earlier versions."""
        return _parsed(self._state.get(self._name(key)))

    def keep(self, key: str, note: Note) -> None:
        """Remember ``note``."""
        self._state.set(self._name(key), _plain(note))

    def forget(self, key: str) -> None:
        """The folder is ours no more."""
        self._state.remove(self._name(key))

    def forget_gone(self, root: Path) -> None:
        """For the start: of folders that are not there any more nothing is ours."""
        prefix = f"files/{self._kind}/"
        for name in self._state.keys(prefix):
            key = name.removeprefix(prefix)
            if not key.startswith("#") and not os.path.lexists(root / key):
                self._state.remove(name)

    def _name(self, key: str) -> str:
        name = f"files/{self._kind}/{key}"
        if len(name) <= _KEY_LENGTH:
            return name
        return f"files/{self._kind}/#{hashlib.sha256(key.encode()).hexdigest()}"


# --- the marker -------------------------------------------------------------------------------------------------------


def mark(folder: Path, note: Note) -> None:
    """From here on the folder stays exactly if its row is there. Raises OSError."""
    with (folder / MARKER).open("w", encoding="ascii") as writing:
        json.dump(_plain(note), writing)
        writing.flush()
        # Before the row changes; one that a kill leaves half written lies beside a row that has not changed.
        os.fsync(writing.fileno())


def is_marked(folder: Path) -> bool:
    """Whether its row decides about it."""
    return not folder.is_symlink() and (folder / MARKER).is_file()


def marked_note(folder: Path) -> Note | None:
    """The note in the marker; None where it holds none, as in those of earlier versions."""
    try:
        with open_file(folder / MARKER) as reading:
            return _parsed(json.loads(reading.read(_MOST_NOTE_BYTES)))
    except (OSError, ValueError, RecursionError):
        return None


def unmark(folder: Path) -> None:
    """The folder stays."""
    (folder / MARKER).unlink(missing_ok=True)


# --- removal ----------------------------------------------------------------------------------------------------------


def take_away(folder: Path, note: Note, root: Path) -> int:
    """Remove from ``folder`` (in ``root``) what the note says and nothing else; the bytes that are free again.

    Goes at once where nothing else lies there; else file by file, marker last, and what remains is a person's own.
    What cannot be removed now goes at the next start, since the marker stays with it.
    """
    if folder.is_symlink() or not folder.is_dir():
        return 0
    ours = dict(_still_ours(folder, note))
    others = [path for path in _files_in(folder) if path not in ours and path.name != MARKER]
    if not others and _moved_out(folder, root):
        return sum(ours.values())
    freed = 0
    for path, size in ours.items():
        try:
            path.unlink()
            freed += size
        except OSError:
            log.warning("%s could not be removed; it goes at the next start", path, exc_info=True)
            return freed
    if others:
        log.info("%d files in %s are not this program's and stay there", len(others), folder)
    try:
        unmark(folder)
    except OSError:
        log.warning("%s could not be put right; that is done at the next start", folder, exc_info=True)
    _remove_empty(folder)
    return freed


def _moved_out(folder: Path, root: Path) -> bool:
    """Out of sight in one step, so that nothing half removed is seen; then removed."""
    try:
        gone = Path(tempfile.mkdtemp(prefix=REMOVED, dir=root))
    except OSError:
        return False  # on a full disk, for one
    try:
        os.replace(folder, gone / folder.name)
    except OSError:
        gone.rmdir()
        return False
    remove_tree(gone)
    return True


def _still_ours(folder: Path, note: Note) -> Iterator[tuple[Path, int]]:
    for name, written in note.items():
        path = folder / name
        if _is_plain(name) and not _through_link(folder, name) and _unchanged(path, written):
            yield path, written.size


def _unchanged(path: Path, written: WrittenFile) -> bool:
    try:
        state = path.lstat()
    except OSError:
        return False
    if not stat.S_ISREG(state.st_mode) or state.st_size != written.size:
        return False
    if abs(state.st_mtime_ns - written.mtime_ns) < SAME_TIME_NS:
        return True
    # The data directory may have been copied to another disk, which gives files new times.
    return written.sha256 is not None and _digest(path) == written.sha256


def _digest(path: Path) -> str | None:
    try:
        digest = hashlib.sha256()
        with open_file(path) as reading:
            while block := reading.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()
    except OSError:
        return None


def _is_plain(name: str) -> bool:
    """Whether a path of a note stays inside its folder."""
    path = PurePath(name)
    return bool(name) and not path.is_absolute() and not path.drive and ".." not in path.parts


def _through_link(folder: Path, name: str) -> bool:
    """Whether a folder on the way is a link: what lies behind it was put there by a person."""
    parents = list(PurePosixPath(name).parents)[:-1]
    return any((folder / each).is_symlink() for each in parents)


def _files_in(folder: Path) -> Iterator[Path]:
    """Everything below that is no folder of its own; links are not followed."""
    for top, folders, names in os.walk(folder):
        for name in (*names, *(each for each in folders if os.path.islink(os.path.join(top, each)))):
            yield Path(top, name)


def _remove_empty(folder: Path) -> None:
    for top, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(top)
        except OSError:
            continue  # something is in it


# --- sweeping ---------------------------------------------------------------------------------------------------------


def sweep_marked(root: Path, wanted: Callable[[str, Note | None], bool]) -> list[str]:
    """For the start: each marked folder in ``root`` stays where ``wanted`` says so, of its name and note, and is taken
    away else; returns the names of those.

    The marker of an earlier version is empty. It lay only in folders that were placed a moment ago, or about to go as a
    whole, so there everything is ours.
    """
    removed = []
    for folder in sorted(root.iterdir()):
        if folder.name.startswith(".") or not is_marked(folder):
            continue
        note = marked_note(folder)
        if wanted(folder.name, note):
            try:
                unmark(folder)
            except OSError:
                log.warning("%s could not be put right; that is done at the next start", folder, exc_info=True)
        else:
            take_away(folder, note_of(folder) if note is None else note, root)
            removed.append(folder.name)
    return removed


# --- as JSON ----------------------------------------------------------------------------------------------------------


def _plain(note: Note) -> dict[str, Any]:
    return {name: [each.size, each.mtime_ns, each.sha256] for name, each in note.items()}


def _parsed(value: Any) -> Note | None:
    if not isinstance(value, dict):
        return None
    try:
        return {
            str(name): WrittenFile(int(size), int(mtime_ns), None if sha256 is None else str(sha256))
            for name, (size, mtime_ns, sha256) in value.items()
        }
    except (TypeError, ValueError):
        return None


def assumed(paths: Iterable[Path], folder: Path) -> Note:
    """A note about files of an earlier version, which kept none: as they are now."""
    found: dict[str, WrittenFile] = {}
    for path in paths:
        try:
            state = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            found[path.relative_to(folder).as_posix()] = WrittenFile(state.st_size, state.st_mtime_ns)
    return found
