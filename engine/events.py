"""Typed events and the thread-safe bus that carries them between the engine, the server and the window.

An event is a frozen dataclass with a wire name. Publishers call :meth:`EventBus.publish` from any thread; listeners
run on the publisher's thread and must return at once (a window listener queues a signal, a server listener schedules
a callback).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Base of all events. ``name`` is the wire name on the management event stream."""

    name: ClassVar[str] = "event"

    def data(self) -> dict[str, Any]:
        """The event's fields as JSON-serialisable values with snake_case keys."""
        return asdict(self)


def _with_error(event: Event) -> dict[str, Any]:
    """The event's fields, with ``code`` and ``message`` together under ``error``, as they are in an answer."""
    fields = asdict(event)
    error = {name: fields.pop(name) for name in ("code", "message")}
    return {**fields, "error": error}


@dataclass(frozen=True)
class ModelLoadProgress(Event):
    """A load moved on. ``progress`` is 0–100; ``stage`` is a short phrase for a person."""

    name: ClassVar[str] = "model:load:progress"
    model_id: int
    model_name: str
    progress: float
    stage: str


@dataclass(frozen=True)
class ModelLoadComplete(Event):
    """A model is resident and answers requests; its weights take ``memory_used_mb``."""

    name: ClassVar[str] = "model:load:complete"
    model_id: int
    model_name: str
    memory_used_mb: float = 0.0


@dataclass(frozen=True)
class ModelLoadError(Event):
    """A load ended without a resident model; ``code`` is ``load_cancelled`` when a person stopped it."""

    name: ClassVar[str] = "model:load:error"
    model_id: int
    model_name: str
    code: str
    message: str

    def data(self) -> dict[str, Any]:
        """As :func:`_with_error`."""
        return _with_error(self)


@dataclass(frozen=True)
class ModelUnloadComplete(Event):
    """The resident model was removed from memory."""

    name: ClassVar[str] = "model:unload:complete"
    model_id: int
    model_name: str


@dataclass(frozen=True)
class ModelDownloadProgress(Event):
    """A download moved on. ``progress`` is 0–100; the sizes are bytes, ``speed_bps`` bytes a second of late."""

    name: ClassVar[str] = "model:download:progress"
    model_id: int
    model_name: str
    progress: float
    downloaded_bytes: int
    total_bytes: int
    speed_bps: float | None


@dataclass(frozen=True)
class ModelDownloadComplete(Event):
    """A model's files are here, verified, and can be loaded."""

    name: ClassVar[str] = "model:download:complete"
    model_id: int
    model_name: str


@dataclass(frozen=True)
class ModelDownloadError(Event):
    """A download ended without a model; ``code`` is ``download_cancelled`` when a person stopped it."""

    name: ClassVar[str] = "model:download:error"
    model_id: int
    model_name: str
    code: str
    message: str

    def data(self) -> dict[str, Any]:
        """As :func:`_with_error`."""
        return _with_error(self)


@dataclass(frozen=True)
class ModelsChanged(Event):
    """Rows of the model library were added, renamed or removed."""

    name: ClassVar[str] = "models:changed"


@dataclass(frozen=True)
class LibraryStateChanged(Event):
    """The database was found to be lost or damaged (``state`` ``lost``, with what to do in ``error``), or is well again
    (``well``). While it is lost no change is kept.
    """

    name: ClassVar[str] = "library:state"
    state: Literal["well", "lost"]
    error: str | None = None


@dataclass(frozen=True)
class ConversationsChanged(Event):
    """Saved conversations were added, renamed or removed."""

    name: ClassVar[str] = "conversations:changed"


@dataclass(frozen=True)
class ExperimentsChanged(Event):
    """Saved comparisons were added, renamed or removed."""

    name: ClassVar[str] = "experiments:changed"


@dataclass(frozen=True)
class SweepsChanged(Event):
    """A sweep of the dial was begun or forgotten."""

    name: ClassVar[str] = "sweeps:changed"


