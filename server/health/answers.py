"""What the health routes answer, as types: the routes build these, and the API's description is made from them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from engine.actions.models.actions import ModelPlacement

Status = Literal["healthy", "degraded", "unhealthy"]
BackendWord = Literal["cbm", "serial", "llamacpp"]


class Alive(TypedDict):
    """The server answers."""

    status: Literal["healthy"]
    version: str
    timestamp: str
    uptime_seconds: float


class Component(TypedDict):
    """One part of the program; ``latency_ms`` is null where nothing was timed."""

    name: str
    status: Status
    message: str
    latency_ms: float | None


class Ready(TypedDict):
    """Whether requests are answered. Degraded counts as ready: without a model, one is loaded when asked for."""

    ready: bool
    status: Status
    version: str
    timestamp: str
    components: list[Component]
    model_loaded: bool
    sae_attached: bool


class QueueFigures(TypedDict):
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


class ActiveProfile(TypedDict):
    """The profile or cluster in force."""

    id: str
    name: str
    source_kind: str
    intensity: float
    sensing_enabled: bool | None


class Breaker(TypedDict):
    """What stands between us and a remote service; ``remaining_seconds`` is null unless it is open."""

    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    failure_threshold: int
    recovery_seconds: float
    remaining_seconds: float | None
    times_opened: int


class Breakers(TypedDict):
    """All of them."""

    circuit_breakers: list[Breaker]


class Detailed(TypedDict):
    """Everything at once."""

    status: Status
    version: str
    timestamp: str
    components: list[Component]
    circuit_breakers: list[Breaker]
    model_loaded: bool
    model_name: str | None
    model_placement: ModelPlacement | None
    sae_attached: bool
    sae_id: str | None
    sae_count: int
    sae_ids: list[str]
    inference: QueueFigures
    lease: None
    active_profile: ActiveProfile | None


class Capabilities(TypedDict):
    """What requests may ask for."""

    streaming: bool
    per_request_sampling_params: bool
    per_request_profile_override: bool
    speculative_decoding: bool


class QueueLimits(TypedDict):
    """The queue's size and how full it is."""

    max_concurrent: int
    max_pending: int
    current_pending: int


class BatchingConfig(TypedDict):
    """What a request that says nothing gets under batching."""

    default_temperature: float
    default_top_p: float
    max_queue_size: int


class Inference(TypedDict):
    """How answers are written now."""

    backend: BackendWord
    description: str
    capabilities: Capabilities
    limitations: list[str]
    queue: QueueLimits
    default_max_tokens: int
    cbm_config: NotRequired[BatchingConfig]
    context_length: NotRequired[int]


class GpuProcessAnswer(TypedDict):
    """A process on a card."""

    pid: int
    used_mb: float | None


class GpuCardAnswer(TypedDict):
    """A card as its driver sees it, with what PyTorch holds there; memory in MB of 2²⁰ bytes."""

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
    processes: list[GpuProcessAnswer] | None
    processes_reason: str | None


class Gpus(TypedDict):
    """The cards of this machine; ``reason`` says why there are none."""

    read_at: str
    cards: list[GpuCardAnswer]
    reason: str | None


class Version(TypedDict):
    """Versions of the program and of what answers are made with; null where a part is not installed."""

    version: str
    python: str
    platform: str
    libraries: dict[str, str | None]


class MetricSample(TypedDict):
    """One number. A count of what never happened is 0; a figure that is not finite is null."""

    name: str
    labels: dict[str, str]
    value: float | None


class MetricFamily(TypedDict):
    """One metric with all its label sets."""

    name: str
    type: str
    help: str
    samples: list[MetricSample]


class Metrics(TypedDict):
    """All metrics; ``machine`` are the figures of the event ``system:metrics``."""

    timestamp: str
    machine: dict[str, Any]
    metrics: list[MetricFamily]
