"""The shapes of answers: ids, usage, logprobs and fingerprints, shared by both endpoints of the dialect."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from engine.public.generation import Alternative, TokenInfo, Usage
from engine.public.models import LoadedModel

LOWEST_LOGPROB = -9999.0
"""What OpenAI sends for a probability of zero; JSON has no minus infinity."""

UNRECORDED = "unrecorded"


def new_id(prefix: str) -> str:
    """``prefix`` and 24 hexadecimal digits."""
    return f"{prefix}-{secrets.token_hex(12)}"


def new_call_id() -> str:
    """What a call is answered by: ``call_`` and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


def usage_json(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage object; cached tokens are named only where there are any."""
    out: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens:
        out["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    return out


def millm_json(activations: Mapping[str, Any]) -> dict[str, Any]:
    """The object ``millm``: what an answer carries beside OpenAI's keys, and only where it was asked for."""
    return {"sae_activations": dict(activations)}


def system_fingerprint(loaded: LoadedModel) -> str:
    """``millm:NAME@REVISION:DTYPE/QUANT:ENGINE``; a part nobody knows is written ``unrecorded``."""
    record = loaded.record
    quantization = record.gguf_label or record.quantization
    return (
        f"millm:{record.name}@{_known(record.revision)}:{_known(loaded.info.dtype)}/{_known(quantization)}"
        f":{record.engine.value}"
    )


def token_name(token: TokenInfo | Alternative, *, as_id: bool) -> str:
    """How logprobs name a token: its text, its bytes where they are no whole UTF-8, or its id."""
    if as_id:
        return f"token_id:{token.token_id}"
    try:
        token.bytes.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)
    return token.text


def chat_logprobs(tokens: Sequence[TokenInfo], *, as_ids: bool) -> dict[str, Any]:
    """Chat's logprobs object for ``tokens``; alternatives come in the engine's falling order."""
    return {
        "content": [
            {**_chat_entry(token, as_ids), "top_logprobs": [_chat_entry(other, as_ids) for other in token.top]}
            for token in tokens
        ]
    }


def text_logprobs(tokens: Sequence[TokenInfo], *, as_ids: bool) -> dict[str, Any]:
    """Text completion's logprobs object. Each map also holds the token that was chosen, likely or not; two tokens that
    read the same share one entry, the likelier one's. The first token of a prompt has no figures: both are null.
    """
    maps: list[dict[str, float] | None] = []
    for token in tokens:
        if token.logprob is None:
            maps.append(None)
            continue
        alternatives: dict[str, float] = {}
        candidates: list[TokenInfo | Alternative] = [*token.top, token]
        for candidate in candidates:
            alternatives.setdefault(token_name(candidate, as_id=as_ids), _logprob(candidate.logprob))
        maps.append(alternatives)
    return {
        "tokens": [token_name(token, as_id=as_ids) for token in tokens],
        "token_logprobs": [None if token.logprob is None else _logprob(token.logprob) for token in tokens],
        "top_logprobs": maps,
        "text_offset": [token.text_offset for token in tokens],
    }


def _chat_entry(token: TokenInfo | Alternative, as_ids: bool) -> dict[str, Any]:
    return {
        "token": token_name(token, as_id=as_ids),
        "logprob": _logprob(token.logprob),
        "bytes": list(token.bytes),
    }


def _logprob(value: float | None) -> float:
    return LOWEST_LOGPROB if value is None else max(value, LOWEST_LOGPROB)


def _known(part: str | None) -> str:
    return UNRECORDED if not part or part.lower() == "unknown" else part
