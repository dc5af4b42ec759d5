"""What the health routes answer; ``reports.py`` makes them. Memory is in MB of 10⁶ bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.public.library import ProfileKind
from engine.public.models import BreakerFigures, ModelPlacement
from engine.wire import LEFT_OUT

Status = Literal["healthy", "degraded", "unhealthy"]
BackendWord = Literal["cbm", "serial", "llamacpp"]


@dataclass(frozen=True)
class Up:
    """The server is up."""

    status: Literal["ok"]


@dataclass(frozen=True)
class Alive:
    """The server answers."""

    status: Literal["healthy"]
    version: str
    timestamp: str
    uptime_seconds: float


@dataclass(frozen=True)
class Component:
    """One part of the program; ``latency_ms`` is null where nothing was timed."""

    name: str
    status: Status
    message: str
    latency_ms: float | None


@dataclass(frozen=True)
class Ready:
    """Whether requests are answered. Degraded counts as ready: without a model, one is loaded when asked for."""

    ready: bool
    status: Status
    version: str
    timestamp: str
    components: tuple[Component, ...]
    model_loaded: bool
    sae_attached: bool


@dataclass(frozen=True)
class QueueFigures:
    """The queue now. Null is "not measured", never a zero.

    ``queue_pending`` counts waiting and running requests, ``in_flight`` lanes that run.
    """

    backend: BackendWord
    cbm_enabled: bool
    cbm_running: bool
    queue_pending: int
    queue_max_concurrent: int
    queue_max_pending: int
    in_flight: int
    queue_waiting: int
    batch_backlog_rows: int | None
    estimated_wait_seconds: float | None
    error: str | None


@dataclass(frozen=True)
class ActiveProfile:
    """The profile or cluster in force."""

    id: str
    name: str
    source_kind: ProfileKind
    intensity: float
    sensing_enabled: bool | None


@dataclass(frozen=True)
class Breakers:
    """All of them."""

    circuit_breakers: tuple[BreakerFigures, ...]


@dataclass(frozen=True)
class Detailed:
    """Everything at once."""

    status: Status
    version: str
    timestamp: str
    components: tuple[Component, ...]
    circuit_breakers: tuple[BreakerFigures, ...]
    model_loaded: bool
    model_name: str | None
    model_placement: ModelPlacement | None
    sae_attached: bool
    sae_id: str | None
    sae_count: int
    sae_ids: tuple[str, ...]
    inference: QueueFigures
    lease: None
    active_profile: ActiveProfile | None


@dataclass(frozen=True)
class Capabilities:
    """What requests may ask for."""

    streaming: bool
    per_request_sampling_params: bool
    per_request_profile_override: bool
    speculative_decoding: bool


@dataclass(frozen=True)
class QueueLimits:
    """The queue's size and how full it is."""

    max_concurrent: int
    max_pending: int
    current_pending: int


@dataclass(frozen=True)
class BatchingConfig:
    """What a request that says nothing gets under batching."""

    default_temperature: float
    default_top_p: float
    max_queue_size: int


@dataclass(frozen=True)
class Inference:
    """How answers are written now."""

    backend: BackendWord
    description: str
    capabilities: Capabilities
    limitations: tuple[str, ...]
    queue: QueueLimits
    default_max_tokens: int
    cbm_config: BatchingConfig | None = field(default=None, metadata=LEFT_OUT)
    context_length: int | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True)
class GpuProcessAnswer:
    """A process on a card."""

    pid: int
    used_mb: float | None


@dataclass(frozen=True)
class GpuCardAnswer:
    """A card as its driver sees it, with what PyTorch holds there; memory in MB of 10⁶ bytes."""

    smi_index: int
    uuid: str
    name: str
    total_mb: float
    used_mb: float
    free_mb: float
    utilization: float | None
    temperature: float | None
    torch_index: int | None
    torch_measured: bool
    millm_allocated_mb: float | None
    millm_reserved_mb: float | None
    engine_memory: str | None
    processes: tuple[GpuProcessAnswer, ...] | None
    processes_reason: str | None


@dataclass(frozen=True)
class Gpus:
    """The cards of this machine; ``reason`` says why there are none."""

    read_at: str
    cards: tuple[GpuCardAnswer, ...]
    reason: str | None


@dataclass(frozen=True)
class Version:
    """Versions of the program and of what answers are made with; null where a part is not installed."""

    version: str
    python: str
    platform: str
    libraries: dict[str, str | None]


@dataclass(frozen=True)
class MetricSample:
    """One number. A count of what never happened is 0; a figure that is not finite is null."""

    name: str
    labels: Mapping[str, str]
    value: float | None


@dataclass(frozen=True)
class MetricFamily:
    """One metric with all its label sets."""

    name: str
    type: str
    help: str
    samples: tuple[MetricSample, ...]


@dataclass(frozen=True)
class Metrics:
    """All metrics; ``machine`` are the figures of the event ``system:metrics``."""

    timestamp: str
    machine: dict[str, Any]
    metrics: tuple[MetricFamily, ...]
