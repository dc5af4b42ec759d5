"""Opening a file of the person's own: whatever is found under a name, opening it never waits."""

from __future__ import annotations

import errno
import os
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


def read_text(path: Path, most: int) -> str:
    """The text in a file of at most ``most`` bytes. Raises OSError as :func:`open_file`, and for a longer file;
    UnicodeDecodeError.
    """
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data.decode("utf-8")
