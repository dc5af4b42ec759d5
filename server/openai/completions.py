"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.public.generation import Piece, TokenInfo
from server.generation.endpoint import WrittenCall
from server.openai import fields
from server.openai.endpoint import OpenAIEndpoint
from server.openai.formatting import text_logprobs
from server.openai.schema import CompletionBody, Parsed, parse_completion


class Completions(OpenAIEndpoint):
    """Continues raw text."""

    column = fields.COMPLETIONS
    schema = CompletionBody
    id_prefix = "cmpl"
    object_name = "text_completion"
    chunk_name = "text_completion"

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
