"""What a model can do beyond writing text: told by the loaded model, and as far as its files tell before it is loaded.

Files are read once and again when they have changed. Nothing is loaded, and no network is asked.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.config import EngineSettings
from engine.files import open_file, read_text
from engine.library.records import EngineKind, ModelRecord, ModelStatus
from engine.models.backends.templates.chat import chosen
from engine.models.inspection.fill_marks import holds_marks
from engine.models.inspection.template_facts import effort_levels, thinks
from engine.models.registry import LoadedModel

MAX_TEMPLATE_BYTES = 4_000_000
MAX_VOCABULARY_BYTES = 128_000_000
MAX_GGUF_BYTES = 32_000_000
"""Of a GGUF file's beginning: the longest headers known have 20 MB."""

_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
_VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json", "tokenizer_config.json")
_REMEMBERED = 256


@dataclass(frozen=True)
class ModelCapabilities:
    """What a model can do; None where nobody can tell before it is loaded.

    Attributes:
        tools: The form in which it writes calls, found when it is loaded.
        thinking: Whether its chat template switches reasoning, or opens it.
        reasoning_effort: The levels of reasoning its template knows, from least to most, or False.
        fim: Whether a gap in a text can be filled in: its vocabulary has the marks for it.
        vision, audio: Whether it reads images and sound; no model does here.
        embeddings: Whether texts can be turned into vectors.
        steering: Whether an SAE can be used at some layer.
    """

    tools: str | None = None
    thinking: bool | None = None
    reasoning_effort: tuple[str, ...] | bool | None = None
    fim: bool | None = None
    vision: bool | None = False
    audio: bool | None = False
    embeddings: bool | None = True
    steering: bool | None = None


@dataclass(frozen=True)
class FileFacts:
    """What files say. ``template``: None where it could not be read, empty where there is none."""

    template: str | None = None
    fim: bool | None = None


def capabilities_of(record: ModelRecord, resident: LoadedModel | None) -> ModelCapabilities:
    """What the model of ``record`` can do; ``resident`` is the model in memory, this one or another."""
    if resident is not None and resident.record.id == record.id:
        tokenizer, steering = resident.backend.tokenizer, resident.backend.capabilities.steering
        source = tokenizer.chat_template or ""
        return ModelCapabilities(
            tools=resident.tool_wire,
            thinking=thinks(source),
            reasoning_effort=_efforts(source, tokenizer.takes_variables),
            fim=tokenizer.fill_marks is not None,
            steering=steering.reads or steering.rows or steering.control,
        )
    said = files_of(record)
    transformers = record.engine is EngineKind.TRANSFORMERS
    return ModelCapabilities(
        thinking=None if said.template is None else thinks(said.template),
        reasoning_effort=None if said.template is None else _efforts(said.template, transformers),
        fim=said.fim,
        # llama.cpp tells only with the model at hand whether its layers can be read.
        steering=True if transformers else None,
    )


def window_of(record: ModelRecord, resident: LoadedModel | None, settings: EngineSettings) -> int | None:
    """Tokens of prompt and answer together: of the loaded model as it is, else as its files and the settings say; None
    where that is not known.
    """
    if resident is not None and resident.record.id == record.id:
        return resident.info.context_length
    limit = settings.GGUF_CONTEXT_LENGTH if record.engine is EngineKind.LLAMACPP else 0
    return min(record.context_length, limit) if record.context_length and limit else record.context_length


def template_of(record: ModelRecord) -> str | None:
    """The chat template in a model's files; None where there is none, or it cannot be read."""
    return files_of(record).template or None


def files_of(record: ModelRecord) -> FileFacts:
    """What the model's files say; nothing of files that are missing or still on their way."""
    if record.local_path is None or record.status is ModelStatus.DOWNLOADING:
        return FileFacts()
    path = Path(record.local_path)
    if record.engine is EngineKind.LLAMACPP:
        return _read_gguf(path, _stamps(path))
    return _read_folder(path, _stamps(*(path / name for name in sorted({*_TEMPLATES, *_VOCABULARIES}))))


def _efforts(source: str, takes_variables: bool) -> tuple[str, ...] | bool:
    """``takes_variables``: whether a request may set what the template reads."""
    return (effort_levels(source) if takes_variables else ()) or False


def _stamps(*paths: Path) -> tuple[tuple[int, int], ...]:
    """Size and time of each file, so that what was read is read again once it has changed."""
    found = []
    for path in paths:
        try:
            known = path.stat()
        except OSError:
            found.append((-1, 0))
        else:
            found.append((known.st_size, known.st_mtime_ns))
    return tuple(found)


@lru_cache(_REMEMBERED)
def _read_folder(folder: Path, _stamp: tuple[tuple[int, int], ...]) -> FileFacts:
    return FileFacts(_template_in(folder), _marks_in(folder))


def _template_in(folder: Path) -> str | None:
    """The template a checkpoint's tokenizer would choose; empty where there is none, None where that cannot be told."""
    try:
        if (folder / _TEMPLATES[0]).is_file():
            return read_text(folder / _TEMPLATES[0], MAX_TEMPLATE_BYTES)
        for name in _TEMPLATES[1:]:
            if (folder / name).is_file():
                given = json.loads(read_text(folder / name, MAX_TEMPLATE_BYTES))
                found = given.get("chat_template") if isinstance(given, dict) else None
                if isinstance(found, list):
                    found = {str(each["name"]): each["template"] for each in found}
                if (source := chosen(found)[0]) is not None:
                    return source
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
    return "" if folder.is_dir() else None


def _marks_in(folder: Path) -> bool | None:
    """Whether the vocabulary in the folder has a family's marks; None for one that is not kept as JSON."""
    texts = []
    for name in _VOCABULARIES:
        try:
            with open_file(folder / name) as file:
                texts.append(file.read(MAX_VOCABULARY_BYTES))
        except OSError:
            continue
    if not any((folder / name).is_file() for name in _VOCABULARIES[:2]):
        return None

    def holds(mark: str) -> bool:
        # Some writers of JSON escape what is not ASCII.
        forms = {json.dumps(mark, ensure_ascii=False).encode(), json.dumps(mark).encode()}
        return any(form in text for text in texts for form in forms)

    return holds_marks(holds)


@lru_cache(_REMEMBERED)
def _read_gguf(path: Path, _stamp: tuple[tuple[int, int], ...]) -> FileFacts:
    """Entries of the header are looked for as they are written, without reading the others."""
    try:
        with open_file(path) as file:
            data = file.read(MAX_GGUF_BYTES)
    except OSError:
        return FileFacts()
    if not data.startswith(b"GGUF") or _text("tokenizer.ggml.tokens") not in data:
        return FileFacts()
    return FileFacts(_template_at(data), holds_marks(lambda mark: _text(mark) in data))


def _text(text: str) -> bytes:
    """A text as a GGUF header has it."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _template_at(data: bytes) -> str | None:
    key = _text("tokenizer.chat_template") + struct.pack("<I", 8)
    place = data.find(key)
    if place < 0:
        return ""
    start = place + len(key) + 8
    if start > len(data):
        return None
    length = int.from_bytes(data[start - 8 : start], "little")
    if length > MAX_TEMPLATE_BYTES or start + length > len(data):
        return None
    return data[start : start + length].decode("utf-8", "replace")
