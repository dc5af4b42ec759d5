"""Looks at a GGUF file, or a set it was split into, without llama.cpp and without reading a weight.

A header is read as what it is: bytes from somewhere. Every count and length is held against the file before anything is
allocated, so that a cut, damaged or hostile file ends in one refusal that lists its problems. The layout is described
in ggml's ``docs/gguf.md``; its sizes of quantised blocks come from the ``gguf`` package.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import CheckpointInvalid, EngineUnsupported, ModelNotGenerative
from engine.models.findings import DOWNLOAD_AGAIN, PERMISSIONS
from engine.models.names import TEXT_GENERATION, shortened
from engine.models.safetensors_header import LFS_POINTER

MEMORY_FACTOR = 1.2
"""Memory over the size of the file: room for activations and a context."""

DEFAULT_CONTEXT = 2048
"""Tokens of context taken for a file that states no limit."""

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
MAX_PARTS = 10_000

EMBEDDING_ARCHITECTURES = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)
"""llama.cpp's words for models that only encode."""

FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}
"""``general.file_type`` by llama.cpp's enumeration ``llama_ftype``."""

_LABEL = re.compile(
    r"(?:^|[-_.\s])(?P<label>(?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+){0,3}|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32))$",
    re.IGNORECASE,
)
_PART = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT_ARRAY = 1024
"""Numbers in an array that is kept; families that state their heads layer by layer have as many as layers."""

_FOLDER = "Choose the GGUF file itself."


@dataclass(frozen=True)
class GgufReport:
    """What a sound GGUF holds. A size its header does not state is 0.

    Attributes:
        path: The file, or the first of a set.
        files: All files of the set, in order.
        label: Its exact quantisation (``Q4_K_M``), from the file's name, else from its header.
        quantization: The coarse level of ``label``: FP32, FP16, Q8, Q4 or Q2.
        name: What the file calls the model, or None.
        context_length: Tokens; ``DEFAULT_CONTEXT`` where the header states no limit.
        kv_width: Key-value heads × head width: the values a token's keys take in one layer.
        params: Values in all tensors.
        pipeline_tag: ``text-generation``, or ``feature-extraction`` for a model that only encodes.
    """

    path: Path
    files: tuple[Path, ...]
    label: str
    quantization: str
    name: str | None
    architecture: str
    context_length: int
    vocab_size: int
    n_layers: int
    d_model: int
    kv_width: int
    params: int
    disk_size_bytes: int
    estimated_memory_bytes: int
    has_chat_template: bool
    pipeline_tag: str


class HeaderError(Exception):
    """A header cannot be right; the message is the end of a sentence about the file."""


@dataclass(frozen=True)
class Header:
    """One file's header. ``entries`` holds plain values and short arrays of numbers; ``lengths`` those of all arrays.

    ``needed_bytes`` is how long the file has to be for its tensors.
    """

    version: int
    entries: Mapping[str, Any]
    lengths: Mapping[str, int]
    n_tensors: int
    params: int
    tensor_types: Mapping[int, int]
    needed_bytes: int


def inspect_gguf(path: Path) -> GgufReport:
    """Describe the file at ``path``, or the split set that it is a part of.

    Raises :class:`CheckpointInvalid` listing every problem; :class:`ModelNotGenerative` and :class:`EngineUnsupported`
    for files that are sound and no language model.
    """
    files = set_of(path)
    problems: list[str] = []
    headers: list[Header] = []
    size = 0
    for file in files:
        try:
            length = file.stat().st_size
            headers.append(read_header(file, length))
            size += length
        except FileNotFoundError:
            problems.append(f"{file.name} is missing")
        except HeaderError as error:
            problems.append(f"{file.name} {error}")
        except OSError as error:
            problems.append(f"{file.name} cannot be read: {error.strerror or error}")
    _refuse(path, problems)
    first = headers[0]
    if len(files) > 1:
        problems += _misfits(files, headers)
    elif int(first.entries.get("split.count", 0) or 0) > 1:
        problems.append(f"{files[0].name} is one of {first.entries['split.count']} parts and was renamed")
    _check_kind(path, first)
    architecture = first.entries.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        problems.append("its header names no architecture")
        architecture = ""
    sizes = _sizes(first, architecture)
    if not sizes["vocab_size"]:
        problems.append("its header holds no vocabulary")
    if not sizes["n_layers"] or not sizes["d_model"]:
        problems.append("its header does not say how many layers it has and how wide they are")
    if not sum(header.n_tensors for header in headers):
        problems.append("it holds no weights")
    _refuse(path, problems)
    label = label_of(files[0]) or _label_from(first)
    encodes = architecture in EMBEDDING_ARCHITECTURES or f"{architecture}.pooling_type" in first.entries
    name = first.entries.get("general.name")
    return GgufReport(
        path=files[0],
        files=files,
        label=label,
        quantization=coarse_level(label),
        name=name if isinstance(name, str) and name else None,
        architecture=architecture,
        context_length=sizes["context_length"] or DEFAULT_CONTEXT,
        vocab_size=sizes["vocab_size"],
        n_layers=sizes["n_layers"],
        d_model=sizes["d_model"],
        kv_width=sizes["kv_width"],
        params=sum(header.params for header in headers),
        disk_size_bytes=size,
        estimated_memory_bytes=int(size * MEMORY_FACTOR),
        has_chat_template=bool(first.entries.get("tokenizer.chat_template")),
        pipeline_tag="feature-extraction" if encodes else TEXT_GENERATION,
    )