@dataclass(frozen=True)
class SweepProgress(Event):
    """A sweep moved on: ``done`` of ``total`` answers are there; 0 when it begins. ``base`` is whose dial is turned."""

    name: ClassVar[str] = "sweep:progress"
    sweep_id: str
    base: str
    done: int
    total: int


@dataclass(frozen=True)
class SweepComplete(Event):
    """A sweep has ended. ``state`` is complete | cancelled | failed; ``error`` says why where it failed."""

    name: ClassVar[str] = "sweep:complete"
    sweep_id: str
    base: str
    state: str
    done: int
    total: int
    error: str | None = None


@dataclass(frozen=True)
class SteeringUpdated(Event):
    """The live steering changed. ``enabled`` and ``values`` are those of the first attached SAE; ``entries`` has all.

    ``version`` is the live plan's number, ``report`` what a request that follows it would be told, ``active_count`` the
    number of features that steer.
    """

    name: ClassVar[str] = "steering:update"
    enabled: bool
    values: dict[str, float]
    active_count: int
    version: int
    report: str
    entries: list[dict[str, Any]]


@dataclass(frozen=True)
class SaesChanged(Event):
    """Rows of the SAE library, or what is known about their features, were added, changed or removed."""

    name: ClassVar[str] = "saes:changed"


@dataclass(frozen=True)
class SaeDownloadProgress(Event):
    """A download of an SAE moved on; fields as in :class:`ModelDownloadProgress`."""

    name: ClassVar[str] = "sae:download:progress"
    sae_id: str
    progress: float
    downloaded_bytes: int
    total_bytes: int
    speed_bps: float | None


@dataclass(frozen=True)
class SaeDownloadComplete(Event):
    """An SAE's files are here, verified and described."""

    name: ClassVar[str] = "sae:download:complete"
    sae_id: str


@dataclass(frozen=True)
class SaeDownloadError(Event):
    """A download ended without an SAE; ``code`` is ``download_cancelled`` when a person stopped it."""

    name: ClassVar[str] = "sae:download:error"
    sae_id: str
    code: str
    message: str

    def data(self) -> dict[str, Any]:
        """As :func:`_with_error`."""
        return _with_error(self)


@dataclass(frozen=True)
class SaeAttached(Event):
    """An SAE reads and may steer a layer of the resident model; ``memory_mb`` is what its weights take."""

    name: ClassVar[str] = "sae:attached"
    sae_id: str
    layer: int
    memory_mb: float


@dataclass(frozen=True)
class SaeDetached(Event):
    """An SAE has left every layer it was on."""

    name: ClassVar[str] = "sae:detached"
    sae_id: str


@dataclass(frozen=True)
class ProfilesChanged(Event):
    """Profiles were added, edited, removed, or another one is active."""

    name: ClassVar[str] = "profiles:changed"


@dataclass(frozen=True)
class ClustersChanged(Event):
    """Clusters were imported, dialled, removed, or another one is active."""

    name: ClassVar[str] = "clusters:changed"


@dataclass(frozen=True)
class CircuitsChanged(Event):
    """Circuits were imported, dialled, removed, others are active, or layers changed hands."""

    name: ClassVar[str] = "circuits:changed"


