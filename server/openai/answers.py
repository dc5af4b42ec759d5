"""What the dialect's routes answer. They build these shapes by hand, for speed; the API's description is made from
here, and the tests hold every answer to it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from engine.public.models import ModelCapabilities

Finish = Literal["stop", "length", "tool_calls"]


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


class CalledFunctionAnswer(TypedDict):
    """A function's name, and its arguments as JSON text."""

    name: NotRequired[str]
    arguments: str


class CalledCustomAnswer(TypedDict):
    """A custom tool's name, and its text."""

    name: NotRequired[str]
    input: str


class CallAnswer(TypedDict):
    """A call, or in a stream a piece of one: all but the index comes with its first piece."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function", "custom"]]
    function: NotRequired[CalledFunctionAnswer]
    custom: NotRequired[CalledCustomAnswer]


class MessageAnswer(TypedDict):
    """What the model says and calls; content is null where it only calls."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[CallAnswer]]


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
    tool_calls: NotRequired[list[CallAnswer]]


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


class ModelMeta(TypedDict):
    """The window in tokens."""

    n_ctx: int | None


class ModelArchitecture(TypedDict):
    """What it reads."""

    input_modalities: list[str]


class ModelRuntime(TypedDict):
    """What runs it."""

    id: Literal["transformers", "llamacpp"]
    version: str | None


class Model(TypedDict):
    """A model that answers. What nobody knows before it is loaded is null."""

    id: str
    object: Literal["model"]
    type: Literal["model"]
    display_name: str
    created: int
    created_at: str
    lifecycle: Literal["active"]
    owned_by: str
    loaded: bool
    max_input_tokens: int | None
    meta: ModelMeta
    architecture: ModelArchitecture
    runtime: ModelRuntime
    capabilities: ModelCapabilities


class ModelList(TypedDict):
    """The models that answer: the loaded one first, then by name."""

    object: Literal["list"]
    data: list[Model]
    has_more: bool
    first_id: str | None
    last_id: str | None
    models: NotRequired[list[str]]