def starts_as_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF does, whatever its name is; False for what cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


# --- names ------------------------------------------------------------------------------------------------------------


def set_of(path: Path) -> tuple[Path, ...]:
    """All files of the set that ``path`` names a part of, in order, there or not; a single file is a set of one."""
    match = _PART.match(path.stem)
    if match is None:
        return (path,)
    count = int(match["count"])
    if not 1 <= count <= MAX_PARTS or not 1 <= int(match["number"]) <= count:
        return (path,)
    return tuple(
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}{path.suffix}") for number in range(1, count + 1)
    )


def whole_stem(name: str) -> str:
    """A file's name without its ending and without the numbers of its part: ``m-Q8_0-00001-of-00002.gguf`` is
    ``m-Q8_0``.
    """
    stem = name[:-5] if name.lower().endswith(".gguf") else name
    match = _PART.match(stem)
    return match["stem"] if match is not None else stem


def label_of(path: Path | str) -> str | None:
    """The quantisation a file's name ends in (``smol.Q4_1.gguf``: ``Q4_1``), or None."""
    match = _LABEL.search(whole_stem(Path(path).name))
    if match is None:
        return None
    label = match["label"].upper()
    return {"FP16": "F16", "FP32": "F32"}.get(label, label)


def coarse_level(label: str) -> str:
    """FP32, FP16, Q8, Q4 or Q2, whichever is nearest to the bits ``label`` names."""
    plain = label.upper().removeprefix("UD-")
    if plain in ("F32", "F64"):
        return "FP32"
    if plain in ("F16", "BF16"):
        return "FP16"
    digit = re.search(r"\d", plain)
    bits = int(digit.group()) if digit else 4
    return "Q8" if bits >= 6 else "Q4" if bits >= 4 else "Q2"


def _label_from(header: Header) -> str:
    """The file type the header states, else the format of most of its tensors."""
    stated = header.entries.get("general.file_type")
    if isinstance(stated, int) and stated & 0x3FF in FILE_TYPES:
        return FILE_TYPES[stated & 0x3FF]
    from gguf.constants import GGMLQuantizationType

    names = {int(kind): kind.name for kind in GGMLQuantizationType}
    known = {kind: count for kind, count in header.tensor_types.items() if kind in names}
    return names[max(known, key=lambda kind: known[kind])] if known else "F32"


# --- one header -------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads on from the start of a file, never past its end or past what a header may take."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._end = min(size, MAX_HEADER_BYTES)
        self._whole = size <= MAX_HEADER_BYTES
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > self._end - self.at:
            raise HeaderError("is cut short" if self._whole else "has a header longer than any real one")
        data = self._file.read(count)
        if len(data) != count:
            raise HeaderError("is cut short")
        self.at += count
        return data

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, most: int) -> str:
        length = self.number("<Q")
        if length > most:
            raise HeaderError(f"has a text of {length} bytes in its header")
        return self.take(length).decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        while count > 0:
            step = min(count, 1 << 20)
            self.take(step)
            count -= step


def read_header(path: Path, size: int) -> Header:
    """The header of one file of ``size`` bytes. Raises :class:`HeaderError`, OSError."""
    if path.exists() and not path.is_file():
        # Opening a pipe would wait for somebody to write into it.
        raise HeaderError("is no ordinary file")
    with path.open("rb", buffering=1 << 18) as file:
        start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise HeaderError("is a Git LFS pointer: the file itself was never downloaded")
        file.seek(0)
        return _parse(_Reader(file, size), size)


def _parse(reader: _Reader, size: int) -> Header:
    if size < 24 or reader.take(4) != b"GGUF":
        raise HeaderError("is not a GGUF file" if size >= 24 else "is cut short")
    version = reader.number("<I")
    if version & 0xFFFF == 0:
        raise HeaderError("has its bytes in the other order (big-endian)")
    if version not in (2, 3):
        raise HeaderError(f"has GGUF version {version}, and versions 2 and 3 are read")
    n_tensors, n_entries = reader.number("<Q"), reader.number("<Q")
    if n_tensors > MAX_TENSORS or n_entries > MAX_ENTRIES:
        raise HeaderError(f"claims {n_tensors} tensors and {n_entries} entries, more than any real file")
    entries: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for _ in range(n_entries):
        key = reader.text(MAX_KEY_BYTES)
        _read_entry(reader, key, entries, lengths)
    return _read_tensors(reader, version, entries, lengths, n_tensors, size)


