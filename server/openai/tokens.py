"""``POST /v1/tokenize`` and ``POST /v1/detokenize``: nothing is written, loaded or queued for them."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field
from quart import Quart, Response, request

from engine.checked import of_kind
from engine.errors import InvalidParameter
from engine.public.generation import ChatInput, Tokenized, Tools
from engine.public.library import ModelRecord
from server import headers, sse
from server.context import ServerContext
from server.fields import Column, Rule, Use, refuse_unused
from server.in_flight import current_exchange
from server.openai.plain import HONOURED, NEVER_STEERED, answered, judge, read
from server.openai.schema import ChatMessage, parse_chat
from server.openapi.describe import describe
from server.tools import ToolList
from server.validators import TemplateKwargs

TEXTS = ("text", "content", "prompt")
"""Names of one thing: what other servers' clients call a text."""
_OF_A_CHAT = ("tools", "chat_template_kwargs")
_STEERING = ("profile", "steering", "steering_intensity", "return_sae_activations")
_STEP = 20_000
"""Numbers or pieces that are written at once: more would hold the interpreter, and with it every stream."""


class TokenizeBody(BaseModel):
    """A text under one of three names, or a conversation."""

    model_config = ConfigDict(strict=True)
    model: str | None = None
    text: str | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: ToolList | None = None
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)
    add_special_tokens: bool | None = None
    with_pieces: bool | None = None

    def given(self, body: dict[str, Any]) -> tuple[str | ChatInput, Tools | None]:
        """The text, or the conversation as chat reads it and its tools. Raises :class:`InvalidParameter`."""
        sent = [name for name in (*TEXTS, "messages") if getattr(self, name) is not None]
        if len(sent) > 1:
            raise InvalidParameter(f"Of {' and '.join(map(repr, sent))} only one can be sent.", param=sent[1])
        if not sent:
            raise InvalidParameter(
                "There is nothing to make tokens of: text, content, prompt or messages is needed.", param="text"
            )
        if self.messages is None:
            return str(getattr(self, sent[0])), None
        chat = {"model": "", "messages": body["messages"], **{name: body.get(name) for name in _OF_A_CHAT}}
        asked = parse_chat(chat).generation
        return of_kind(ChatInput, asked.input), asked.tools

    def unused(self) -> tuple[str, ...]:
        """Fields that say nothing about what was sent."""
        names = ("add_special_tokens",) if self.messages is not None else _OF_A_CHAT
        return tuple(name for name in names if getattr(self, name))


class DetokenizeBody(BaseModel):
    """Token ids."""

    model_config = ConfigDict(strict=True)
    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(fail_fast=True)]


class TokenizeAnswer(TypedDict):
    """Token ids, and with a conversation the text they are of."""

    tokens: list[int]
    count: int
    model: str
    max_model_len: int | None
    pieces: NotRequired[list[str]]
    prompt: NotRequired[str]


class DetokenizeAnswer(TypedDict):
    """The text of tokens."""

    text: str


def _column(key: str, name: str, *honoured: str) -> Column:
    rules = {**dict.fromkeys(honoured, HONOURED), **dict.fromkeys(_STEERING, NEVER_STEERED)}
    if "chat_template_kwargs" in rules:
        # As on chat: nobody sets variables of a GGUF file's template.
        rules["chat_template_kwargs"] = Rule(Use.HONOURED, Use.REPORTED)
    return Column(key, name, MappingProxyType(rules), writes=False, blank={"chat_template_kwargs": ""})


TOKENIZE = _column(
    "tokenize", "tokenize", "model", *TEXTS, "messages", *_OF_A_CHAT, "add_special_tokens", "with_pieces"
)
DETOKENIZE = _column("detokenize", "detokenize", "model", "tokens")


def register(app: Quart, context: ServerContext) -> None:
    """Add the routes to ``app``."""
    reader = context.engine.tokens

    @app.post("/v1/tokenize")
    @describe(
        "The tokens of a text or of a conversation.",
        body=TokenizeBody,
        answer=TokenizeAnswer,
        errors=(404, 409),
        headers=(headers.IGNORED_FIELDS, headers.NOTES),
        request_headers=(headers.STRICT, headers.LOAD_POLICY),
    )
    async def tokenize() -> Response:
        body, asked = await read(context, TokenizeBody)
        given, tools = await context.prepare(lambda: asked.given(body))
        record = await context.quick(lambda: reader.model(asked.model))
        out = judge(context, TOKENIZE, TokenizeBody, body, record, asked.unused())

        def work() -> tuple[Tokenized, bytes]:
            found = reader.tokenize(
                record,
                given,
                add_special_tokens=asked.add_special_tokens is not False,
                tools=tools,
                with_pieces=bool(asked.with_pieces),
            )
            return found, _written(record, found)

        found, data = await context.prepare(work)
        return answered(data, {**out, **_reported(context, found)})

    @app.post("/v1/detokenize")
    @describe(
        "The text of tokens.",
        body=DetokenizeBody,
        answer=DetokenizeAnswer,
        errors=(404, 409),
        headers=(headers.IGNORED_FIELDS,),
        request_headers=(headers.STRICT, headers.LOAD_POLICY),
    )
    async def detokenize() -> Response:
        body, asked = await read(context, DetokenizeBody)
        record = await context.quick(lambda: reader.model(asked.model))
        out = judge(context, DETOKENIZE, DetokenizeBody, body, record)
        data = await context.prepare(lambda: sse.dump({"text": reader.detokenize(record, asked.tokens)}))
        return answered(data, out)


def _reported(context: ServerContext, found: Tokenized) -> dict[str, str]:
    """Headers that say what the template did not read and what was changed. Raises :class:`UnusedFieldsRefused`."""
    limit = context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES
    out: dict[str, str] = {}
    if found.notes:
        out[headers.NOTES] = headers.string_list(found.notes, limit)
    if found.unread:
        notes = current_exchange().notes
        more = [name if name == "tools" else f"chat_template_kwargs.{name}" for name in found.unread]
        notes.ignored_fields = tuple(dict.fromkeys((*notes.ignored_fields, *more)))
        if headers.strict_flag(request.headers.getlist(headers.STRICT)):
            refuse_unused(notes.ignored_fields)
        out[headers.IGNORED_FIELDS] = headers.string_list(notes.ignored_fields, limit)
    return out


def _written(record: ModelRecord, found: Tokenized) -> bytes:
    """The answer as JSON, written in steps."""
    rest: dict[str, Any] = {"count": len(found.token_ids), "model": record.name, "max_model_len": found.window}
    if found.prompt is not None:
        rest["prompt"] = found.prompt
    lists: dict[str, Sequence[Any]] = {"tokens": found.token_ids}
    if found.pieces is not None:
        lists["pieces"] = found.pieces
    parts = [b"{"]
    for name, values in lists.items():
        parts += [sse.dump(name), b":[", b",".join(_steps(values)), b"],"]
    return b"".join([*parts, sse.dump(rest)[1:]])


def _steps(values: Sequence[Any]) -> list[bytes]:
    return [sse.dump(values[start : start + _STEP])[1:-1] for start in range(0, len(values), _STEP)]
