"""``POST /v1/embeddings``: one vector for each text. Never steered and never monitored."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from quart import Response, request

from engine.public.generation import Embedded, EmbeddingRequest, Pooling, PreparedEmbeddings
from server import sse
from server.body import LARGE_BODY_BYTES, parse_object, read_body, refuse_non_json_numbers, validate
from server.context import ServerContext
from server.generation.admission import apply_policy, common_headers, named, on_resident, result_of
from server.generation.steering import note_on_alias, notes_on_headers
from server.openai import fields
from server.openai.formatting import usage_json
from server.validators import complain

Inputs = tuple[str | tuple[int, ...], ...]


def _inputs(value: object) -> Inputs:
    """One text or several, each as a string or as token ids; always as a list."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise complain("input", "a string, a list of strings, or token ids are expected")
    if value and _is_ids(value):
        return (tuple(value),)
    found: list[str | tuple[int, ...]] = []
    for item in value:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, list) and _is_ids(item):
            found.append(tuple(item))
        else:
            raise complain("input", "a list of strings, or of lists of token ids, is expected")
    return tuple(found)


def _is_ids(value: list[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


_TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_InputTypes = str | Annotated[list[str], Field(min_length=1)] | _TokenIds | list[_TokenIds]


class EmbeddingsBody(BaseModel):
    """The body."""

    model_config = ConfigDict(strict=True)
    model: str
    input: Annotated[Inputs, BeforeValidator(_inputs, json_schema_input_type=_InputTypes)]
    encoding_format: Literal["float", "base64"] | None = None
    pooling: Literal["mean", "last", "cls"] | None = None
    normalize: bool | None = None


@dataclass(frozen=True)
class ParsedEmbeddings:
    """A body that passed its schema; ``as_base64`` sends vectors as little-endian float32."""

    request: EmbeddingRequest
    as_base64: bool


def parse(body: dict[str, Any]) -> ParsedEmbeddings:
    """A body as a request. Raises :class:`InvalidParameter`."""
    read = validate(EmbeddingsBody, body)
    sent = body["input"]
    asked = EmbeddingRequest(
        model=read.model,
        inputs=read.input,
        single=isinstance(sent, str) or (bool(sent) and isinstance(sent[0], int)),
        pooling=Pooling(read.pooling or "mean"),
        normalize=bool(read.normalize),
    )
    return ParsedEmbeddings(asked, read.encoding_format == "base64")


def _read(raw: bytes) -> tuple[dict[str, Any], ParsedEmbeddings]:
    """The body as an object and as what it asks for."""
    body = parse_object(raw)
    parsed = parse(body)
    refuse_non_json_numbers(raw)
    return body, parsed


async def answer(context: ServerContext) -> Response:
    """Answer the current request."""
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)
    if len(raw) > LARGE_BODY_BYTES:
        body, parsed = await context.prepare(lambda: _read(raw))
    else:
        body, parsed = _read(raw)
    record, alias = await context.quick(lambda: named(context, parsed.request.model))
    notes = notes_on_headers(request.headers)
    if alias is not None:
        notes = (*notes, note_on_alias(parsed.request.model, alias, record.name, steers=False))
    declared = frozenset(EmbeddingsBody.model_fields)
    unused = apply_policy(context, fields.EMBEDDINGS, body, declared, (), record)
    parsed.request.check_count(context.engine.settings.EMBEDDINGS_MAX_INPUTS)
    service = context.engine.generation
    wanted = replace(parsed.request, model=record.name)

    async def prepare() -> PreparedEmbeddings:
        return await context.prepare(lambda: service.prepare_embeddings(wanted))

    prepared = await on_resident(context, record.name, prepare)
    embedded = await result_of(service.embed(prepared))
    # Many vectors make megabytes of JSON: not on the loop.
    payload = await context.quick(lambda: sse.dump(_whole(prepared.model_name, embedded, parsed.as_base64)))
    return Response(
        payload,
        200,
        {
            **common_headers(context, prepared.loaded.info.word(solo=True), None, unused, notes),
            "Content-Type": "application/json",
        },
    )


def _whole(model: str, embedded: Embedded, as_base64: bool) -> dict[str, Any]:
    vectors = embedded.vectors.astype("<f4")
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.tobytes()).decode("ascii") if as_base64 else vector.tolist(),
            }
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": usage_json(embedded.usage),
    }