def _read_entry(reader: _Reader, key: str, entries: dict[str, Any], lengths: dict[str, int]) -> None:
    kind = reader.number("<I")
    if kind in _SCALARS:
        entries[key] = reader.number(_SCALARS[kind])
    elif kind == _STRING:
        entries[key] = reader.text(MAX_KEPT_TEXT)
    elif kind == _ARRAY:
        inner, count = reader.number("<I"), reader.number("<Q")
        if count > MAX_ELEMENTS:
            raise HeaderError(f"has a list of {count} values in its header")
        lengths[key] = count
        if inner == _STRING:
            for _ in range(count):
                reader.skip(reader.number("<Q"))
        elif inner in _SCALARS:
            layout = _SCALARS[inner]
            if count <= _KEPT_ARRAY:
                entries[key] = [reader.number(layout) for _ in range(count)]
            else:
                reader.skip(count * struct.calcsize(layout))
        else:
            raise HeaderError(f"has a list of an unknown kind ({inner}) in its header")
    else:
        raise HeaderError(f"has a value of an unknown kind ({kind}) in its header")


def _read_tensors(
    reader: _Reader, version: int, entries: dict[str, Any], lengths: dict[str, int], n_tensors: int, size: int
) -> Header:
    from gguf.constants import GGML_QUANT_SIZES

    blocks = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    params, furthest = 0, 0
    types: dict[int, int] = {}
    for _ in range(n_tensors):
        name = reader.text(MAX_KEY_BYTES)
        n_dims = reader.number("<I")
        if n_dims > 8:
            raise HeaderError(f"gives {shortened(name)} {n_dims} dimensions")
        values = 1
        for _ in range(n_dims):
            values *= reader.number("<Q")
        if values > MAX_VALUES:
            raise HeaderError(f"gives {shortened(name)} {values} values")
        kind, offset = reader.number("<I"), reader.number("<Q")
        params += values
        types[kind] = types.get(kind, 0) + values
        if kind in blocks:
            per_block, block_bytes = blocks[kind]
            furthest = max(furthest, offset + -(-values // per_block) * block_bytes)
        else:
            furthest = max(furthest, offset)  # a format newer than we know: where it ends is not ours to say
    alignment = entries.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise HeaderError("states an alignment that cannot be right")
    start = -(-reader.at // alignment) * alignment
    needed = start + furthest if n_tensors else reader.at
    if needed > size:
        raise HeaderError(f"is cut short: its weights end at byte {needed}, and the file has {size}")
    return Header(version, entries, lengths, n_tensors, params, types, needed)


# --- what the headers say together ------------------------------------------------------------------------------------


def _misfits(files: Sequence[Path], headers: Sequence[Header]) -> list[str]:
    """What shows that the files are no set."""
    problems = []
    for number, (file, header) in enumerate(zip(files, headers, strict=True)):
        place, count = header.entries.get("split.no"), header.entries.get("split.count")
        if count != len(files) or place != number:
            problems.append(f"{file.name} does not say that it is part {number + 1} of {len(files)}")
    promised = headers[0].entries.get("split.tensors.count")
    found = sum(header.n_tensors for header in headers)
    if isinstance(promised, int) and promised != found:
        problems.append(f"its parts hold {found} tensors, and {promised} belong to it")
    return problems


def _check_kind(path: Path, header: Header) -> None:
    """Raise for what is no language model, whatever state it is in."""
    kind, architecture = header.entries.get("general.type"), header.entries.get("general.architecture")
    if kind == "adapter":
        raise EngineUnsupported(
            f"{path.name} is a LoRA adapter, not a whole model.",
            param="local_path",
            remedy="Merge it into its base model first.",
        )
    if kind in ("mmproj", "imatrix", "vocab") or architecture == "clip":
        raise ModelNotGenerative(
            f"{path.name} holds no language model, but {'statistics' if kind == 'imatrix' else 'a part of one'} "
            f"({kind or architecture}).",
            param="local_path",
            remedy="Choose the GGUF file of the language model beside it.",
        )


def _sizes(header: Header, architecture: str) -> dict[str, int]:
    def number(name: str) -> int:
        value = header.entries.get(f"{architecture}.{name}")
        if isinstance(value, list):
            # Stated layer by layer; the largest is what memory has to be kept for.
            value = max((each for each in value if isinstance(each, int)), default=0)
        return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**53 else 0

    heads, width = number("attention.head_count"), number("embedding_length")
    head_width = number("attention.key_length") or (width // heads if heads else 0)
    return {
        "context_length": number("context_length"),
        "vocab_size": header.lengths.get("tokenizer.ggml.tokens", 0),
        "n_layers": number("block_count"),
        "d_model": width,
        "kv_width": (number("attention.head_count_kv") or heads) * head_width,
    }


def _refuse(path: Path, problems: Sequence[str]) -> None:
    if not problems:
        return
    unreadable = any("cannot be read" in problem for problem in problems)
    raise CheckpointInvalid(
        f"{path.name} cannot be used as a model: {'; '.join(problems)}.",
        param="local_path",
        details={"path": str(path), "problems": list(problems)},
        remedy=PERMISSIONS if unreadable else _FOLDER if "not a GGUF" in problems[0] else DOWNLOAD_AGAIN,
    )
