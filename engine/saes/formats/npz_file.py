"""npz: a zip of NumPy arrays. Headers tell the shapes; arrays of objects, which hold pickles, are refused."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from engine.counting import so_many
from engine.saes.errors import SaeLoadFailed
from engine.saes.formats.weights import Stored, WeightsFile, damaged, unsafe

MAX_EXPANSION = 200
"""How many times larger than packed an array may be; weights hardly shrink, bombs do."""


@dataclass(frozen=True)
class NpzFile(WeightsFile):
    """An npz archive."""

    @property
    def kind(self) -> str:
        """``npz``."""
        return "npz"

    def read(self, name: str) -> Tensor:
        """One array as a tensor that owns its memory."""
        self.shape(name)
        with _member(self.path, f"{name}.npy") as file:
            array: np.ndarray[Any, Any] = npy.read_array(file, allow_pickle=False)
        try:
            # Files written on big-endian machines keep their byte order; torch knows only the machine's own.
            return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C", copy=False))
        except (TypeError, ValueError) as error:  # texts, dates, records, and numbers wider than torch has
            raise damaged(self.path, f"stores {name} as {array.dtype.name}, not as floating-point numbers") from error


def open_npz(path: Path) -> NpzFile | None:
    """The arrays' names and shapes; None when the archive holds no ``.npy`` member at all (torch's zip files).

    Raises SaeLoadFailed when it is damaged or holds Python objects.
    """
    with _archive(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    if not members:
        return None
    tensors = {}
    for info in members:
        name = info.filename.removesuffix(".npy")
        with _member(path, info.filename) as file:
            shape, dtype = _header(file)
        if dtype.hasobject:
            raise unsafe(path, f"holds Python objects in {name}, not numbers")
        wanted = math.prod(shape) * dtype.itemsize
        if wanted > info.file_size:
            raise damaged(path, f"is damaged: {name} claims {so_many(wanted, 'byte')} and has {info.file_size}")
        if info.file_size > MAX_EXPANSION * max(info.compress_size, 1024):
            raise damaged(path, f"expands {name} more than {MAX_EXPANSION}-fold, which weights never do")
        tensors[name] = Stored(shape, dtype.name)
    return NpzFile(path, tensors)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    shape, _, dtype = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    return tuple(shape), dtype


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except SaeLoadFailed:
        raise
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    except Exception as error:
        # A header is a Python literal and an archive a nest of lengths: hostile ones end in almost any exception.
        raise damaged(path, "is cut short or damaged") from error


@contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    with _archive(path) as archive, archive.open(name) as file:
        yield file
