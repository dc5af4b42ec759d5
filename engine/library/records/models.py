"""A model of the shelf."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ModelStatus(StrEnum):
    """Where a model stands; ``loading`` and ``loaded`` are never true after a restart."""

    DOWNLOADING = "downloading"
    READY = "ready"
    LOADING = "loading"
    LOADED = "loaded"
    ERROR = "error"


class ModelSource(StrEnum):
    """Where a model came from."""

    HUGGINGFACE = "huggingface"
    LOCAL = "local"
    DEMO = "demo"


class EngineKind(StrEnum):
    """Which backend runs it."""

    TRANSFORMERS = "transformers"
    LLAMACPP = "llamacpp"


@dataclass(frozen=True)
class ModelRecord:
    """One row of the model shelf. Sizes are in MB (10⁶ bytes); times are UTC.

    ``quantization`` is one of FP32, FP16, Q8, Q4, Q2 or None for the checkpoint's own format; ``gguf_label`` is a
    GGUF's exact tag (``Q4_1``). ``local_path`` is the checkpoint folder or the GGUF file. ``has_chat_template`` is None
    where nobody has looked yet.
    """

    id: int
    name: str
    source: ModelSource
    engine: EngineKind
    repo_id: str | None
    local_path: str | None
    params: int | None
    architecture: str | None
    quantization: str | None
    gguf_label: str | None
    revision: str | None
    pipeline_tag: str | None
    context_length: int | None
    has_chat_template: bool | None
    disk_size_mb: float | None
    estimated_memory_mb: float | None
    trust_remote_code: bool
    status: ModelStatus
    error_message: str | None
    locked: bool
    created_at: datetime
    updated_at: datetime
    loaded_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True)
class NewModel:
    """What an import knows about a model before it has a row; fields as in :class:`ModelRecord`."""

    name: str
    source: ModelSource
    engine: EngineKind
    local_path: str | None = None
    repo_id: str | None = None
    params: int | None = None
    architecture: str | None = None
    quantization: str | None = None
    gguf_label: str | None = None
    revision: str | None = None
    pipeline_tag: str | None = None
    context_length: int | None = None
    has_chat_template: bool | None = None
    disk_size_mb: float | None = None
    estimated_memory_mb: float | None = None
    trust_remote_code: bool = False
    status: ModelStatus = ModelStatus.READY
