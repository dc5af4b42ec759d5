"""The reports themselves, read from the engine."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata

from engine.counting import in_mb, plural, so_many
from engine.errors import LibraryUnusable, ModelNotFound
from engine.public.library import ProfileKind
from engine.public.models import (
    NOT_MEASURED,
    BreakerFigures,
    GpuCard,
    GpuProcess,
    LoadedModel,
    ModelPlacement,
    read_gpus,
)
from engine.sampling import Sampling
from server.context import ServerContext, version
from server.health.answers import (
    ActiveProfile,
    BackendWord,
    BatchingConfig,
    Capabilities,
    Component,
    Detailed,
    GpuCardAnswer,
    GpuProcessAnswer,
    Gpus,
    Inference,
    QueueFigures,
    QueueLimits,
    Ready,
    Status,
    Version,
)

_DESCRIPTIONS: dict[BackendWord, str] = {
    "cbm": "Continuous batching: requests join and leave one shared pass at every token.",
    "serial": "Each answer is written in passes of its own.",
    "llamacpp": "llama.cpp runs the model from a GGUF file.",
}
_LIMITATIONS: dict[BackendWord, tuple[str, ...]] = {
    "cbm": (
        "Requests with a seed are written in passes of their own, so that their bytes repeat.",
        "So are requests that ask for SAE activations, which are read for one request at a time.",
    ),
    "serial": ("Answers do not share passes: several at once take turns.",),
    "llamacpp": ("What llama.cpp cannot do for a request is refused, naming the field.",),
}
_LIBRARIES = (
    "torch",
    "transformers",
    "tokenizers",
    "llama-cpp-python",
    "outlines",
    "llguidance",
    "huggingface_hub",
    "safetensors",
    "bitsandbytes",
)


async def ready(context: ServerContext) -> Ready:
    """Whether requests are answered."""
    parts = await components(context)
    status = worst(parts)
    return Ready(
        ready=status != "unhealthy",
        status=status,
        version=version(),
        timestamp=now(),
        components=parts,
        model_loaded=context.engine.shelf.resident is not None,
        sae_attached=bool(context.engine.desk.state.attachments),
    )


async def detailed(context: ServerContext) -> Detailed:
    """Everything at once."""
    parts = await components(context)
    resident = context.engine.shelf.resident
    attachments = context.engine.desk.state.attachments
    return Detailed(
        status=worst(parts),
        version=version(),
        timestamp=now(),
        components=parts,
        circuit_breakers=breakers(context),
        model_loaded=resident is not None,
        model_name=None if resident is None else resident.record.name,
        model_placement=None if resident is None else await _placement(context, resident),
        sae_attached=bool(attachments),
        sae_id=attachments[0].sae_id if attachments else None,
        sae_count=len(attachments),
        sae_ids=tuple(each.sae_id for each in attachments),
        inference=figures(context),
        lease=context.engine.shelf.lease,
        active_profile=await _active_profile(context),
    )


def inference(context: ServerContext) -> Inference:
    """How answers are written."""
    stats = context.engine.generation.stats()
    word = backend_word(context)
    resident = context.engine.shelf.resident
    # Each request brings its own sampling; this is what one that says nothing gets.
    unasked = Sampling()
    return Inference(
        backend=word,
        description=_DESCRIPTIONS[word],
        capabilities=Capabilities(
            streaming=True,
            per_request_sampling_params=True,
            per_request_profile_override=True,
            speculative_decoding=False,
        ),
        limitations=_LIMITATIONS[word],
        queue=QueueLimits(stats.max_lanes, stats.max_pending, stats.queue_pending),
        default_max_tokens=context.engine.settings.DEFAULT_MAX_TOKENS,
        cbm_config=BatchingConfig(unasked.temperature, unasked.top_p, stats.max_pending) if word == "cbm" else None,
        context_length=None if resident is None else resident.info.context_length,
    )


def figures(context: ServerContext) -> QueueFigures:
    """The queue's figures; null is "not measured", never a zero."""
    stats = context.engine.generation.stats()
    word = backend_word(context)
    return QueueFigures(
        backend=word,
        cbm_enabled=context.engine.settings.ENABLE_CONTINUOUS_BATCHING,
        cbm_running=word == "cbm" and context.engine.shelf.resident is not None,
        queue_pending=stats.queue_pending,
        queue_max_concurrent=stats.max_lanes,
        queue_max_pending=stats.max_pending,
        in_flight=stats.in_flight,
        queue_waiting=stats.queue_waiting,
        # There is no batch API whose rows could wait.
        batch_backlog_rows=None,
        estimated_wait_seconds=stats.estimated_wait_seconds,
        error=None,
    )


