"""The way of a request that writes text: checks in the contract's order, then one run with two endings.

Schema, model name, strict header, kind of model, field policy, load, prompt and window, queue: all of it comes before
the first byte of the answer, so that a stream's 200 is never taken back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from quart import Response, request

from engine.errors import FieldNotHonoured, InvalidParameter, MillmError, ModelNotLoaded
from engine.generation.request import (
    ChoiceFinished,
    GenerationRequest,
    RequestFinished,
    TextDelta,
    TokenInfo,
    Usage,
)
from engine.generation.service import PreparedRequest
from engine.library.records import ModelRecord
from engine.models.names import check_generative
from server import fields, headers, sse
from server.body import parse_object, read_body, refuse_non_json_numbers
from server.context import ServerContext
from server.errors import GENERIC_MESSAGE, stream_error_event
from server.exchanges import current_exchange
from server.openai.dialect import Dialect
from server.openai.formatting import new_id, system_fingerprint, usage_json
from server.openai.running import GenerationInterrupted, Running
from server.openai.schema import Parsed

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
"""Silence after which a stream sends a comment, so that proxies keep the connection."""

MAX_FRAMES_AT_ONCE = 256
STREAMING_ERROR = {"error": {"message": GENERIC_MESSAGE, "type": "server_error", "code": "streaming_error"}}

GENERATION = "generation"
"""The mode of every answer: ``allowed_token_ids`` is refused, and logprobs of a single token come from generation."""

LOAD_ATTEMPTS = 3
"""How often a model that another request swapped out in the meantime is asked for again."""


async def answer(context: ServerContext, dialect: Dialect) -> Response:
    """Answer the current request."""
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)
    body = parse_object(raw)
    parsed = dialect.parse(body)
    refuse_non_json_numbers(raw)
    record = await context.quick(lambda: context.engine.shelf.resolve(parsed.generation.model))
    unused = _apply_policy(context, dialect, body, parsed, record)
    prepared = await _prepare(context, replace(parsed.generation, model=record.name))
    running = Running(context.engine.generation, prepared, current_exchange())
    started = await running.started()
    head = _Head(dialect, parsed, prepared, started.backend)
    out_headers = _headers(context, head, unused)
    if parsed.stream:
        response = Response(_stream(head, running), 200, {**out_headers, **sse.HEADERS})
        # Quart cuts answers after RESPONSE_TIMEOUT seconds, long streams too.
        response.timeout = None
        return response
    choices, finished = await _collect(head, running)
    return Response(
        sse.dump(_whole(head, choices, finished)),
        200,
        {
            **out_headers,
            "Content-Type": "application/json",
            headers.BATCH: "1",
            headers.STEERING: finished.steering.text(),
        },
    )


@dataclass(frozen=True)
class _Head:
    """What every part of one answer shares."""

    dialect: Dialect
    parsed: Parsed
    prepared: PreparedRequest
    backend: str
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


# --- before anything is loaded ----------------------------------------------------------------------------------------


def _apply_policy(
    context: ServerContext, dialect: Dialect, body: dict[str, Any], parsed: Parsed, record: ModelRecord
) -> tuple[str, ...]:
    """Refuse what cannot be honoured; returns the locations of fields nobody uses."""
    strict = headers.strict_flag(request.headers.getlist(headers.STRICT))
    check_generative(record)
    unused = fields.judge(
        dialect.endpoint, body, dialect.declared(), parsed.unused, model=record.name, engine=record.engine.value
    )
    if strict:
        fields.refuse_unused(unused)
    if unused:
        # Locations only, in the header's safe form: what a person wrote never reaches a log.
        shown = headers.string_list(unused, context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES)
        log.warning("request_fields_unused endpoint=%s fields=%s", dialect.endpoint.name.lower(), shown)
    _refuse_later_headers()
    return unused


def _refuse_later_headers() -> None:
    """Headers whose work has not landed: dropping them in silence would break what they promise."""
    policy = request.headers.get(headers.LOAD_POLICY)
    if policy is not None:
        word = policy.strip().lower()
        if word not in ("auto", "refuse"):
            raise InvalidParameter(
                f"Invalid value for '{headers.LOAD_POLICY}'; expected auto or refuse.", param=headers.LOAD_POLICY
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


async def _prepare(context: ServerContext, generation: GenerationRequest) -> PreparedRequest:
    """Load the model where needed and turn the request into tokens for it."""
    for attempt in range(LOAD_ATTEMPTS):
        await context.load(lambda: context.engine.loader.ensure(generation.model))
        try:
            return await context.quick(lambda: context.engine.generation.prepare(generation))
        except ModelNotLoaded:
            # Another request had its own model loaded between the two steps.
            if attempt == LOAD_ATTEMPTS - 1:
                raise
    raise AssertionError("the loop above returns or raises")


def _headers(context: ServerContext, head: _Head, unused: tuple[str, ...]) -> dict[str, str]:
    """Headers known before the first byte."""
    limit = context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES
    out = {headers.BACKEND: head.backend, headers.MODE: GENERATION}
    if unused:
        out[headers.IGNORED_FIELDS] = headers.string_list(unused, limit)
    if head.prepared.request.sampling.seed is not None:
        out[headers.SEED] = headers.seed(head.prepared.request.sampling.seed, "request")
    if head.prepared.notes:
        out[headers.NOTES] = headers.string_list(head.prepared.notes, limit)
    return out


# --- the two endings --------------------------------------------------------------------------------------------------


@dataclass
class _Choice:
    text: list[str] = field(default_factory=list)
    tokens: list[TokenInfo] = field(default_factory=list)
    finish_reason: str = ""


async def _collect(head: _Head, running: Running) -> tuple[list[_Choice], RequestFinished]:
    """All choices, and the delta that ends them."""
    choices = [_Choice() for _ in range(head.choices)]
    while not isinstance(delta := await running.next(), RequestFinished):
        if isinstance(delta, TextDelta):
            choices[delta.index].text.append(delta.text)
            if head.with_logprobs:
                choices[delta.index].tokens.extend(delta.tokens)
        elif isinstance(delta, ChoiceFinished):
            choices[delta.index].finish_reason = delta.reason.value
    return choices, delta


def _whole(head: _Head, choices: list[_Choice], finished: RequestFinished) -> dict[str, Any]:
    """The whole answer as one object."""
    options = {"logprobs": head.with_logprobs, "as_ids": head.parsed.tokens_as_ids}
    whole = head.envelope(
        head.dialect.object_name,
        [
            head.dialect.choice(index, "".join(choice.text), choice.tokens, choice.finish_reason, **options)
            for index, choice in enumerate(choices)
        ],
    )
    whole["usage"] = usage_json(finished.usage)
    whole["system_fingerprint"] = system_fingerprint(head.prepared.loaded)
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
    """Opening, pieces, closings, usage and the steering report, in the contract's order.

    A delta that shows nothing gives an empty frame, so that frames held back before it are sent all the same.
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
            yield _piece(head, delta, sum(written))
        else:
            open_choices -= 1
            if open_choices:
                yield head.chunk(head.dialect.closing(delta.index, delta.reason.value))
            else:
                # Usage rides on the last closing chunk and comes with the next delta.
                last = delta
                yield b""
    include = head.parsed.include_usage
    if last is not None:
        closing = head.dialect.closing(last.index, last.reason.value)
        yield head.chunk(closing, delta.usage if include is None else None)
    if include:
        yield head.chunk(None, delta.usage)
    yield head.chunk(None, millm_steering=delta.steering.text())


def _piece(head: _Head, delta: TextDelta, written: int) -> bytes:
    """The frame of new text; empty when it would say nothing."""
    with_logprobs = head.with_logprobs and bool(delta.tokens)
    if not delta.text and not with_logprobs:
        return b""
    choice = head.dialect.piece(
        delta.index, delta.text, delta.tokens, logprobs=with_logprobs, as_ids=head.parsed.tokens_as_ids
    )
    usage = Usage(head.prepared.prompt_tokens, written) if head.parsed.continuous_usage else None
    return head.chunk(choice, usage)
