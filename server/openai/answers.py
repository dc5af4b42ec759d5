"""What the dialect's routes answer. They build these shapes by hand, for speed; the API's description is made from
here, and the tests hold every answer to it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Finish = Literal["stop", "length"]


class CachedTokens(TypedDict):
    """Prompt tokens that were not read again."""

    cached_tokens: int


class UsageAnswer(TypedDict):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: NotRequired[CachedTokens]


class TokenLogprob(TypedDict):
    """A token that could have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TokenLogprob):
    """A token that was chosen, and the likeliest others."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(TypedDict):
    """Logprobs of a choice's tokens."""

    content: list[ChosenLogprob]


class TextLogprobs(TypedDict):
    """Logprobs of a text's tokens; null for the first token of a prompt that is repeated."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class MessageAnswer(TypedDict):
    """What the model says."""

    role: Literal["assistant"]
    content: str
    reasoning_content: NotRequired[str]


class ChatChoice(TypedDict):
    """One answer to a conversation."""

    index: int
    message: MessageAnswer
    finish_reason: Finish
    logprobs: NotRequired[ChatLogprobs]


class Extras(TypedDict):
    """What was asked for beside OpenAI's keys."""

    sae_activations: dict[str, Any]


class ChatCompletion(TypedDict):
    """An answer to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageAnswer
    system_fingerprint: str
    millm: NotRequired[Extras]


class Delta(TypedDict):
    """What a chunk adds to a choice."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    reasoning_content: NotRequired[str]


class ChatChunkChoice(TypedDict):
    """A choice's part of a chunk."""

    index: int
    delta: Delta
    finish_reason: Finish | None
    logprobs: NotRequired[ChatLogprobs]


class ChatChunk(TypedDict):
    """One event of a streamed answer; the last one with a choice carries the steering report."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: NotRequired[UsageAnswer]
    millm: NotRequired[Extras]
    millm_steering: NotRequired[str]


class TextChoice(TypedDict):
    """One continuation of a text, with ``echo`` behind the text itself."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Finish | None


class TextCompletion(TypedDict):
    """A continued text, or one event of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: NotRequired[UsageAnswer]
    system_fingerprint: NotRequired[str]
    millm: NotRequired[Extras]
    millm_steering: NotRequired[str]


class EmbeddingAnswer(TypedDict):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(TypedDict):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[EmbeddingAnswer]
    model: str
    usage: UsageAnswer


class Model(TypedDict):
    """A model that answers."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    """The models that answer: the loaded one first, then by name."""

    object: Literal["list"]
    data: list[Model]
