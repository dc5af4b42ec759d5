"""Figures for Prometheus: counts of what happened, read from a registry of this server's own.

Labels are bounded: routes are patterns, never paths; what no route took shares one value. No label holds text of a
prompt, of an answer or of a person. ``docs/metrics.md`` lists every metric, and a test holds it to that.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

import psutil
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from engine.engine import Engine
from engine.events import (
    Event,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelUnloadComplete,
    SteeringUpdated,
)
from engine.public.generation import Usage, Work
from engine.public.models import BreakerState, read_gpus
from server.in_flight import Exchange

UNMATCHED = "unmatched"
"""The route of requests that no route takes."""
OTHER_METHOD = "OTHER"
OPENMETRICS = "application/openmetrics-text"

_WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?", re.ASCII)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, float("inf"))
_LOAD_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, float("inf"))
_LOAD_EVENTS = (ModelLoadProgress, ModelLoadComplete, ModelLoadError, ModelUnloadComplete, SteeringUpdated)


class Metrics:
    """The registry of one server, kept up to date by the engine's events and observers. Thread-safe.

    Counts begin with the server, so a restarted server counts from 0, as Prometheus expects of a restart.
    """

    def __init__(self, engine: Engine, version: str) -> None:
        self._registry = CollectorRegistry()
        self._load_began: float | None = None
        self.last_first_token_s: float | None = None
        """Seconds from the submission to the first text of the answer that ended last; None before the first."""
        self._requests = Counter(
            "millm_http_requests",
            "Requests answered, by route, method and status; status 'none' where the client left before an answer.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "millm_http_request_duration_seconds",
            "Seconds from a request's first line to its answer's last byte.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._ignored = Counter(
            "millm_ignored_fields",
            "Fields of requests that were reported as unused.",
            ("route",),
            registry=self._registry,
        )
        self._generated = Counter("millm_generated_tokens", "Tokens written.", registry=self._registry)
        self._prompted = Counter(
            "millm_prompt_tokens",
            "Tokens of the prompts of requests that ended well.",
            ("work",),
            registry=self._registry,
        )
        self._cached = Counter(
            "millm_cached_prompt_tokens",
            "Prompt tokens that came from the prefix cache and were not read again.",
            registry=self._registry,
        )
        self._ended = Counter(
            "millm_requests",
            "Requests to the model, from the API and the window, by what they asked for and how they ended: "
            "'ok' or an error code.",
            ("work", "outcome"),
            registry=self._registry,
        )
        self._first_token = Histogram(
            "millm_time_to_first_token_seconds",
            "Seconds from a request's submission to its first text, of answers that ended well.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._queued = Histogram(
            "millm_queue_wait_seconds",
            "Seconds a request waited for a lane.",
            ("work",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._total = Histogram(
            "millm_request_duration_seconds",
            "Seconds from a request's submission to its last token.",
            ("work",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._plans = Counter(
            "millm_steering_changes", "Times the live steering plan was changed.", registry=self._registry
        )
        self._loads = Counter(
            "millm_model_loads", "Model loads by how they ended.", ("outcome",), registry=self._registry
        )
        self._unloads = Counter("millm_model_unloads", "Models removed from memory.", registry=self._registry)
        self._load_seconds = Histogram(
            "millm_model_load_duration_seconds",
            "Seconds that loads took which succeeded.",
            buckets=_LOAD_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_State(engine, version))
        self._subscription = engine.events.subscribe(self._heard, *_LOAD_EVENTS)
        self._unobserve = engine.generation.observers.add(self)

    def close(self) -> None:
        """Stop counting."""
        self._subscription.close()
        self._unobserve()

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics as text, and its content type; OpenMetrics where ``accept`` prefers it. Reads the machine: not on
        the loop.
        """
        if prefers_openmetrics(accept):
            return openmetrics.generate_latest(self._registry), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def families(self) -> Iterable[Metric]:
        """All metrics with their numbers; as :meth:`text`."""
        return self._registry.collect()

    # --- told by the server -----------------------------------------------------------------------------------------

    def answered(self, exchange: Exchange, method: str, status: int, seconds: float) -> None:
        """A request is over; ``status`` is 0 when nothing was sent."""
        name = UNMATCHED if exchange.route is None else exchange.route
        word = method if method in _METHODS else OTHER_METHOD
        self._requests.labels(name, word, str(status) if status else "none").inc()
        self._request_seconds.labels(name).observe(seconds)
        if ignored := exchange.notes.ignored_fields:
            self._ignored.labels(name).inc(len(ignored))

    # --- told by the engine -----------------------------------------------------------------------------------------

    def tokens_written(self, count: int) -> None:
        """As :class:`RequestObserver` has it."""
        if count > 0:
            self._generated.inc(count)

    def finished(self, work: Work, usage: Usage, queued_s: float, first_token_s: float | None, total_s: float) -> None:
        """As :class:`RequestObserver` has it."""
        self._ended.labels(work, "ok").inc()
        self._prompted.labels(work).inc(usage.prompt_tokens)
        self._cached.inc(usage.cached_tokens)
        self._queued.labels(work).observe(queued_s)
        self._total.labels(work).observe(total_s)
        if first_token_s is not None:
            self._first_token.observe(first_token_s)
            self.last_first_token_s = first_token_s

    def failed(self, work: Work, code: str) -> None:
        """As :class:`RequestObserver` has it. Codes are those of our error types, so there are few."""
        self._ended.labels(work, code).inc()

    def _heard(self, event: Event) -> None:
        match event:
            case ModelLoadProgress(progress=0.0):
                self._load_began = time.monotonic()
            case ModelLoadComplete():
                self._loads.labels("ok").inc()
                if self._load_began is not None:
                    self._load_seconds.observe(time.monotonic() - self._load_began)
            case ModelLoadError():
                self._loads.labels(event.code).inc()
            case ModelUnloadComplete():
                self._unloads.inc()
            case SteeringUpdated():
                self._plans.inc()


