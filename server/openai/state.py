"""``/props`` and ``/slots``, as llama.cpp's clients ask for them: what a model is served with, and how busy it is.

Nothing is guessed: a setting that has no one value is left out, a figure that nobody measured is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, ValidationError
from quart import Quart, Response, request

from engine.engine import Engine
from engine.errors import InvalidParameter, shortened
from engine.public.library import EngineKind, ModelRecord
from engine.public.models import LoadedModel, ModelCapabilities, capabilities_of, template_of, window_of
from engine.sampling import Sampling
from engine.wire import wire
from server.body import invalid_parameter
from server.context import ServerContext, version
from server.errors import RouteRetired
from server.generation.admission import loaded
from server.openai.models import find_model, listed_models
from server.openai.plain import answered
from server.openapi.describe import describe

_GGUF_BITS = {"f32": 32, "f16": 16, "q8_0": 8}
_MS = 1000.0


class PropsQuery(BaseModel):
    """Which model, and whether it is loaded first; without a name the loaded one is meant."""

    model_config = ConfigDict(frozen=True)
    model: str | None = None
    autoload: bool = False


class Defaults(TypedDict):
    """What a request gets that sets nothing of this; sending them changes nothing."""

    n_ctx: NotRequired[int]
    max_tokens: NotRequired[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repeat_penalty: float


class KvCache(TypedDict):
    """The numbers in which a model keeps what it has read."""

    bits: int
    dtype: str


class Props(TypedDict):
    """What a model is served with."""

    model: str | None
    default_model: str | None
    models: list[str]
    max_context: int | None
    total_slots: int
    default_generation_settings: Defaults
    chat_template: str | None
    kv_cache: KvCache | None
    build: str
    max_request_bytes: int
    capabilities: ModelCapabilities | None
    loaded: bool


class Slot(TypedDict):
    """How busy the model is; all answers share it, so there is one. The ``tick_`` figures are the last round's."""

    id: int
    model: str | None
    is_processing: bool
    lanes_active: int
    lanes_total: int
    waiting: int
    kv_pool_used: int | None
    kv_pool_total: int | None
    tick_wall_ms: float | None
    tick_plan_prefill_tokens: int | None
    tick_plan_prefill_lanes: int | None
    tick_plan_decode_lanes: int | None
    decode_tok_s: float | None
    prefill_tok_s: float | None
    ttft_last_ms: float | None


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""

    @app.get("/props")
    @describe("What a model is served with.", query=PropsQuery, answer=Props, errors=(400, 404, 409))
    async def props() -> Response:
        asked = _read_query()
        record = None
        if asked.model is not None:
            name = asked.model
            record = await context.quick(lambda: find_model(context.engine, name))
            if asked.autoload:
                await loaded(context, record.name)
        return answered(await context.quick(lambda: _props(context, record)))

    @app.get("/slots")
    @describe("How busy the model is.", answer=list[Slot])
    async def slots() -> Response:
        return answered([_slot(context)])

    # Two routes, since each has its name: nothing of a slot can be kept by a client.
    @app.post("/slots/<slot>/save")
    @describe("Refused: what was read is kept by the program itself.", only_refuses=True, errors=(501,))
    async def save_slot(slot: str) -> Response:
        raise _retired()

    @app.post("/slots/<slot>/restore")
    @describe("Refused: what was read is found again by itself.", only_refuses=True, errors=(501,))
    async def restore_slot(slot: str) -> Response:
        raise _retired()


def _retired() -> RouteRetired:
    return RouteRetired(
        "Slots are neither saved nor restored here.",
        remedy="Send the whole prompt again: the part that was read before is found in the prefix cache.",
    )


def _read_query() -> PropsQuery:
    given: dict[str, str] = {}
    for name, values in request.args.lists():
        if name in PropsQuery.model_fields and len(values) > 1:
            raise InvalidParameter(f"The parameter {shortened(name)} is given {len(values)} times.", param=name)
        given[name] = values[0]
    try:
        return PropsQuery.model_validate(given)
    except ValidationError as error:
        raise invalid_parameter(error) from None


def _props(context: ServerContext, asked: ModelRecord | None) -> Mapping[str, Any]:
    engine = context.engine
    resident = engine.shelf.resident
    record = asked if asked is not None or resident is None else engine.shelf.get(resident.record.id)
    here = resident if record is not None and resident is not None and resident.record.id == record.id else None
    window = None if record is None else window_of(record, resident, engine.settings)
    return {
        "model": None if record is None else record.name,
        "default_model": None if resident is None else resident.record.name,
        "models": [each.name for each in listed_models(engine)],
        "max_context": window,
        "total_slots": engine.settings.MAX_LANES,
        "default_generation_settings": _defaults(window, engine.settings.DEFAULT_MAX_TOKENS),
        "chat_template": _template(record, here),
        "kv_cache": None if here is None else _kv_cache(engine, here),
        "build": f"miLLM Desktop {version()}",
        "max_request_bytes": context.settings.MAX_BODY_BYTES,
        "capabilities": None if record is None else wire(capabilities_of(record, resident)),
        "loaded": here is not None,
    }


def _defaults(window: int | None, cap: int) -> Defaults:
    unasked = Sampling()
    found: Defaults = {
        "temperature": unasked.temperature,
        "top_p": unasked.top_p,
        "top_k": unasked.top_k,
        "min_p": unasked.min_p,
        "repeat_penalty": unasked.repetition_penalty,
    }
    if window is not None:
        found["n_ctx"] = window
        if cap < window:
            # In a window that is no wider the cap is what the prompt leaves, which is no one number.
            found["max_tokens"] = cap
    return found


def _template(record: ModelRecord | None, here: LoadedModel | None) -> str | None:
    if here is not None:
        return here.backend.tokenizer.chat_template
    return None if record is None else template_of(record)


def _kv_cache(engine: Engine, here: LoadedModel) -> KvCache:
    if here.record.engine is EngineKind.LLAMACPP:
        kind = engine.settings.GGUF_KV_CACHE_TYPE
        return {"bits": _GGUF_BITS[kind], "dtype": kind}
    dtype = here.backend.dtype
    return {"bits": dtype.itemsize * 8, "dtype": str(dtype).removeprefix("torch.")}


def _slot(context: ServerContext) -> Slot:
    resident = context.engine.shelf.resident
    stats, pace = context.engine.generation.stats(), context.engine.generation.pace()
    first = context.metrics.last_first_token_s
    return {
        "id": 0,
        "model": None if resident is None else resident.record.name,
        "is_processing": stats.in_flight > 0,
        "lanes_active": stats.in_flight,
        "lanes_total": stats.max_lanes,
        "waiting": stats.queue_waiting,
        "kv_pool_used": pace.kv_used,
        "kv_pool_total": pace.kv_total,
        "tick_wall_ms": _rounded(pace.round_seconds, _MS),
        "tick_plan_prefill_tokens": pace.prefill_tokens,
        "tick_plan_prefill_lanes": pace.prefill_lanes,
        "tick_plan_decode_lanes": pace.decode_lanes,
        "decode_tok_s": _rounded(pace.decode_rate),
        "prefill_tok_s": _rounded(pace.prefill_rate),
        "ttft_last_ms": _rounded(first, _MS),
    }


def _rounded(figure: float | None, times: float = 1.0) -> float | None:
    return None if figure is None else round(figure * times, 3)
