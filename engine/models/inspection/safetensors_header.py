"""Reads what a safetensors file says about itself: its tensors' names, formats and places, never their values.

Format: 8 bytes with the header's length (little-endian), a JSON header, then the tensors' bytes without gaps. The
header alone tells whether the file is whole. Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.counting import so_many
from engine.files import open_file
from engine.json_text import JsonText

MAX_HEADER_BYTES = 32_000_000
"""The format allows 100 MB; those of the largest models have five. Readers of the weights parse it in one step."""

MAX_DIMENSIONS = 64
MAX_SIDE = 1 << 63
"""A side is a 64-bit number in every reader."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that Git left in place of a large one."""

BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}
"""Bits of one value by the format's word for it."""


class SafetensorsHeaderError(ValueError):
    """The file is not whole or not safetensors; the text says what is wrong, without the file's name."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as the header describes it. ``dtype`` is the format's word (``BF16``)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


def read_header(path: Path) -> list[StoredTensor]:
    """Every tensor in the file.

    Raises :class:`SafetensorsHeaderError` when the file cannot be whole, OSError when it cannot be read.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if start == LFS_POINTER[:8]:
            raise SafetensorsHeaderError("is a Git LFS pointer: the weights themselves were never downloaded")
        if len(start) < 8:
            raise SafetensorsHeaderError(
                f"is cut short: it has {so_many(size, 'byte')}, not even the length of a header"
            )
        length = int.from_bytes(start, "little")
        if length > MAX_HEADER_BYTES:
            real = 8 + length <= size
            raise SafetensorsHeaderError(
                "has a header longer than any real one" if real else "is not a safetensors file"
            )
        if 8 + length > size:
            raise SafetensorsHeaderError(f"is cut short within its header: {8 + length - size} bytes are missing there")
        raw = file.read(length)
    entries = _entries(raw)
    tensors = [_tensor(name, entry) for name, entry in entries.items()]
    if not tensors:
        raise SafetensorsHeaderError("holds no tensors")
    end = 0
    for begin, stop in sorted(_span(name, entry) for name, entry in entries.items()):
        if begin != end:
            raise SafetensorsHeaderError("has a damaged header: its tensors overlap or leave gaps")
        end = stop
    whole = 8 + length + end
    if whole > size:
        raise SafetensorsHeaderError(f"is cut short: {whole - size} of {whole} bytes are missing")
    if whole < size:
        raise SafetensorsHeaderError(f"has {so_many(size - whole, 'byte')} too many after its last tensor")
    return tensors


def _entries(raw: bytes) -> dict[str, Any]:
    try:
        cursor = JsonText(raw.decode("utf-8"))
        if cursor.peek() not in ("{", ""):
            cursor.skip()
            cursor.end()
            raise SafetensorsHeaderError("has a header that is no JSON object")
        # An entry is short: one that is not is refused before it is read.
        header = {name: cursor.short() for name in cursor.members() if name != "__metadata__"}
        cursor.end()
    except SafetensorsHeaderError:
        raise
    except ValueError as error:
        raise SafetensorsHeaderError("has a header that cannot be read") from error
    return header


def _tensor(name: str, entry: Any) -> StoredTensor:
    if not isinstance(entry, dict):
        raise SafetensorsHeaderError(f"has a damaged header at the tensor {name[:100]!r}")
    dtype, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise SafetensorsHeaderError(
            f"holds the tensor {name[:100]!r} in an unknown number format, {str(dtype)[:40]!r}"
        )
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(_is_count(side) for side in shape):
        raise SafetensorsHeaderError(f"has a damaged shape at the tensor {name[:100]!r}")
    begin, stop = _span(name, entry)
    if (stop - begin) * 8 != math.prod(shape) * BITS[dtype]:
        raise SafetensorsHeaderError(f"has a damaged header: the tensor {name[:100]!r} does not fill its place")
    return StoredTensor(name, dtype, tuple(shape), stop - begin)


def _span(name: str, entry: dict[str, Any]) -> tuple[int, int]:
    offsets = entry.get("data_offsets")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(_is_count(offset) for offset in offsets)
        or offsets[0] > offsets[1]
    ):
        raise SafetensorsHeaderError(f"has damaged offsets at the tensor {name[:100]!r}")
    return offsets[0], offsets[1]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_SIDE