def prefers_openmetrics(accept: str) -> bool:
    """Whether an ``Accept`` header names OpenMetrics and does not like plain text better.

    Any version is answered with the one we write, whose number the answer states: a scraper goes by that. The library's
    own choice fails on a version that is no number. A weight that is none counts as 1.
    """
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        found = [each.removeprefix("q=").strip() for each in parameters if each.startswith("q=")]
        weight = float(found[0]) if found and _WEIGHT.fullmatch(found[0]) else 1.0
        weights[kind] = max(weight, weights.get(kind, 0.0))
    wanted = weights.get(OPENMETRICS, 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


class _State(Collector):
    """What is read when the metrics are asked for: the engine's and the machine's state at that moment."""

    def __init__(self, engine: Engine, version: str) -> None:
        self._engine = engine
        self._version = version
        self._process = psutil.Process()

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        yield InfoMetricFamily("millm_build", "Version of the program.", value={"version": self._version})
        yield from self._queue()
        yield from self._model()
        yield from self._steering()
        yield from self._breakers()
        yield from self._memory()
        yield from self._cards()

    def _queue(self) -> Iterator[Metric]:
        stats = self._engine.generation.stats()
        yield GaugeMetricFamily("millm_queue_waiting", "Requests without a lane.", stats.queue_waiting)
        yield GaugeMetricFamily(
            "millm_queue_running", "Requests that are being written or read.", stats.queue_pending - stats.queue_waiting
        )
        yield GaugeMetricFamily(
            "millm_queue_limit", "Requests that may wait behind the running ones.", stats.max_pending
        )
        yield GaugeMetricFamily("millm_lanes", "Lanes that run now.", stats.in_flight)
        yield GaugeMetricFamily("millm_lanes_limit", "Lanes that may run together.", stats.max_lanes)

    def _model(self) -> Iterator[Metric]:
        resident = self._engine.shelf.resident
        yield GaugeMetricFamily("millm_model_loaded", "1 while a model is in memory.", int(resident is not None))
        info = InfoMetricFamily(
            "millm_model",
            "The model in memory.",
            value=None
            if resident is None
            else {
                "name": resident.record.name,
                "engine": resident.record.engine.value,
                "architecture": resident.info.architecture,
                "device": resident.info.device,
                "dtype": resident.info.dtype,
                "backend": resident.info.backend_word,
            },
        )
        yield info
        memory = 0 if resident is None else resident.info.memory_bytes
        window = 0 if resident is None else resident.info.context_length
        yield GaugeMetricFamily("millm_model_memory_bytes", "Bytes of the loaded model's weights.", memory)
        yield GaugeMetricFamily("millm_model_context_tokens", "The loaded model's context window.", window)

    def _steering(self) -> Iterator[Metric]:
        now = self._engine.desk.now
        attachments = now.state.attachments
        steered = sum(
            sum(value != 0 for value in entry.values.values()) for entry in now.state.entries.values() if entry.enabled
        )
        yield GaugeMetricFamily("millm_saes_attached", "SAEs attached to the loaded model.", len(attachments))
        yield GaugeMetricFamily(
            "millm_sae_memory_bytes",
            "Bytes of their weights.",
            sum({id(each.sae): each.memory_bytes for each in attachments}.values()),
        )
        yield GaugeMetricFamily("millm_steered_features", "Features set by hand or by a profile.", steered)
        yield GaugeMetricFamily("millm_steering_plan_version", "Number of the live steering plan.", now.state.version)

    def _breakers(self) -> Iterator[Metric]:
        opened = GaugeMetricFamily(
            "millm_breaker_open", "1 while calls to a remote service are held back.", labels=("service",)
        )
        for breaker in self._engine.breakers.values():
            opened.add_metric((breaker.name,), int(breaker.figures().state is not BreakerState.CLOSED))
        yield opened

    def _memory(self) -> Iterator[Metric]:
        memory = psutil.virtual_memory()
        with self._process.oneshot():
            resident = self._process.memory_info().rss
            times = self._process.cpu_times()
            started = self._process.create_time()
        yield GaugeMetricFamily("millm_process_resident_memory_bytes", "Memory this program holds.", resident)
        yield CounterMetricFamily(
            "millm_process_cpu_seconds", "Processor time this program has used.", times.user + times.system
        )
        yield GaugeMetricFamily("millm_process_start_time_seconds", "When it started, Unix time.", started)
        yield GaugeMetricFamily("millm_machine_memory_bytes", "Memory of this machine.", memory.total)
        yield GaugeMetricFamily(
            "millm_machine_memory_available_bytes", "Memory of it that programs can have.", memory.available
        )

    def _cards(self) -> Iterator[Metric]:
        used = GaugeMetricFamily("millm_gpu_memory_used_bytes", "Memory in use, by card.", labels=("gpu",))
        total = GaugeMetricFamily("millm_gpu_memory_bytes", "Memory, by card.", labels=("gpu",))
        load = GaugeMetricFamily(
            "millm_gpu_utilization_ratio", "Share of time in which it computed, by card.", labels=("gpu",)
        )
        heat = GaugeMetricFamily("millm_gpu_temperature_celsius", "Temperature, by card.", labels=("gpu",))
        for card in read_gpus().cards:
            label = (str(card.index),)
            used.add_metric(label, card.used_bytes)
            total.add_metric(label, card.total_bytes)
            if card.utilization is not None:
                load.add_metric(label, card.utilization / 100)
            if card.temperature is not None:
                heat.add_metric(label, card.temperature)
        yield from (used, total, load, heat)
