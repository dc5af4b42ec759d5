"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quart import Response

from engine.public.generation import FillInput, Piece, TokenInfo, no_marks
from engine.public.library import ModelRecord
from engine.public.models import capabilities_of
from server.context import ServerContext
from server.generation.endpoint import WrittenCall
from server.openai import fields
from server.openai.endpoint import OpenAIEndpoint
from server.openai.fill_rate import FillRate
from server.openai.formatting import text_logprobs
from server.openai.schema import CompletionBody, Parsed, parse_completion


class Completions(OpenAIEndpoint):
    """Continues raw text, or fills in a gap of it."""

    column = fields.COMPLETIONS
    schema = CompletionBody
    id_prefix = "cmpl"
    object_name = "text_completion"
    chunk_name = "text_completion"

    def __init__(self, rate: FillRate) -> None:
        self._rate = rate

    async def instead(
        self, context: ServerContext, asked: Parsed, record: ModelRecord, unused: tuple[str, ...]
    ) -> Response | None:
        """As in the base. Gaps come at their rate, and none makes a model come in that has no marks for them.

        Raises :class:`CompletionRateLimited`, :class:`FimUnsupported`.
        """
        if isinstance(asked.generation.input, FillInput):
            self._rate.take()
            resident = context.engine.shelf.resident
            if (await context.quick(lambda: capabilities_of(record, resident))).fim is False:
                raise no_marks(record.name)
        return await super().instead(context, asked, record, unused)

    def parse(self, body: dict[str, Any]) -> Parsed:
        """As in the base."""
        return parse_completion(body)

    def choice(
        self,
        index: int,
        text: str,
        reasoning: str | None,
        calls: Sequence[WrittenCall],
        tokens: Sequence[TokenInfo],
        finish_reason: str,
        *,
        logprobs: bool,
        as_ids: bool,
    ) -> dict[str, Any]:
        """As in the base; ``logprobs`` is null when they were not asked for."""
        return {
            "index": index,
            "text": text,
            "logprobs": text_logprobs(tokens, as_ids=as_ids) if logprobs else None,
            "finish_reason": finish_reason,
        }

    def opening(self, index: int) -> None:
        """Nobody speaks: the text goes straight on."""
        return None

    def pieces(
        self, index: int, piece: Piece, tokens: Sequence[TokenInfo], *, logprobs: bool, as_ids: bool
    ) -> list[dict[str, Any]]:
        """As in the base."""
        out = {
            "index": index,
            "text": piece.text,
            "logprobs": text_logprobs(tokens, as_ids=as_ids) if logprobs else None,
            "finish_reason": None,
        }
        return [out]

    def closing(self, index: int, finish_reason: str) -> dict[str, Any]:
        """As in the base."""
        return {"index": index, "text": "", "logprobs": None, "finish_reason": finish_reason}