@dataclass(frozen=True)
class ServerStateChanged(Event):
    """The API server started, stopped or failed. ``state`` is starting | running | stopped | error.

    It lives here, not in ``server/``, because the window shows it and may not import the server.
    """

    name: ClassVar[str] = "server:state"
    state: str
    address: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class RequestRecorded(Event):
    """A request to the API arrived, or ended. It is published twice under one ``number``; ``status`` is None until the
    end.

    Holds no text of a prompt or an answer and no field's value: ``ignored_fields`` and ``param`` are places in the
    body. ``at`` is ISO 8601, UTC. ``side_call`` says what a chat client asked for beside the conversation (``title``,
    ``tags`` …), None for what a person asked. ``tokens_per_second`` counts from the first token on. ``error`` is a
    code.
    ``steering`` is the report, of an answer that changed on its way with ``steering_path`` beside it: each steering as
    ``{choice, token, steering}``, with the token it began at (0: while the prompt was read).
    ``only_persistence``: every edge of the circuit whose ``rung`` it is; None without a rung.
    ``cut_short``: the client left, or the server stopped, before the last byte. ``calls``: how many calls of tools were
    written; ``constrained``: the form the answer was held to, as its header says, or ``tool calls``; ``capped``: an
    answer ended at its cap.
    """

    name: ClassVar[str] = "server:request"
    number: int
    at: str
    method: str
    path: str
    client: str
    remote: str
    status: int | None = None
    seconds: float | None = None
    model: str | None = None
    stream: bool = False
    side_call: str | None = None
    backend: str | None = None
    mode: str | None = None
    steering: str | None = None
    steering_path: tuple[Mapping[str, Any], ...] = ()
    rung: int | None = None
    only_persistence: bool | None = None
    ignored_fields: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds_queued: float | None = None
    seconds_to_first_token: float | None = None
    tokens_per_second: float | None = None
    error: str | None = None
    param: str | None = None
    cut_short: bool = False
    calls: int = 0
    constrained: str | None = None
    capped: bool = False


@dataclass(frozen=True)
class MonitoringStateChanged(Event):
    """Live monitoring went on or off, or watches something else.

    ``sae_id`` and ``layer`` are those of the first watched SAE, None when none is; ``monitored_features`` is None when
    all features are watched.
    """

    name: ClassVar[str] = "monitoring:state"
    enabled: bool
    monitored_features: tuple[int, ...] | None
    sae_id: str | None
    layer: int | None


@dataclass(frozen=True)
class FeatureActivation:
    """A feature and its activation."""

    idx: int
    value: float


@dataclass(frozen=True)
class ActivationObserved(Event):
    """The strongest features of one SAE at one token, strongest first; at most ten a second are published.

    ``timestamp`` is ISO 8601, UTC; ``position`` counts from 0 over prompt and answer.
    """

    name: ClassVar[str] = "monitoring:activation"
    timestamp: str
    request_id: str
    position: int
    token_id: int
    sae_id: str
    layer: int
    features: tuple[FeatureActivation, ...]


@dataclass(frozen=True)
class SystemMetrics(Event):
    """The machine's figures; memory in MB of 10⁶ bytes. Those of the first NVIDIA card are null without one.

    Sent every two seconds to those who listen at the server's event socket, never on the bus.
    """

    name: ClassVar[str] = "system:metrics"
    gpu_utilization: float | None
    gpu_memory_used_mb: float | None
    gpu_memory_total_mb: float | None
    gpu_temperature: float | None
    gpus: list[dict[str, Any]]
    cpu_percent: float
    memory_used_mb: float
    memory_total_mb: float
    process_memory_mb: float


Listener = Callable[[Event], None]


class Subscription:
    """A handle that ends one listener's subscription; ending it twice is harmless."""

    def __init__(self, bus: EventBus, token: int) -> None:
        self._bus = bus
        self._token = token

    def close(self) -> None:
        """Stop the deliveries. A delivery already under way on another thread may still finish."""
        self._bus._remove(self._token)


class EventBus:
    """Delivers events to listeners, in subscription order, on the publisher's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._listeners: dict[int, tuple[Listener, tuple[type[Event], ...]]] = {}

    def subscribe(self, listener: Listener, *types: type[Event]) -> Subscription:
        """Deliver events of ``types`` (all events when none is given) to ``listener`` until the handle is closed."""
        with self._lock:
            token = self._next
            self._next += 1
            self._listeners[token] = (listener, types)
        return Subscription(self, token)

    def publish(self, event: Event) -> None:
        """Deliver ``event``. A listener that raises is logged and does not keep the others from hearing it."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener, types in listeners:
            if types and not isinstance(event, types):
                continue
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on the event %s", event.name)

    def _remove(self, token: int) -> None:
        with self._lock:
            self._listeners.pop(token, None)