def backend_word(context: ServerContext) -> BackendWord:
    """How ordinary requests are written: the resident model's word, or the setting's while none is loaded."""
    batching = context.engine.settings.ENABLE_CONTINUOUS_BATCHING
    resident = context.engine.shelf.resident
    word = "cbm" if resident is None else resident.info.backend_word
    if word == "llamacpp":
        return "llamacpp"
    return "cbm" if batching and word == "cbm" else "serial"


async def components(context: ServerContext) -> tuple[Component, ...]:
    """The parts of the program and how they are."""
    began = time.monotonic()
    try:
        lost = await context.quick(context.engine.library.trouble)
        if lost is not None:
            raise lost
        await context.quick(context.engine.library.models.last_used)
    except LibraryUnusable as error:
        library = _component("library", "unhealthy", error.one_line())
    else:
        refused = context.engine.library.refused
        library = _component("library", "healthy", "The library can be read and written.")
        if refused is not None:
            library = _component("library", "degraded", f"The last change could not be kept. {refused}")
    library = replace(library, latency_ms=(time.monotonic() - began) * 1000)
    return _model(context), _queue(context), library


def worst(parts: tuple[Component, ...]) -> Status:
    """The state of the whole: that of its worst part."""
    states = {part.status for part in parts}
    if "unhealthy" in states:
        return "unhealthy"
    return "degraded" if "degraded" in states else "healthy"


def breakers(context: ServerContext) -> tuple[BreakerFigures, ...]:
    """Every circuit breaker."""
    return tuple(each.figures() for each in context.engine.breakers.values())


def gpus() -> Gpus:
    """The cards. May take seconds: not on the loop."""
    reading = read_gpus()
    return Gpus(now(), tuple(map(_card, reading.cards)), reading.reason)


def versions() -> Version:
    """What runs here."""
    return Version(
        version=version(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        libraries={name: _library_version(name) for name in _LIBRARIES},
    )


def now() -> str:
    """This moment, UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat()


def _component(name: str, status: Status, message: str) -> Component:
    return Component(name, status, message, latency_ms=None)


def _model(context: ServerContext) -> Component:
    resident = context.engine.shelf.resident
    loading = context.engine.shelf.loading
    if resident is not None:
        return _component("model", "healthy", f"Model loaded: {resident.record.name}")
    if loading is not None:
        return _component(
            "model", "degraded", f"Loading {loading.model_name}: {loading.stage}, {loading.progress:.0f} %"
        )
    return _component("model", "degraded", "No model is loaded; one is loaded when a request names it.")


def _queue(context: ServerContext) -> Component:
    stats = context.engine.generation.stats()
    if stats.queue_waiting >= stats.max_pending > 0:
        return _component("queue", "degraded", "The queue is full.")
    waiting = stats.queue_waiting
    words = f"{so_many(waiting, 'request')} {plural(waiting, 'is', 'are')} waiting."
    return _component("queue", "healthy", words)


async def _active_profile(context: ServerContext) -> ActiveProfile | None:
    """The profile or cluster in force. What only its row knows is null while the library cannot be read."""
    active = context.engine.desk.state.profile
    if active is None:
        return None
    try:
        row = await context.quick(lambda: context.engine.library.profiles.get(active.profile_id))
    except LibraryUnusable:
        row = None
    kind = ProfileKind.CLUSTER if active.is_cluster else ProfileKind.MANUAL
    sensing = None if row is None else row.sensing_enabled
    return ActiveProfile(active.profile_id, active.name, kind, active.intensity, sensing)


async def _placement(context: ServerContext, resident: LoadedModel) -> ModelPlacement | None:
    """Where the model is; null while the library cannot be read."""
    try:
        return (await context.quick(lambda: context.engine.models.get(resident.record.id))).placement
    except (LibraryUnusable, ModelNotFound):
        return None


def _card(card: GpuCard) -> GpuCardAnswer:
    torch = card.torch
    return GpuCardAnswer(
        smi_index=card.index,
        uuid=card.uuid,
        name=card.name,
        total_mb=in_mb(card.total_bytes, 1),
        used_mb=in_mb(card.used_bytes, 1),
        free_mb=in_mb(card.free_bytes, 1),
        utilization=card.utilization,
        temperature=card.temperature,
        torch_index=None if torch is None else torch.index,
        torch_measured=torch is not None,
        millm_allocated_mb=None if torch is None else in_mb(torch.allocated_bytes, 1),
        millm_reserved_mb=None if torch is None else in_mb(torch.reserved_bytes, 1),
        # llama.cpp takes memory that PyTorch knows nothing of.
        engine_memory=None if torch is not None else NOT_MEASURED,
        processes=None if card.processes is None else tuple(map(_process, card.processes)),
        processes_reason=card.processes_reason,
    )


def _process(found: GpuProcess) -> GpuProcessAnswer:
    return GpuProcessAnswer(found.pid, None if found.used_bytes is None else in_mb(found.used_bytes, 1))


def _library_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
