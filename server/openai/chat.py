"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.public.generation import Call, Kind, Piece, TokenInfo
from server.generation.endpoint import WrittenCall
from server.openai import fields
from server.openai.endpoint import OpenAIEndpoint
from server.openai.formatting import chat_logprobs, new_call_id
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
        calls: Sequence[WrittenCall],
        tokens: Sequence[TokenInfo],
        finish_reason: str,
        *,
        logprobs: bool,
        as_ids: bool,
    ) -> dict[str, Any]:
        """As in the base; ``logprobs`` is there only when asked for, reasoning and calls only where there were any."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        if calls:
            message["content"] = text if text.strip() else None
            message["tool_calls"] = [_call(each.call, each.arguments, new_call_id()) for each in calls]
        out: dict[str, Any] = {"index": index, "message": message, "finish_reason": finish_reason}
        if logprobs:
            out["logprobs"] = chat_logprobs(tokens, as_ids=as_ids)
        return out

    def opening(self, index: int) -> dict[str, Any]:
        """Says who speaks."""
        return {"index": index, "delta": {"role": "assistant"}, "finish_reason": None}

    def pieces(
        self, index: int, piece: Piece, tokens: Sequence[TokenInfo], *, logprobs: bool, as_ids: bool
    ) -> list[dict[str, Any]]:
        """As in the base; what opens a call has a chunk of its own."""
        deltas: list[dict[str, Any]]
        if piece.call is not None:
            deltas = [{"tool_calls": [_call(piece.call, "", new_call_id())]}] if piece.opens else []
            if piece.text:
                deltas.append({"tool_calls": [_call(piece.call, piece.text)]})
        elif piece.kind is Kind.REASONING:
            deltas = [{"reasoning_content": piece.text}]
        else:
            deltas = [{"content": piece.text}]
        out = [{"index": index, "delta": delta, "finish_reason": None} for delta in deltas]
        if logprobs and out:
            out[0]["logprobs"] = chat_logprobs(tokens, as_ids=as_ids)
        return out

    def closing(self, index: int, finish_reason: str) -> dict[str, Any]:
        """As in the base."""
        return {"index": index, "delta": {}, "finish_reason": finish_reason}


def _call(call: Call, text: str, call_id: str | None = None) -> dict[str, Any]:
    """A call, whole or as a stream opens it; without an id what a stream adds to its arguments."""
    kind, argument = ("custom", "input") if call.custom else ("function", "arguments")
    if call_id is None:
        return {"index": call.number, kind: {argument: text}}
    return {"index": call.number, "id": call_id, "type": kind, kind: {"name": call.name, argument: text}}
