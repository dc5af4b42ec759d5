"""An answer as OpenAI's clients read it: one object, or chunks in the contract's order."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import MillmError
from engine.public.generation import (
    ChoiceFinished,
    Kind,
    Piece,
    PreparedRequest,
    RequestFinished,
    TextDelta,
    Usage,
    joined,
)
from server import sse
from server.context import ServerContext
from server.generation.endpoint import Answer, Written
from server.generation.running import Running
from server.openai.dialect import STREAMING_ERROR, stream_error_event
from server.openai.formatting import millm_json, new_id, system_fingerprint, usage_json
from server.openai.schema import Parsed
from server.openai.shapes import Shapes

KEEP_ALIVE_S = 15.0
"""Silence after which a stream sends a comment, so that proxies keep the connection."""


class Completion(Answer[Parsed]):
    """An answer of either endpoint; ``shapes`` tells their choices apart."""

    END = sse.DONE

    def __init__(self, context: ServerContext, shapes: Shapes, asked: Parsed, prepared: PreparedRequest) -> None:
        super().__init__(context, asked, prepared)
        self._shapes = shapes
        self._id = new_id(shapes.id_prefix)
        self._created = int(time.time())
        # Reports in chunks of their own, not on the last chunk that has a choice.
        self._separate_reports = context.settings.REPORT_CHUNKS == "separate"
        self._with_logprobs = prepared.request.logprobs is not None

    def whole(self, choices: Sequence[Written], finished: RequestFinished) -> dict[str, Any]:
        """As in the base."""
        shaped = [
            self._shapes.choice(
                index,
                choice.text,
                choice.reasoning,
                choice.calls,
                choice.tokens if self._with_logprobs else [],
                choice.finish_reason,
                logprobs=self._with_logprobs,
                as_ids=self.asked.tokens_as_ids,
            )
            for index, choice in enumerate(choices)
        ]
        whole = self._envelope(self._shapes.object_name, shaped)
        whole["usage"] = usage_json(finished.usage)
        whole["system_fingerprint"] = system_fingerprint(self.prepared.loaded)
        if finished.activations is not None:
            whole["millm"] = millm_json(finished.activations)
        return whole

    async def events(self, running: Running) -> AsyncIterator[bytes]:
        """Opening, pieces, closings, reports and usage.

        The reports (activations, then what steered) ride on the last closing: clients take every chunk to have a
        choice, but for the one with the usage they asked for.
        """
        shapes = self._shapes
        for index in range(self.choices):
            if (opening := shapes.opening(index)) is not None:
                yield self._chunk(opening)
        written = [0] * self.choices
        open_choices = self.choices
        last: ChoiceFinished | None = None
        while not isinstance(delta := await running.next(KEEP_ALIVE_S), RequestFinished):
            if delta is None:
                yield sse.KEEP_ALIVE
            elif isinstance(delta, TextDelta):
                written[delta.index] = delta.completion_tokens
                yield self._pieces(delta, sum(written))
            else:
                open_choices -= 1
                if open_choices:
                    yield self._chunk(shapes.closing(delta.index, delta.reason.value))
                else:
                    # Usage and reports ride on the last closing chunk and come with the next delta.
                    last = delta
                    yield b""
        include = self.asked.include_usage
        reports: dict[str, Any] = {}
        if delta.activations is not None:
            reports["millm"] = millm_json(delta.activations)
        reports["millm_steering"] = delta.steering.text()
        if last is not None:
            closing = shapes.closing(last.index, last.reason.value)
            riding = {} if self._separate_reports else reports
            yield self._chunk(closing, delta.usage if include is None else None, **riding)
        if include:
            yield self._chunk(None, delta.usage)
        if self._separate_reports:
            for name, report in reports.items():
                yield self._chunk(None, **{name: report})

    def failure(self, error: MillmError | None) -> bytes:
        """As in the base."""
        return sse.frame(STREAMING_ERROR if error is None else stream_error_event(error))

    def _pieces(self, delta: TextDelta, written: int) -> bytes:
        """The frames of new text; empty when they would say nothing. Logprobs go with the first."""
        tokens = delta.tokens if self._with_logprobs else ()
        pieces = joined(replace(piece, tokens=()) for piece in delta.pieces if piece.text or piece.opens)
        if not pieces and tokens:
            pieces = (Piece(Kind.CONTENT, ""),)
        usage = Usage(self.prepared.prompt_tokens, written) if self.asked.continuous_usage else None
        frames: list[bytes] = []
        for piece in pieces:
            for choice in self._shapes.pieces(
                delta.index, piece, tokens, logprobs=bool(tokens), as_ids=self.asked.tokens_as_ids
            ):
                frames.append(self._chunk(choice, usage))
                tokens = ()
        return b"".join(frames)

    def _envelope(self, object_name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": object_name,
            "created": self._created,
            "model": self.prepared.model_name,
            "choices": choices,
        }

    def _chunk(self, choice: dict[str, Any] | None, usage: Usage | None = None, **more: Any) -> bytes:
        """One frame of a stream."""
        value = self._envelope(self._shapes.chunk_name, [] if choice is None else [choice])
        if usage is not None:
            value["usage"] = usage_json(usage)
        return sse.frame({**value, **more})
