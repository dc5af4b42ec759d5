"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.public.generation import Kind, Piece, TokenInfo
from server.openai import fields
from server.openai.endpoint import OpenAIEndpoint
from server.openai.formatting import chat_logprobs
from server.openai.schema import ChatBody, Parsed, parse_chat


class Chat(OpenAIEndpoint):
    """Answers a conversation."""

    column = fields.CHAT
    schema = ChatBody
    id_prefix = "chatcmpl"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def parse(self, body: dict[str, Any]) -> Parsed:
        """As in the base."""
        return parse_chat(body)

    def choice(
        self,
        index: int,
        text: str,
        reasoning: str | None,
        tokens: Sequence[TokenInfo],
        finish_reason: str,
        *,
        logprobs: bool,
        as_ids: bool,
    ) -> dict[str, Any]:
        """As in the base; ``logprobs`` is there only when asked for, ``reasoning_content`` only where there was any."""
        message = {"role": "assistant", "content": text}
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        out: dict[str, Any] = {"index": index, "message": message, "finish_reason": finish_reason}
        if logprobs:
            out["logprobs"] = chat_logprobs(tokens, as_ids=as_ids)
        return out

    def opening(self, index: int) -> dict[str, Any]:
        """Says who speaks."""
        return {"index": index, "delta": {"role": "assistant"}, "finish_reason": None}

    def piece(
        self, index: int, piece: Piece, tokens: Sequence[TokenInfo], *, logprobs: bool, as_ids: bool
    ) -> dict[str, Any]:
        """As in the base."""
        name = "reasoning_content" if piece.kind is Kind.REASONING else "content"
        out: dict[str, Any] = {"index": index, "delta": {name: piece.text}, "finish_reason": None}
        if logprobs:
            out["logprobs"] = chat_logprobs(tokens, as_ids=as_ids)
        return out

    def closing(self, index: int, finish_reason: str) -> dict[str, Any]:
        """As in the base."""
        return {"index": index, "delta": {}, "finish_reason": finish_reason}
