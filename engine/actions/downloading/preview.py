"""What a hub repository holds and what running it would take, before anything of it is fetched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.counting import in_mb
from engine.errors import MillmError
from engine.models.hardware.memory import MemoryPlan, plan, plan_of_weights
from engine.models.hub.client import MAIN, HubClient, Repository, check_repo_id
from engine.models.hub.repository_files import checkpoint_files, companions, gguf_quants, has_checkpoint
from engine.models.inspection.architecture import check_generative_architecture
from engine.models.inspection.checkpoint import DEFAULT_CONTEXT, TEMPLATE_FILES, ConfigFacts, read_config_facts
from engine.models.inspection.quantization import BYTES_PER_VALUE, LEVELS

OVERHEAD = 1.2
DISK_GB = {"FP32": 4.0, "FP16": 2.0, "Q8": 1.0, "Q4": 0.5, "Q2": 0.25}
"""Per billion parameters."""

STORED_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class MemoryTerms:
    """An estimate of the memory a model takes, term by term, in MB of 10⁶ bytes; None: not known from here.

    ``kv_mb`` is one conversation of ``kv_tokens`` tokens.
    """

    weights_mb: float
    kv_mb: float | None
    kv_tokens: int | None
    working_mb: float
    total_mb: float


@dataclass(frozen=True)
class LevelEstimate:
    """A checkpoint held at one level. ``disk_gb`` and ``memory_gb`` are the rule of thumb by parameters alone."""

    quantization: str
    disk_gb: float
    memory_gb: float
    memory: MemoryTerms


@dataclass(frozen=True)
class QuantPreview:
    """One GGUF quantisation in the repository."""

    label: str
    files: tuple[str, ...]
    total_bytes: int
    is_split: bool
    memory: MemoryTerms


@dataclass(frozen=True)
class FilePreview:
    """One file."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class ModelPreview:
    """A repository before it is downloaded; None where nothing there says.

    Attributes:
        download_bytes: What the checkpoint's download takes; None where there is no checkpoint.
        problem: Why the checkpoint cannot be run here, in words; None when nothing speaks against it.
        estimates: Of the checkpoint at each level.
    """

    repo_id: str
    revision: str
    commit: str
    gated: bool
    pipeline_tag: str | None
    architecture: str | None
    model_type: str | None
    context_length: int | None
    has_chat_template: bool | None
    params: int | None
    files: tuple[FilePreview, ...]
    total_bytes: int
    has_checkpoint: bool
    download_bytes: int | None
    problem: str | None
    estimates: tuple[LevelEstimate, ...]
    gguf_quants: tuple[QuantPreview, ...]
    companions: tuple[FilePreview, ...]


def preview(hub: HubClient, repo_id: str, revision: str = MAIN, *, token: str | None = None) -> ModelPreview:
    """Look at a repository. Asks the hub twice at most; raises what it refuses with."""
    check_repo_id(repo_id)
    repository = hub.repository(repo_id, revision, token=token)
    config = _config(hub, repository, token)
    facts = read_config_facts(config or {})
    whole, header = has_checkpoint(repository), repository.gguf
    chosen = checkpoint_files(repository) if whole else []
    weights = sum(file.size for file in chosen if file.path.endswith(".safetensors"))
    params = repository.parameters or _guess(weights, facts)
    quants = tuple(
        QuantPreview(
            quant.label,
            tuple(file.path for file in quant.files),
            quant.total_bytes,
            quant.is_split,
            _terms(plan_of_weights(quant.total_bytes, 2, **_shape(facts)), facts),
        )
        for quant in gguf_quants(repository)
    )
    return ModelPreview(
        repo_id=repo_id,
        revision=revision,
        commit=repository.commit,
        gated=repository.gated,
        pipeline_tag=repository.pipeline_tag,
        architecture=facts.architecture or (header.architecture if header else None),
        model_type=facts.model_type,
        context_length=facts.context_length or (header.context_length if header else None),
        has_chat_template=_has_template(repository),
        params=params,
        files=tuple(FilePreview(file.path, file.size) for file in repository.files),
        total_bytes=sum(file.size for file in repository.files),
        has_checkpoint=whole,
        download_bytes=sum(file.size for file in chosen) if whole else None,
        problem=_problem(repository, facts, config, bool(quants)),
        estimates=_estimates(params, facts) if whole and params else (),
        gguf_quants=quants,
        companions=tuple(FilePreview(file.path, file.size) for file in companions(repository)),
    )


def _config(hub: HubClient, repository: Repository, token: str | None) -> dict[str, Any] | None:
    if repository.file("config.json") is None:
        return None
    try:
        value = json.loads(hub.read(repository, "config.json", token=token))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _has_template(repository: Repository) -> bool | None:
    """Whether it has a chat template; None where nothing says: tokenizer_config.json may hold one."""
    if any(repository.file(name) for name in TEMPLATE_FILES):
        return True
    return None if repository.gguf is None else repository.gguf.has_chat_template


def _problem(repository: Repository, facts: ConfigFacts, config: dict[str, Any] | None, has_gguf: bool) -> str | None:
    if not has_checkpoint(repository):
        if has_gguf:
            return None
        try:
            checkpoint_files(repository)
        except MillmError as error:
            return error.one_line()
    if config is None:
        return "Its config.json cannot be read."
    if facts.architecture is None or facts.model_type is None:
        return "Its config.json does not say what kind of model it is."
    try:
        check_generative_architecture(facts.model_type, facts.architecture, config)
    except MillmError as error:
        return error.one_line()
    return None


def _guess(weights: int, facts: ConfigFacts) -> int | None:
    """Parameters from the size of the weights and the format they are said to be stored in."""
    size = STORED_BYTES.get((facts.dtype or "").removeprefix("torch."))
    return weights // size if weights and size and facts.quantization_method is None else None


def _estimates(params: int, facts: ConfigFacts) -> tuple[LevelEstimate, ...]:
    found = []
    for level in LEVELS:
        dtype = "float32" if level == "FP32" else "bfloat16"
        terms = plan(params, dtype, bytes_per_weight=BYTES_PER_VALUE[level], **_shape(facts))
        disk = DISK_GB[level] * params / 1e9
        found.append(LevelEstimate(level, round(disk, 2), round(disk * OVERHEAD, 2), _terms(terms, facts)))
    return tuple(found)


def _shape(facts: ConfigFacts) -> dict[str, int]:
    return {
        "n_layers": facts.n_layers,
        "kv_width": facts.kv_width,
        "context_length": facts.context_length or DEFAULT_CONTEXT,
    }


def _terms(terms: MemoryPlan, facts: ConfigFacts) -> MemoryTerms:
    known = bool(facts.n_layers and facts.kv_width)
    return MemoryTerms(
        weights_mb=in_mb(terms.weights, 1),
        kv_mb=in_mb(terms.kv, 1) if known else None,
        kv_tokens=terms.kv_tokens if known else None,
        working_mb=in_mb(terms.working, 1),
        total_mb=in_mb(terms.total, 1),
    )
