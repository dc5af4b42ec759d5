"""``/api/health`` and its details. Answers come bare, as probes read them; errors have the management envelope."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from quart import Quart, Response

from engine.errors import LibraryUnusable
from engine.library.records import ProfileKind
from server import sse
from server.context import ServerContext, version

READINESS_RETRY_AFTER_S = 5

_DESCRIPTIONS = {
    "cbm": "Continuous batching: requests join and leave one shared pass at every token.",
    "serial": "Each answer is written in passes of its own.",
}
_LIMITATIONS = {
    "cbm": [
        "Requests with a seed are written in passes of their own, so that their bytes repeat.",
        "So are requests that ask for SAE activations, which are read for one request at a time.",
    ],
    "serial": ["Answers do not share passes: several at once take turns."],
}


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""

    @app.get("/api/health")
    async def alive() -> Response:
        return _json({"status": "healthy", **_stamp(), "uptime_seconds": time.monotonic() - context.started})

    @app.get("/api/health/ready")
    async def ready() -> Response:
        components = await _components(context)
        status = _worst(components)
        is_ready = status != "unhealthy"
        body = {
            "ready": is_ready,
            "status": status,
            **_stamp(),
            "components": components,
            "model_loaded": context.engine.shelf.resident is not None,
            "sae_attached": bool(context.engine.desk.state.attachments),
        }
        if is_ready:
            return _json(body)
        response = _json(body, 503)
        response.headers["Retry-After"] = str(READINESS_RETRY_AFTER_S)
        return response

    @app.get("/api/health/inference")
    async def inference() -> Response:
        return _json(_inference(context))

    @app.get("/api/health/detailed")
    async def detailed() -> Response:
        components = await _components(context)
        resident = context.engine.shelf.resident
        attachments = context.engine.desk.state.attachments
        return _json(
            {
                "status": _worst(components),
                **_stamp(),
                "components": components,
                "circuit_breakers": [],
                "model_loaded": resident is not None,
                "model_name": None if resident is None else resident.record.name,
                "model_placement": None,
                "sae_attached": bool(attachments),
                "sae_id": attachments[0].sae_id if attachments else None,
                "sae_count": len(attachments),
                "sae_ids": [each.sae_id for each in attachments],
                "inference": _figures(context),
                "lease": None,
                "active_profile": await _active_profile(context),
            }
        )


def _figures(context: ServerContext) -> dict[str, Any]:
    """The queue's figures; null is "not measured", never a zero."""
    stats = context.engine.generation.stats()
    word = _backend_word(context)
    return {
        "backend": word,
        "cbm_enabled": context.engine.settings.ENABLE_CONTINUOUS_BATCHING,
        "cbm_running": word == "cbm" and context.engine.shelf.resident is not None,
        "queue_pending": stats.queue_pending,
        "queue_max_concurrent": stats.max_lanes,
        "queue_max_pending": stats.max_pending,
        "in_flight": stats.in_flight,
        "queue_waiting": stats.queue_waiting,
        "batch_backlog_rows": None,
        "estimated_wait_seconds": stats.estimated_wait_seconds,
        "error": None,
    }


async def _active_profile(context: ServerContext) -> dict[str, Any] | None:
    """The profile or cluster in force. What only its row knows is null while the library cannot be read."""
    active = context.engine.desk.state.profile
    if active is None:
        return None
    try:
        row = await context.quick(lambda: context.engine.library.profiles.get(active.profile_id))
    except LibraryUnusable:
        row = None
    kind = ProfileKind.CLUSTER if active.is_cluster else ProfileKind.MANUAL
    return {
        "id": active.profile_id,
        "name": active.name,
        "source_kind": kind.value,
        "intensity": active.intensity,
        "sensing_enabled": None if row is None else row.sensing_enabled,
    }


def _inference(context: ServerContext) -> dict[str, Any]:
    stats = context.engine.generation.stats()
    settings = context.engine.settings
    word = _backend_word(context)
    body: dict[str, Any] = {
        "backend": word,
        "description": _DESCRIPTIONS[word],
        "capabilities": {
            "streaming": True,
            "per_request_sampling_params": True,
            "per_request_profile_override": True,
            "speculative_decoding": False,
        },
        "limitations": _LIMITATIONS[word],
        "queue": {
            "max_concurrent": stats.max_lanes,
            "max_pending": stats.max_pending,
            "current_pending": stats.queue_pending,
        },
    }
    if word == "cbm":
        # Each request brings its own sampling; these are what one that says nothing gets.
        body["cbm_config"] = {"default_temperature": 1.0, "default_top_p": 1.0, "max_queue_size": stats.max_pending}
    body["default_max_tokens"] = settings.DEFAULT_MAX_TOKENS
    return body


def _backend_word(context: ServerContext) -> str:
    """How ordinary requests are written: the resident model's word, or the setting's while none is loaded."""
    batching = context.engine.settings.ENABLE_CONTINUOUS_BATCHING
    resident = context.engine.shelf.resident
    if resident is not None and batching:
        return resident.info.backend_word
    return "cbm" if batching else "serial"


async def _components(context: ServerContext) -> list[dict[str, Any]]:
    resident = context.engine.shelf.resident
    loading = context.engine.shelf.loading
    if resident is not None:
        model = ("healthy", f"Model loaded: {resident.record.name}")
    elif loading is not None:
        model = ("degraded", f"Loading {loading.model_name}: {loading.stage}, {loading.progress:.0f} %")
    else:
        model = ("degraded", "No model is loaded; one is loaded when a request names it.")
    stats = context.engine.generation.stats()
    full = stats.queue_waiting >= stats.max_pending > 0
    queue = ("degraded", "The queue is full.") if full else ("healthy", f"{stats.queue_waiting} requests are waiting.")
    began = time.monotonic()
    try:
        await context.quick(context.engine.library.models.last_used)
    except LibraryUnusable as error:
        library = ("unhealthy", error.one_line())
    else:
        library = ("healthy", "The library can be read.")
    latency = (time.monotonic() - began) * 1000
    return [
        {"name": name, "status": status, "message": message, "latency_ms": milliseconds}
        for name, (status, message), milliseconds in (
            ("model", model, None),
            ("queue", queue, None),
            ("library", library, latency),
        )
    ]


def _worst(components: list[dict[str, Any]]) -> str:
    states = {component["status"] for component in components}
    return next((state for state in ("unhealthy", "degraded") if state in states), "healthy")


def _stamp() -> dict[str, str]:
    return {"version": version(), "timestamp": datetime.now(UTC).isoformat()}


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(sse.dump(body), status, content_type="application/json")
