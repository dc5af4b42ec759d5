"""Writing into the data directory, one way for models and SAEs: room on the disk, copies that stay, errors in words."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.errors import DataDirectoryUnusable, InsufficientDisk
from engine.files import open_file

log = logging.getLogger(__name__)

BLOCK = 1 << 20
"""Bytes of a copy between two questions whether to go on."""


@dataclass(frozen=True)
class Writing:
    """What is written below ``root``; ``what`` is its name in messages, such as ``the model``."""

    root: Path
    what: str

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the system refuses into :class:`InsufficientDisk` or :class:`DataDirectoryUnusable`."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space() from error
            raise DataDirectoryUnusable(
                f"{self.what[:1].upper()}{self.what[1:]} could not be written to {self.root}: "
                f"{error.strerror or error}.",
                details={"path": str(self.root)},
                remedy="Check that the folder may be written and its disk is well, or import without copying.",
            ) from error

    def require_space(self, needed: int) -> None:
        """Raise :class:`InsufficientDisk` when the disk of ``root``, which is there, has no room for so many bytes."""
        free = shutil.disk_usage(self.root).free
        if needed > free:
            raise self._no_space(needed, free)

    def _no_space(self, needed: int | None = None, free: int | None = None) -> InsufficientDisk:
        figures = {}
        takes = ""
        if needed is not None and free is not None:
            figures = {"needed_mb": round(needed / 1e6, 1), "free_mb": round(free / 1e6, 1)}
            takes = f": it takes {figures['needed_mb']:g} MB and {figures['free_mb']:g} MB are free"
        return InsufficientDisk(
            f"The disk of {self.root} has no room for {self.what}{takes}.",
            details={"path": str(self.root), **figures},
            remedy="Free some space, or import without copying.",
        )


def copy_file(source: Path, target: Path, check: Callable[[], None] = lambda: None) -> str:
    """Copy one file and see that it is on the disk; the SHA-256 of what was written.

    ``check`` is called before each block and may raise.
    """
    digest = hashlib.sha256()
    with open_file(source) as reading, target.open("wb") as writing:
        while block := reading.read(BLOCK):
            check()
            writing.write(block)
            digest.update(block)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours; one that cannot be removed now goes at the next start."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError:
        log.warning("%s could not be removed; it goes at the next start", folder, exc_info=True)
