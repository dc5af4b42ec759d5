"""What every route of the dialect does before the model works: policy, load on demand, and waiting for a reading.

All of it comes before the first byte of the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, TypeVar

from quart import request

from engine.errors import (
    FieldNotHonoured,
    InvalidParameter,
    MillmError,
    ModelNotFound,
    ModelNotLoaded,
    described,
    shortened,
)
from engine.public.generation import PreparedRequest, PreparedScoring, Usage
from engine.public.library import ModelRecord
from engine.public.models import check_generative
from server import fields, headers
from server.aliases import Alias
from server.auxiliary_tasks import side_call
from server.context import ServerContext
from server.fields import Column
from server.generation.endpoint import Asked
from server.generation.running import GenerationInterrupted
from server.in_flight import current_exchange

log = logging.getLogger(__name__)

T = TypeVar("T")

LOAD_ATTEMPTS = 3
"""How often a model that another request swapped out in the meantime is asked for again."""


def named(context: ServerContext, name: str) -> tuple[ModelRecord, Alias | None]:
    """The model that ``name`` means, and the alias by which it does. A model's own name wins over an alias.

    Raises :class:`ModelNotFound`, also for an alias whose model is gone, and :class:`AmbiguousModelName`.
    """
    shelf = context.engine.shelf
    try:
        return shelf.resolve(name), None
    except ModelNotFound:
        alias = context.aliases.find(name)
        if alias is None:
            raise
    try:
        return shelf.resolve(alias.model), alias
    except ModelNotFound as error:
        raise ModelNotFound(
            f"{shortened(name)} is an alias of {shortened(alias.model)}. {error.message}",
            param="model",
            remedy="Correct the alias in MODEL_ALIASES, which names a model and never another alias.",
        ) from error


def apply_policy(
    context: ServerContext,
    column: Column,
    body: Mapping[str, Any],
    declared: frozenset[str],
    unused: tuple[str, ...],
    record: ModelRecord,
) -> tuple[str, ...]:
    """Refuse what cannot be honoured; returns the locations of fields nobody uses.

    Args:
        declared: Fields the endpoint's schema reads.
        unused: Those of them this very request has no use for.
    """
    notes = current_exchange().notes
    notes.model, notes.stream, notes.side_call = record.name, body.get("stream") is True, side_call(body)
    strict = headers.strict_flag(request.headers.getlist(headers.STRICT))
    if column.writes:
        check_generative(record)
    found = fields.judge(
        column,
        body,
        declared,
        unused,
        model=record.name,
        engine=record.engine.value,
        passed_over=column.offered(body) if context.settings.IGNORE_OFFERED_TOOLS else frozenset(),
    )
    notes.ignored_fields = found
    if strict:
        fields.refuse_unused(found)
    if found:
        # Locations only, in the header's safe form: what a person wrote never reaches a log.
        shown = headers.string_list(found, context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES)
        log.warning("request_fields_unused endpoint=%s fields=%s", column.key, shown)
    _refuse_later_headers()
    return found


def with_unread_variables(
    unused: tuple[str, ...], asked: Asked, prepared: PreparedRequest | PreparedScoring
) -> tuple[str, ...]:
    """``unused`` and the template variables that the model's template never reads, by the field they came in.

    Those that came in none are left to the notes. Known only with the model at hand; under ``X-miLLM-Strict`` they are
    refused like every other unused field.
    """
    more = tuple(
        asked.shorthands.get(name, f"chat_template_kwargs.{name}")
        for name in prepared.unread_variables
        if name not in asked.lent
    )
    return _with(unused, more)


def with_unshown_tools(unused: tuple[str, ...], body: Mapping[str, Any], prepared: PreparedRequest) -> tuple[str, ...]:
    """``unused`` and the offered tools that the model is not shown; as :func:`with_unread_variables`."""
    return _with(unused, _tool_locations(body, prepared) if prepared.unused_tools else ())


def _with(unused: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    """Both, each once; in strict mode what is new is refused."""
    found = tuple(dict.fromkeys((*unused, *more)))
    if found != unused:
        current_exchange().notes.ignored_fields = found
        if headers.strict_flag(request.headers.getlist(headers.STRICT)):
            fields.refuse_unused(found)
    return found


def _tool_locations(body: Mapping[str, Any], prepared: PreparedRequest) -> list[str]:
    """Where the tools stand that the model is not shown: all of them, or each."""
    if prepared.request.tools is None:
        return ["tools"]
    offered = body.get("tools")
    return [
        f"tools[{place}]"
        for place, tool in enumerate(offered if isinstance(offered, list) else [])
        if any(name in prepared.unused_tools for name in _names(tool))
    ]


def _names(tool: Any) -> list[Any]:
    """What a tool is called, wherever its API puts that."""
    inside = [tool, *tool.values()] if isinstance(tool, Mapping) else []
    return [each.get("name") for each in inside if isinstance(each, Mapping)]


def _refuse_later_headers() -> None:
    """Headers whose work has not landed: dropping them in silence would break what they promise."""
    policy = request.headers.get(headers.LOAD_POLICY)
    if policy is not None:
        word = policy.strip().lower()
        if word not in ("auto", "refuse"):
            raise InvalidParameter(
                f"Invalid value for '{headers.LOAD_POLICY}': expected auto or refuse; received {described(policy)}.",
                param=headers.LOAD_POLICY,
            )
        if word == "refuse":
            raise FieldNotHonoured(
                f"'{headers.LOAD_POLICY}: refuse' cannot be honoured: models are loaded on demand.",
                param=headers.LOAD_POLICY,
                remedy="Leave the header out, or send auto.",
            )
    if headers.LEASE in request.headers:
        raise FieldNotHonoured(
            f"'{headers.LEASE}' cannot be honoured: this server has no leases.",
            param=headers.LEASE,
            remedy="Leave the header out.",
        )


async def on_resident(context: ServerContext, model: str, prepare: Callable[[], Awaitable[T]]) -> T:
    """Load ``model`` where needed, then ``prepare`` the request for it.

    Who waits for a load has a place in the queue until the request is prepared. Its caller submits it at once, before
    anything else of the loop runs, so nobody who came later is in that place.

    Raises :class:`QueueFull` before anything is loaded, and what the load raises.
    """
    for attempt in range(LOAD_ATTEMPTS):
        resident = context.engine.shelf.resident
        there = resident is not None and resident.record.name == model
        with nullcontext() if there else context.engine.generation.waiting_for_load():
            if not there:
                await loaded(context, model)
            try:
                return await prepare()
            except ModelNotLoaded:
                # Another request had its own model loaded between the two steps.
                if attempt == LOAD_ATTEMPTS - 1:
                    raise
    raise AssertionError("the loop above returns or raises")


async def loaded(context: ServerContext, model: str) -> None:
    """Wait until ``model`` is resident. The wait takes no thread, and ends when the client leaves; the load goes on."""
    timeout = context.engine.settings.MODEL_LOAD_TIMEOUT
    demand = await context.quick(lambda: context.engine.models.demand(model))
    loading = asyncio.wrap_future(demand.loading)
    try:
        if not await current_exchange().ready(loading, timeout):
            raise demand.still_loading(timeout)
    finally:
        loading.cancel()
    # It is done, one way or another: this tells which.
    demand.model(0)


async def result_of(reading: Future[T]) -> T:
    """The result of a reading, which is cancelled when the client leaves. Raises :class:`GenerationInterrupted`."""
    try:
        result = await current_exchange().wait_for(asyncio.wrap_future(reading))
    except MillmError as error:
        raise GenerationInterrupted(error) from error
    if isinstance(usage := getattr(result, "usage", None), Usage):
        notes = current_exchange().notes
        notes.prompt_tokens, notes.completion_tokens = usage.prompt_tokens, usage.completion_tokens
    return result


def common_headers(
    context: ServerContext, backend: str, mode: str | None, unused: tuple[str, ...], notes: tuple[str, ...]
) -> dict[str, str]:
    """Headers of an answer that are known before its first byte."""
    notes_of_request = current_exchange().notes
    notes_of_request.backend, notes_of_request.mode = backend, mode
    limit = context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES
    out = {headers.BACKEND: backend}
    if mode is not None:
        out[headers.MODE] = mode
    if unused:
        out[headers.IGNORED_FIELDS] = headers.string_list(unused, limit)
    if notes:
        out[headers.NOTES] = headers.string_list(notes, limit)
    return out
