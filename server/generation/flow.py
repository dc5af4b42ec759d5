"""The way of a request that writes text: checks in the contract's order, then one run with two endings.

Schema, model name, strict header, kind of model, field policy, what needs an attached SAE, load, prompt and window,
steering, activations, queue: all of it comes before the first byte of the answer, so that a stream's 200 is never taken
back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from quart import Response, request

from engine.errors import MillmError
from engine.public.generation import (
    ChoiceFinished,
    GenerationRequest,
    PreparedRequest,
    RequestFinished,
    ResponseFormatUnsupported,
    TextDelta,
)
from server import headers, sse
from server.body import LARGE_BODY_BYTES, parse_object, read_body, refuse_non_json_numbers
from server.context import ServerContext
from server.generation import steering
from server.generation.admission import (
    apply_policy,
    common_headers,
    named,
    on_resident,
    with_unread_variables,
    with_unshown_tools,
)
from server.generation.endpoint import A, Answer, Asked, Endpoint, Written
from server.generation.preconditions import check_saes
from server.generation.running import GenerationInterrupted, Running
from server.in_flight import current_exchange

log = logging.getLogger(__name__)

MAX_FRAMES_AT_ONCE = 256

GENERATION = "generation"
"""The mode of an answer that is written."""


def _read(endpoint: Endpoint[A], raw: bytes) -> tuple[dict[str, Any], A]:
    """The body as an object and as what it asks for."""
    body = parse_object(raw)
    asked = endpoint.parse(body)
    refuse_non_json_numbers(raw)
    return body, asked


async def answer(context: ServerContext, endpoint: Endpoint[A]) -> Response:
    """Answer the current request."""
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)
    if len(raw) > LARGE_BODY_BYTES:
        # Megabytes of JSON take seconds to check, and every other stream would stand still meanwhile.
        body, asked = await context.prepare(lambda: _read(endpoint, raw))
    else:
        body, asked = _read(endpoint, raw)
    asked = steering.with_headers(asked, request.headers)
    record, alias = await context.quick(lambda: named(context, asked.generation.model))
    asked = steering.with_alias(asked, alias, record.name)
    unused = apply_policy(context, endpoint.column, body, endpoint.declared(), asked.unused, record)
    generation = await context.quick(asked.constrained) if asked.has_form else asked.generation
    if context.settings.IGNORE_OFFERED_TOOLS and generation.tools is not None and not generation.tools.insists:
        generation = replace(generation, tools=None)
    check_saes(generation, record, context.engine.shelf.resident)
    if (response := await endpoint.instead(context, asked, record, unused)) is not None:
        return response
    with steering.blamed(asked):
        prepared = await _prepare(context, replace(generation, model=record.name))
    unused = with_unread_variables(unused, asked, prepared)
    unused = with_unshown_tools(unused, body, prepared)
    running = Running(context.engine.generation, prepared, current_exchange())
    started = await running.started()
    writing = endpoint.begin(context, asked, prepared)
    out_headers = _headers(context, asked, prepared, started.backend, unused)
    if asked.stream:
        first = {**out_headers, **headers.steering_headers(prepared, started.rung), **endpoint.stream_headers}
        response = Response(_stream(writing, running), 200, first)
        # Quart cuts answers after RESPONSE_TIMEOUT seconds, long streams too.
        response.timeout = None
        return response
    choices, finished = await _collect(writing, running)
    return Response(
        sse.dump(writing.whole(choices, finished)),
        200,
        {
            **out_headers,
            **headers.steering_headers(prepared, finished.rung),
            "Content-Type": "application/json",
            headers.BATCH: str(asked.generation.conversations),
            headers.STEERING: finished.steering.text(),
            headers.WARM: str(finished.usage.cached_tokens),
        },
    )


# --- before the first byte --------------------------------------------------------------------------------------------


async def _prepare(context: ServerContext, generation: GenerationRequest) -> PreparedRequest:
    """Turn the request into tokens for the model, which is loaded where needed."""
    service = context.engine.generation

    async def prepare() -> PreparedRequest:
        if generation.response_format is not None or generation.tools is not None:
            await _compile(context, generation)
        return await context.prepare(lambda: service.prepare(generation))

    return await on_resident(context, generation.model, prepare)


async def _compile(context: ServerContext, generation: GenerationRequest) -> None:
    """Have the form of the answer compiled; ``prepare`` then finds it at once. The wait ends when the client leaves.

    Raises :class:`ResponseFormatUnsupported`, also when it takes too long. Of tools ``prepare`` says what is wrong, and
    what of them can be enforced all the same.
    """
    try:
        await _compiled(context, generation)
    except ResponseFormatUnsupported:
        if generation.tools is None:
            raise


async def _compiled(context: ServerContext, generation: GenerationRequest) -> None:
    begun = await context.quick(lambda: context.engine.generation.begin_compiling(generation))
    if begun is None:
        return
    if begun.done():
        begun.result()
        return
    compiling = asyncio.wrap_future(begun)
    timeout = context.engine.settings.STRUCTURED_OUTPUT_COMPILE_TIMEOUT
    try:
        if not await current_exchange().ready(compiling, timeout):
            raise ResponseFormatUnsupported(
                f"Compiling the schema takes more than {timeout:g} seconds.",
                param="response_format",
                remedy="Simplify the schema, or raise STRUCTURED_OUTPUT_COMPILE_TIMEOUT.",
            )
        compiling.result()
    finally:
        compiling.cancel()


def _headers(
    context: ServerContext, asked: Asked, prepared: PreparedRequest, backend: str, unused: tuple[str, ...]
) -> dict[str, str]:
    """Headers known before the first byte."""
    wanted = prepared.request
    out = common_headers(context, backend, GENERATION, unused, (*asked.notes, *prepared.notes))
    if wanted.sampling.seed is not None:
        # Each row draws from its own place in the batch, so the same bytes come back for the same rows in their order.
        scope = "request" if wanted.conversations == 1 else "batch-shape"
        out[headers.SEED] = headers.seed(wanted.sampling.seed, scope)
    notes = current_exchange().notes
    if wanted.response_format is not None:
        out[headers.CONSTRAINED] = notes.constrained = wanted.response_format.header
    elif wanted.tools is not None and wanted.tools.insists:
        notes.constrained = "tool calls"
    return out


# --- the two endings --------------------------------------------------------------------------------------------------


async def _collect(writing: Answer[A], running: Running) -> tuple[list[Written], RequestFinished]:
    """All choices, and the delta that ends them."""
    choices = [Written() for _ in range(writing.choices)]
    while not isinstance(delta := await running.next(), RequestFinished):
        if isinstance(delta, TextDelta):
            choices[delta.index].pieces.extend(delta.pieces)
        elif isinstance(delta, ChoiceFinished):
            choices[delta.index].ended = delta
    return choices, delta


async def _stream(writing: Answer[A], running: Running) -> AsyncIterator[bytes]:
    """The answer as events. An error after the start becomes an event, since the status is 200 by then.

    A client that keeps up gets each event at once; one that lags behind gets those that wait in one piece.
    """
    waiting: list[bytes] = []
    try:
        async for frame in writing.events(running):
            waiting.append(frame)
            if not running.behind or len(waiting) >= MAX_FRAMES_AT_ONCE:
                if together := b"".join(waiting):
                    yield together
                waiting.clear()
    except GenerationInterrupted as interrupted:
        waiting.append(writing.failure(interrupted.error))
    except MillmError as error:
        waiting.append(writing.failure(error))
    except Exception:
        log.exception("a stream failed")
        waiting.append(writing.failure(None))
    finally:
        running.close()
    yield b"".join([*waiting, writing.END])
