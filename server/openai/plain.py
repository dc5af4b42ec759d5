"""What routes share that neither write nor read text by the model: a body within its bounds, its fields judged, an
answer that names those nobody used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from quart import Response, request

from engine.public.library import ModelRecord
from server import headers, sse
from server.body import LARGE_BODY_BYTES, parse_object, read_body, refuse_non_json_numbers, validate
from server.context import ServerContext
from server.fields import Column, Rule, Use
from server.generation.admission import apply_policy

M = TypeVar("M", bound=BaseModel)

HONOURED = Rule(Use.HONOURED)
NEVER_STEERED = Rule(Use.REFUSED, remedy="Nothing is written here, so nothing is steered: leave it out.")


async def read(context: ServerContext, schema: type[M]) -> tuple[dict[str, Any], M]:
    """The current request's body as an object and as ``schema``. Raises :class:`InvalidParameter`,
    :class:`PayloadTooLarge`.
    """
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)

    def parse() -> tuple[dict[str, Any], M]:
        body = parse_object(raw)
        parsed = validate(schema, body)
        refuse_non_json_numbers(raw)
        return body, parsed

    return await context.prepare(parse) if len(raw) > LARGE_BODY_BYTES else parse()


def judge(
    context: ServerContext,
    column: Column,
    schema: type[BaseModel],
    body: Mapping[str, Any],
    record: ModelRecord,
    unused: tuple[str, ...] = (),
) -> dict[str, str]:
    """The headers that name what nobody used. Raises as :func:`apply_policy`."""
    found = apply_policy(context, column, body, frozenset(schema.model_fields), unused, record)
    limit = context.settings.IGNORED_FIELDS_HEADER_MAX_BYTES
    return {headers.IGNORED_FIELDS: headers.string_list(found, limit)} if found else {}


def answered(body: Any, out: Mapping[str, str] | None = None) -> Response:
    """``body`` as JSON, which may be written already (bytes), with the headers ``out``."""
    data = body if isinstance(body, bytes) else sse.dump(body)
    return Response(data, 200, {**(out or {}), "Content-Type": "application/json"})
