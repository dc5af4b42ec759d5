"""Looks at a GGUF file, or a set it was split into, without llama.cpp and without reading a weight.

Everything that is wrong is reported at once. ``gguf_header`` reads what one header says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CheckpointInvalid, EngineUnsupported, ModelNotGenerative
from engine.files import open_file
from engine.models.inspection.checkpoint_problems import DOWNLOAD_AGAIN, PERMISSIONS
from engine.models.inspection.gguf_header import TOKENS, GgufHeaderError, Header, read_header
from engine.models.inspection.names import TEXT_GENERATION

MEMORY_FACTOR = 1.2
"""Memory over the size of the file: room for activations and a context."""

DEFAULT_CONTEXT = 2048
"""Tokens of context taken for a file that states no limit."""

MAX_PARTS = 10_000

SENTENCEPIECE = "llama"
"""llama.cpp's word for that kind of vocabulary."""

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
        except GgufHeaderError as error:
            problems.append(f"{file.name} {error}")
        except OSError as error:
            problems.append(f"{file.name} cannot be read: {error.strerror or error}")
    _refuse(path, problems)
    first = headers[0]
    if len(files) > 1:
        problems += _misfits(files, headers)
    elif isinstance(parts := first.entries.get("split.count"), int) and parts > 1:
        problems.append(f"{files[0].name} is one of {parts} parts and was renamed")
    _check_kind(path, first)
    architecture = first.entries.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        problems.append("its header names no architecture")
        architecture = ""
    sizes = _sizes(first, architecture)
    if not sizes["vocab_size"]:
        problems.append("its header holds no vocabulary")
    elif first.entries.get("tokenizer.ggml.model") == SENTENCEPIECE and first.spelt_bytes < 256:
        # llama.cpp spells what no piece covers byte by byte, and ends the process over a byte without a token.
        problems.append(f"its vocabulary has no token for {256 - first.spelt_bytes} of the 256 bytes")
    if not sizes["n_layers"] or not sizes["d_model"]:
        problems.append("its header does not say how many layers it has and how wide they are")
    odd = [each for header in headers for each in header.odd_weights]
    if odd:
        # llama.cpp reads past the end of such a matrix when it computes with it.
        problems.append(f"its weights are in a format that no model computes with: {', '.join(odd[:3])}")
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
        with open_file(path) as file:
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
            remedy="Merge it into its base model with llama.cpp's llama-export-lora, and import the result.",
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
        "vocab_size": header.lengths.get(TOKENS, 0),
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
