"""Writing into the data directory, one way for models and SAEs: room on the disk, copies that stay, errors in words."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.counting import in_mb
from engine.errors import DataDirectoryUnusable, InsufficientDisk, InvalidParameter
from engine.files import open_file

log = logging.getLogger(__name__)

BLOCK = 1 << 20
"""Bytes of a copy between two questions whether to go on."""


_BLOBS = re.compile(r"(models|datasets|spaces)--.+")


class SourceUnreadable(OSError):
    """What was to be copied cannot be read; says nothing about the place it goes to."""


@dataclass(frozen=True)
class Writing:
    """What is written below ``root``; ``what`` is its name in messages, such as ``the model``, and ``param`` the field
    of a request that names what is copied.
    """

    root: Path
    what: str
    param: str = "local_path"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn what the system refuses into :class:`InsufficientDisk` or :class:`DataDirectoryUnusable`, and what
        cannot be read or named into :class:`InvalidParameter`.
        """
        try:
            yield
        except SourceUnreadable as error:
            raise InvalidParameter(
                f"{error.filename} cannot be copied: {error.strerror}.",
                param=self.param,
                remedy="Check that the file may be read and that nothing writes to it, or import without copying.",
            ) from error
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise InvalidParameter(
                    f"{self.what[:1].upper()}{self.what[1:]} has a name that is too long for the disk of {self.root}.",
                    param=self.param,
                    remedy="Give its files shorter names, or import without copying.",
                ) from error
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
            figures = {"needed_mb": in_mb(needed, 1), "free_mb": in_mb(free, 1)}
            takes = f": it takes {figures['needed_mb']:g} MB and {figures['free_mb']:g} MB are free"
        return InsufficientDisk(
            f"The disk of {self.root} has no room for {self.what}{takes}.",
            details={"path": str(self.root), **figures},
            remedy="Free some space, or import without copying.",
        )


def copy_file(source: Path, target: Path, check: Callable[[], None] = lambda: None) -> str:
    """Copy one file, as long as it is now, and see that it is on the disk; the SHA-256 of what was written.

    ``check`` is called before each block and may raise. Raises :class:`SourceUnreadable`, also for a file that grows,
    and OSError for the target.
    """
    digest = hashlib.sha256()
    try:
        reading = open_file(source)
    except OSError as error:
        raise _unreadable(source, error) from error
    with reading, target.open("wb") as writing:
        length, copied = os.fstat(reading.fileno()).st_size, 0
        while block := _read(reading, source):
            check()
            copied += len(block)
            if copied > length:
                raise SourceUnreadable(errno.EBUSY, "it grew while it was read", str(source))
            writing.write(block)
            digest.update(block)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def _read(reading: BinaryIO, source: Path) -> bytes:
    try:
        return reading.read(BLOCK)
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: OSError) -> SourceUnreadable:
    return SourceUnreadable(error.errno, error.strerror or str(error), str(source))


def refuse_stray_links(files: Iterable[Path], folder: Path, param: str) -> None:
    """Raise :class:`InvalidParameter` for a link among ``files`` that leads out of ``folder``: a copy would hold what
    lies there, whatever it is. Links to the blobs of a Hugging Face cache, as in its snapshots, are followed.
    """
    inside = Path(os.path.realpath(folder))
    for file in files:
        target = Path(os.path.realpath(file))
        blob = target.parent.name == "blobs" and _BLOBS.fullmatch(target.parent.parent.name) is not None
        if not blob and not target.is_relative_to(inside):
            raise InvalidParameter(
                f"{file} leads to {target}, outside of the folder that is to be copied.",
                param=param,
                details={"path": str(file), "target": str(target)},
                remedy="Put the file itself in place of the link, or import without copying.",
            )


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours; one that cannot be removed now goes at the next start."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError:
        log.warning("%s could not be removed; it goes at the next start", folder, exc_info=True)
