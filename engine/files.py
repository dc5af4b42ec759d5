"""A person's own files: whatever is found under a name, opening it never waits; what is written is written whole."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO


class NoOrdinaryFile(OSError):
    """Something else has that name: a folder, a pipe, a socket, a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is no ordinary file", str(path))


def open_file(path: Path) -> BinaryIO:
    """``path`` open for reading bytes; links are followed.

    Raises OSError as ``open`` does, and :class:`NoOrdinaryFile`: a pipe would wait for somebody to write into it, and a
    device may never end.
    """
    # Without O_NONBLOCK the opening itself would wait; asking first what lies there would leave a gap.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NoOrdinaryFile(path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def write_text(path: Path, text: str) -> None:
    """Put ``text`` into the file at ``path``, its line ends as they are. As :func:`write_file`."""
    write_file(path, text.encode("utf-8"))


def write_file(path: Path, data: bytes) -> None:
    """Put ``data`` into the file at ``path``; it is on the disk when this returns.

    What is there is replaced at one go, or stays as it is: a full disk leaves no half of a file. A link is followed.
    Raises OSError, and :class:`NoOrdinaryFile` where something else has that name.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        raise NoOrdinaryFile(path)
    beside = place.with_name(f".{place.name[:200]}.{os.getpid()}.new")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, beside)
        os.replace(beside, place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_text(path: Path, most: int) -> str:
    """The text in a file of at most ``most`` bytes. Raises OSError as :func:`open_file`, and for a longer file;
    UnicodeDecodeError.
    """
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data.decode("utf-8")
