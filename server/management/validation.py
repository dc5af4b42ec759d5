"""What comes in: bodies, query strings and documents, checked before anything of the engine is asked.

A field or parameter nobody knows is refused, so that a misspelt one is not lost. On ``/api`` every refusal of this
kind is a 422 ``VALIDATION_ERROR`` whose details list each error with its place.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from quart import request

from engine.errors import InvalidParameter, shortened
from engine.public.documents import MAX_INDEX, check_size
from engine.public.library import ID_LIMIT
from server.body import LARGE_BODY_BYTES, invalid_parameter, parse_object, read_body, refuse_non_json_numbers, validate
from server.context import ServerContext

M = TypeVar("M", bound=BaseModel)

Index = Annotated[int, Field(ge=0, le=MAX_INDEX)]
"""A layer or a feature; the engine refuses what the SAE does not have."""
SaeId = Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]


class Body(BaseModel):
    """A request's JSON object: numbers are numbers, booleans are booleans, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Query(BaseModel):
    """A query string: text that must read as the type it stands for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NoQuery(Query):
    """Routes without parameters."""


class NoBody(Body):
    """Routes without fields: nothing or an empty object may be sent."""


class Place(Query):
    """Which attached SAE is meant; with neither, the first attached one."""

    sae_id: SaeId | None = None
    layer: Index | None = None


class BodyPlace(Body):
    """As :class:`Place`, in a body."""

    sae_id: SaeId | None = None
    layer: Index | None = None


async def read_json(context: ServerContext, schema: type[M], *, optional: bool = False) -> M:
    """The request's body as ``schema``; with ``optional``, no body is an empty object.

    Raises :class:`InvalidParameter` naming every bad field, :class:`PayloadTooLarge`.
    """
    raw = await read_body(request, context.settings.MAX_BODY_BYTES)
    if optional and not raw.strip():
        return validate(schema, {})

    def read() -> M:
        parsed = validate(schema, parse_object(raw))
        refuse_non_json_numbers(raw)
        return parsed

    return await context.prepare(read) if len(raw) > LARGE_BODY_BYTES else read()


async def read_document(context: ServerContext) -> bytes:
    """The request's body as it came, for an importer.

    Raises :class:`DocumentTooLarge` for a length that is announced and too large, before any of it is read.
    """
    if request.content_length is not None:
        check_size(request.content_length)
    return await read_body(request, context.settings.MAX_BODY_BYTES)


async def read_upload(context: ServerContext) -> bytes:
    """The request's body as it came: a file. Raises :class:`PayloadTooLarge`."""
    return await read_body(request, context.settings.MAX_BODY_BYTES)


async def read_nothing(context: ServerContext) -> None:
    """Refuse a body that asks for something: the route would not do it. Raises as :func:`read_json` does."""
    await read_json(context, NoBody, optional=True)


def read_query(schema: type[M]) -> M:
    """The query string as ``schema``. Raises :class:`InvalidParameter` also for a parameter given twice."""
    values: dict[str, str] = {}
    for name, given in request.args.lists():
        if len(given) > 1:
            raise InvalidParameter(f"The parameter {shortened(name)} is given {len(given)} times.", param=name)
        values[name] = given[0]
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise invalid_parameter(error) from None
