"""The way of a request that writes text: checks in the contract's order, then one run with two endings.

Schema, model name, strict header, kind of model, field policy, what needs an attached SAE, load, prompt and window,
steering, activations, queue: all of it comes before the first byte of the answer, so that a stream's 200 is never taken
back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from quart import Response, request

from engine.errors import MillmError
from engine.generation.errors import ResponseFormatUnsupported
from engine.generation.request import (
    ChoiceFinished,
    GenerationRequest,
    Piece,
    RequestFinished,
    TextDelta,
    Usage,
    joined,
    text_of,
)
from engine.generation.response_format import ResponseFormat
from engine.generation.service import PreparedRequest
from engine.generation.text.reasoning import Kind
from server import headers, sse
from server.body import LARGE_BODY_BYTES, parse_object, read_body, refuse_non_json_numbers
from server.context import ServerContext
from server.errors import GENERIC_MESSAGE, stream_error_event
from server.in_flight import current_exchange
from server.openai import scoring
from server.openai.admission import apply_policy, common_headers, on_resident, with_unread_variables
from server.openai.dialect import Dialect
from server.openai.formatting import millm_json, new_id, system_fingerprint, usage_json
from server.openai.preconditions import check_saes
from server.openai.running import GenerationInterrupted, Running
from server.openai.schema import Parsed

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
"""Silence after which a stream sends a comment, so that proxies keep the connection."""

MAX_FRAMES_AT_ONCE = 256
STREAMING_ERROR = {"error": {"message": GENERIC_MESSAGE, "type": "server_error", "code": "streaming_error"}}

GENERATION = "generation"
"""The mode of an answer that is written; see ``scoring`` for the other."""


def _read(dialect: Dialect, raw: bytes) -> tuple[dict[str, Any], Parsed]:
    """The body as an object and as what it asks for."""
    body = parse_object(raw)
    parsed = dialect.parse(body)
    refuse_non_json_numbers(raw)
    return body, parsed


async def answer(context: ServerContext, dialect: Dialect) -> Response:
    """Answer the current request."""
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)
    if len(raw) > LARGE_BODY_BYTES:
        # Megabytes of JSON take seconds to check, and every other stream would stand still meanwhile.
        body, parsed = await context.prepare(lambda: _read(dialect, raw))
    else:
        body, parsed = _read(dialect, raw)
    record = await context.quick(lambda: context.engine.shelf.resolve(parsed.generation.model))
    unused = apply_policy(context, dialect.endpoint, body, dialect.declared(), parsed.unused, record)
    asked = parsed.generation if parsed.response_format is None else await context.quick(parsed.constrained)
    check_saes(asked, record, context.engine.shelf.resident)
    if parsed.scoring is not None:
        return await scoring.answer(context, dialect, parsed, parsed.scoring, record, unused)
    prepared = await _prepare(context, replace(asked, model=record.name))
    unused = with_unread_variables(unused, body, prepared)
    running = Running(context.engine.generation, prepared, current_exchange())
    started = await running.started()
    head = _Head(dialect, parsed, prepared, started.backend, context.settings.REPORT_CHUNKS == "separate")
    out_headers = _headers(context, head, unused)
    if parsed.stream:
        first = {**out_headers, **headers.steering_headers(prepared, started.rung), **sse.HEADERS}
        response = Response(_stream(head, running), 200, first)
        # Quart cuts answers after RESPONSE_TIMEOUT seconds, long streams too.
        response.timeout = None
        return response
    choices, finished = await _collect(head, running)
    return Response(
        sse.dump(_whole(head, choices, finished)),
        200,
        {
            **out_headers,
            **headers.steering_headers(prepared, finished.rung),
            "Content-Type": "application/json",
            headers.BATCH: str(parsed.generation.conversations),
            headers.STEERING: finished.steering.text(),
        },
    )


@dataclass(frozen=True)
class _Head:
    """What every part of one answer shares.

    Attributes:
        separate_reports: A stream's reports come in chunks of their own, not on the last chunk that has a choice.
    """

    dialect: Dialect
    parsed: Parsed
    prepared: PreparedRequest
    backend: str
    separate_reports: bool
    id: str = field(init=False)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", new_id(self.dialect.id_prefix))

    @property
    def choices(self) -> int:
        """Choices the answer has."""
        return len(self.prepared.prompts) * self.prepared.request.n

    @property
    def with_logprobs(self) -> bool:
        """Whether tokens' logprobs are sent."""
        return self.prepared.request.logprobs is not None

    def envelope(self, object_name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """An answer or a chunk with ``choices``."""
        return {
            "id": self.id,
            "object": object_name,
            "created": self.created,
            "model": self.prepared.model_name,
            "choices": choices,
        }

    def chunk(self, choice: dict[str, Any] | None, usage: Usage | None = None, **more: Any) -> bytes:
        """One frame of a stream."""
        value = self.envelope(self.dialect.chunk_name, [] if choice is None else [choice])
        if usage is not None:
            value["usage"] = usage_json(usage)
        return sse.frame({**value, **more})


# --- before the first byte --------------------------------------------------------------------------------------------


async def _prepare(context: ServerContext, generation: GenerationRequest) -> PreparedRequest:
    """Turn the request into tokens for the model, which is loaded where needed."""
    service = context.engine.generation

    async def prepare() -> PreparedRequest:
        if generation.response_format is not None:
            await _compile(context, generation.model, generation.response_format)
        return await context.prepare(lambda: service.prepare(generation))

    return await on_resident(context, generation.model, prepare)


async def _compile(context: ServerContext, model: str, asked: ResponseFormat) -> None:
    """Have ``asked`` compiled; ``prepare`` then finds it at once. The wait ends when the client leaves.

    Raises :class:`ResponseFormatUnsupported`, also when it takes too long.
    """
    begun = await context.quick(lambda: context.engine.generation.compile_constraint(model, asked))
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


def _headers(context: ServerContext, head: _Head, unused: tuple[str, ...]) -> dict[str, str]:
    """Headers known before the first byte."""
    asked = head.prepared.request
    out = common_headers(context, head.backend, GENERATION, unused, (*head.parsed.notes, *head.prepared.notes))
    if asked.sampling.seed is not None:
        # Each row draws from its own place in the batch, so the same bytes come back for the same rows in their order.
        scope = "request" if asked.conversations == 1 else "batch-shape"
        out[headers.SEED] = headers.seed(asked.sampling.seed, scope)
    if asked.response_format is not None:
        out[headers.CONSTRAINED] = asked.response_format.header
    return out


# --- the two endings --------------------------------------------------------------------------------------------------


@dataclass
class _Choice:
    pieces: list[Piece] = field(default_factory=list)
    ended: ChoiceFinished | None = None

    @property
    def reasoning(self) -> str | None:
        """What came before the answer, where there is evidence of any."""
        return text_of(self.pieces, Kind.REASONING) if self.ended is not None and self.ended.reasoned else None

    def json(self, head: _Head, index: int) -> dict[str, Any]:
        """As the dialect shapes it."""
        tokens = [token for piece in self.pieces for token in piece.tokens] if head.with_logprobs else []
        return head.dialect.choice(
            index,
            text_of(self.pieces, Kind.CONTENT),
            self.reasoning,
            tokens,
            "" if self.ended is None else self.ended.reason.value,
            logprobs=head.with_logprobs,
            as_ids=head.parsed.tokens_as_ids,
        )


async def _collect(head: _Head, running: Running) -> tuple[list[_Choice], RequestFinished]:
    """All choices, and the delta that ends them."""
    choices = [_Choice() for _ in range(head.choices)]
    while not isinstance(delta := await running.next(), RequestFinished):
        if isinstance(delta, TextDelta):
            choices[delta.index].pieces.extend(delta.pieces)
        elif isinstance(delta, ChoiceFinished):
            choices[delta.index].ended = delta
    return choices, delta


def _whole(head: _Head, choices: list[_Choice], finished: RequestFinished) -> dict[str, Any]:
    """The whole answer as one object."""
    whole = head.envelope(head.dialect.object_name, [choice.json(head, index) for index, choice in enumerate(choices)])
    whole["usage"] = usage_json(finished.usage)
    whole["system_fingerprint"] = system_fingerprint(head.prepared.loaded)
    if finished.activations is not None:
        whole["millm"] = millm_json(finished.activations)
    return whole


async def _stream(head: _Head, running: Running) -> AsyncIterator[bytes]:
    """The answer as events. An error after the start becomes an event, since the status is 200 by then.

    A client that keeps up gets each event at once; one that lags behind gets those that wait in one piece.
    """
    waiting: list[bytes] = []
    try:
        async for frame in _frames(head, running):
            waiting.append(frame)
            if not running.behind or len(waiting) >= MAX_FRAMES_AT_ONCE:
                if together := b"".join(waiting):
                    yield together
                waiting.clear()
    except GenerationInterrupted as interrupted:
        waiting.append(sse.frame(stream_error_event(interrupted.error)))
    except MillmError as error:
        waiting.append(sse.frame(stream_error_event(error)))
    except Exception:
        log.exception("a stream failed")
        waiting.append(sse.frame(STREAMING_ERROR))
    finally:
        running.close()
    yield b"".join([*waiting, sse.DONE])


async def _frames(head: _Head, running: Running) -> AsyncIterator[bytes]:
    """Opening, pieces, closings, reports and usage, in the contract's order.

    The reports (activations, then what steered) ride on the last closing: clients take every chunk to have a choice,
    but for the one with the usage they asked for. A delta that shows nothing gives an empty frame, so that frames held
    back before it are sent all the same.
    """
    for index in range(head.choices):
        if (opening := head.dialect.opening(index)) is not None:
            yield head.chunk(opening)
    written = [0] * head.choices
    open_choices = head.choices
    last: ChoiceFinished | None = None
    while not isinstance(delta := await running.next(KEEP_ALIVE_S), RequestFinished):
        if delta is None:
            yield sse.KEEP_ALIVE
        elif isinstance(delta, TextDelta):
            written[delta.index] = delta.completion_tokens
            yield _pieces(head, delta, sum(written))
        else:
            open_choices -= 1
            if open_choices:
                yield head.chunk(head.dialect.closing(delta.index, delta.reason.value))
            else:
                # Usage and reports ride on the last closing chunk and come with the next delta.
                last = delta
                yield b""
    include = head.parsed.include_usage
    reports: dict[str, Any] = {}
    if delta.activations is not None:
        reports["millm"] = millm_json(delta.activations)
    reports["millm_steering"] = delta.steering.text()
    if last is not None:
        closing = head.dialect.closing(last.index, last.reason.value)
        riding = {} if head.separate_reports else reports
        yield head.chunk(closing, delta.usage if include is None else None, **riding)
    if include:
        yield head.chunk(None, delta.usage)
    if head.separate_reports:
        for name, report in reports.items():
            yield head.chunk(None, **{name: report})


def _pieces(head: _Head, delta: TextDelta, written: int) -> bytes:
    """The frames of new text; empty when they would say nothing. Logprobs go with the first."""
    tokens = delta.tokens if head.with_logprobs else ()
    pieces = joined(Piece(piece.kind, piece.text) for piece in delta.pieces if piece.text)
    if not pieces and tokens:
        pieces = (Piece(Kind.CONTENT, ""),)
    usage = Usage(head.prepared.prompt_tokens, written) if head.parsed.continuous_usage else None
    frames: list[bytes] = []
    for piece in pieces:
        choice = head.dialect.piece(delta.index, piece, tokens, logprobs=bool(tokens), as_ids=head.parsed.tokens_as_ids)
        frames.append(head.chunk(choice, usage))
        tokens = ()
    return b"".join(frames)
