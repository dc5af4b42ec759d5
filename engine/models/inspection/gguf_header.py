"""The header of one GGUF file: entries, and where its tensors end. No weight is read, and llama.cpp is not asked.

A header is read as what it is: bytes from somewhere. Every count and length is held against the file before anything is
allocated, so that a cut, damaged or hostile file ends in a refusal. The layout is described in ggml's ``docs/gguf.md``;
its sizes of quantised blocks come from the ``gguf`` package.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import shortened
from engine.files import NoOrdinaryFile, open_file
from engine.models.inspection.safetensors_header import LFS_POINTER

MAX_HEADER_BYTES = 256_000_000
"""No header is longer; the longest known (a vocabulary of 260,000 pieces with its merges) has 20 MB."""

MAX_ENTRIES = 65_536
MAX_TENSORS = 1_000_000
MAX_ELEMENTS = 4_000_000
"""Of one array."""
MAX_VALUES = 1 << 40
"""Of one tensor."""
MAX_KEY_BYTES = 65_535
MAX_KEPT_TEXT = 4_000_000

_NO_WEIGHTS = {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
"""Formats in which ggml keeps numbers, but multiplies no matrices."""
_TABLE = "tid2eid"
"""In the name of a table of experts, which some families keep among their weights."""

TOKENS = "tokenizer.ggml.tokens"
_BYTE = re.compile(rb"<0x(?P<hex>[0-9A-F]{2})>")
_LONGEST_BYTE = len("<0x0A>")

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT_ARRAY = 1024
"""Numbers in an array that is kept; families that state their heads layer by layer have as many as layers."""


class GgufHeaderError(Exception):
    """A header cannot be right; the message is the end of a sentence about the file."""


@dataclass(frozen=True)
class Header:
    """One file's header. ``entries`` holds plain values and short arrays of numbers; ``lengths`` those of all arrays.

    ``needed_bytes`` is how long the file has to be for its tensors; ``spelt_bytes`` for how many of the 256 bytes its
    vocabulary has a token, as vocabularies of pieces do. ``odd_weights`` are matrices in formats that no model computes
    with.
    """

    version: int
    entries: Mapping[str, Any]
    lengths: Mapping[str, int]
    n_tensors: int
    params: int
    tensor_types: Mapping[int, int]
    needed_bytes: int
    spelt_bytes: int
    odd_weights: tuple[str, ...]


class _Reader:
    """Reads on from the start of a file, never past its end or past what a header may take."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._end = min(size, MAX_HEADER_BYTES)
        self._whole = size <= MAX_HEADER_BYTES
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > self._end - self.at:
            raise GgufHeaderError("is cut short" if self._whole else "has a header longer than any real one")
        data = self._file.read(count)
        if len(data) != count:
            raise GgufHeaderError("is cut short")
        self.at += count
        return data

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, most: int) -> str:
        length = self.number("<Q")
        if length > most:
            raise GgufHeaderError(f"has a text of {length} bytes in its header")
        return self.take(length).decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        while count > 0:
            step = min(count, 1 << 20)
            self.take(step)
            count -= step


def read_header(path: Path, size: int) -> Header:
    """The header of one file of ``size`` bytes. Raises :class:`GgufHeaderError`, OSError."""
    try:
        opened = open_file(path)
    except NoOrdinaryFile as error:
        raise GgufHeaderError("is no ordinary file") from error
    with opened as file:
        start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise GgufHeaderError("is a Git LFS pointer: the file itself was never downloaded")
        file.seek(0)
        return _parse(_Reader(file, size), size)


def _parse(reader: _Reader, size: int) -> Header:
    if size < 24 or reader.take(4) != b"GGUF":
        raise GgufHeaderError("is not a GGUF file" if size >= 24 else "is cut short")
    version = reader.number("<I")
    if version & 0xFFFF == 0:
        raise GgufHeaderError("has its bytes in the other order (big-endian)")
    if version not in (2, 3):
        raise GgufHeaderError(f"has GGUF version {version}, and versions 2 and 3 are read")
    n_tensors, n_entries = reader.number("<Q"), reader.number("<Q")
    if n_tensors > MAX_TENSORS or n_entries > MAX_ENTRIES:
        raise GgufHeaderError(f"claims {n_tensors} tensors and {n_entries} entries, more than any real file")
    entries: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    spelt: set[int] = set()
    for _ in range(n_entries):
        key = reader.text(MAX_KEY_BYTES)
        _read_entry(reader, key, entries, lengths, spelt)
    odd: list[str] = []
    params, types, needed = _read_tensors(reader, entries, n_tensors, size, odd)
    return Header(version, entries, lengths, n_tensors, params, types, needed, len(spelt), tuple(odd))


def _read_entry(reader: _Reader, key: str, entries: dict[str, Any], lengths: dict[str, int], spelt: set[int]) -> None:
    kind = reader.number("<I")
    if kind in _SCALARS:
        entries[key] = reader.number(_SCALARS[kind])
    elif kind == _STRING:
        entries[key] = reader.text(MAX_KEPT_TEXT)
    elif kind == _ARRAY:
        inner, count = reader.number("<I"), reader.number("<Q")
        if count > MAX_ELEMENTS:
            raise GgufHeaderError(f"has a list of {count} values in its header")
        lengths[key] = count
        if inner == _STRING:
            for _ in range(count):
                length = reader.number("<Q")
                if key == TOKENS and length <= _LONGEST_BYTE:
                    _note_byte(reader.take(length), spelt)
                else:
                    reader.skip(length)
        elif inner in _SCALARS:
            layout = _SCALARS[inner]
            if count <= _KEPT_ARRAY:
                entries[key] = [reader.number(layout) for _ in range(count)]
            else:
                reader.skip(count * struct.calcsize(layout))
        else:
            raise GgufHeaderError(f"has a list of an unknown kind ({inner}) in its header")
    else:
        raise GgufHeaderError(f"has a value of an unknown kind ({kind}) in its header")


def _note_byte(token: bytes, spelt: set[int]) -> None:
    """Note the byte that ``token`` stands for: itself, or ``<0x0A>``."""
    match = _BYTE.fullmatch(token)
    if match is not None:
        spelt.add(int(match["hex"], 16))
    elif len(token) == 1:
        spelt.add(token[0])


def _read_tensors(
    reader: _Reader, entries: Mapping[str, Any], n_tensors: int, size: int, odd: list[str]
) -> tuple[int, dict[int, int], int]:
    """Values in all tensors, values by format, and the length the file has to have."""
    from gguf.constants import GGML_QUANT_SIZES

    blocks = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    params, furthest = 0, 0
    types: dict[int, int] = {}
    for _ in range(n_tensors):
        name = reader.text(MAX_KEY_BYTES)
        n_dims = reader.number("<I")
        if n_dims > 8:
            raise GgufHeaderError(f"gives {shortened(name)} {n_dims} dimensions")
        values = 1
        for _ in range(n_dims):
            values *= reader.number("<Q")
        if values > MAX_VALUES:
            raise GgufHeaderError(f"gives {shortened(name)} {values} values")
        kind, offset = reader.number("<I"), reader.number("<Q")
        if kind in _NO_WEIGHTS and n_dims > 1 and name.endswith(".weight") and _TABLE not in name:
            odd.append(f"{shortened(name)} ({_NO_WEIGHTS[kind]})")
        params += values
        types[kind] = types.get(kind, 0) + values
        if kind in blocks:
            per_block, block_bytes = blocks[kind]
            furthest = max(furthest, offset + -(-values // per_block) * block_bytes)
        else:
            furthest = max(furthest, offset)  # a format newer than we know: where it ends is not ours to say
    alignment = entries.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise GgufHeaderError("states an alignment that cannot be right")
    start = -(-reader.at // alignment) * alignment
    needed = start + furthest if n_tensors else reader.at
    if needed > size:
        raise GgufHeaderError(f"is cut short: its weights end at byte {needed}, and the file has {size}")
    return params, types, needed
