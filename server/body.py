"""Request bodies: read within the limit, parsed without surprises, validated with the field's own path in the error."""

from __future__ import annotations

import asyncio
import contextlib
import re
from codecs import BOM_UTF8
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from quart import Request
from quart.wrappers.request import Body
from werkzeug.exceptions import RequestEntityTooLarge

from engine.counting import so_many
from engine.errors import InvalidParameter, described
from server.errors import PayloadTooLarge, RequestTimedOut

M = TypeVar("M", bound=BaseModel)

_WORDING = {
    "missing": "this field is required",
    "model_type": "an object is expected",
    "dict_type": "an object is expected",
    "list_type": "a list is expected",
    "string_type": "a string is expected",
    "bool_type": "true or false is expected",
    "extra_forbidden": "there is no such field",
}
"""Our words where pydantic's speak of Python."""

_NOTHING_RECEIVED = ("missing", "extra_forbidden")
"""Complaints about the field itself, whose value is none or the object around it."""

BODY_TIMEOUT_S = 300.0
LARGE_BODY_BYTES = 256 * 1024
"""Above this a body is checked off the loop: megabytes of JSON take seconds, and every stream would stand still."""

_MAX_PART = 100

MAX_CONTAINERS = 250_000
"""Objects and lists in one body: a thousand inputs of token ids, or a hundred thousand messages, have fewer."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
REST_S = 0.2
"""How long the rest of a body nobody reads may take, so that its client can use the connection again. After that the
answer ends the connection (see ``connections.py``)."""


class LingeringBody(Body):
    """Quart's body that can also be thrown away as it comes in."""

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(expected_content_length, max_content_length)
        self._received = asyncio.Event()
        self._appending = False
        self._discarding = False

    def append(self, data: bytes) -> None:
        """Take a piece; Quart calls ``set_complete`` from here when the limit is passed, which is not the end."""
        if self._discarding:
            return
        self._appending = True
        super().append(data)
        self._appending = False

    def set_complete(self) -> None:
        """No more will be read by the route; the client has sent all unless the limit was passed."""
        super().set_complete()
        if not self._appending:
            self._received.set()

    async def discard_rest(self) -> bool:
        """Read on without keeping anything; whether the client has sent all within ``REST_S`` seconds."""
        self._discarding = True
        self.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                await self._received.wait()
        return self._received.is_set()


class ServerRequest(Request):
    """The request class of the app."""

    body_class = LingeringBody


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. Raises :class:`PayloadTooLarge` past ``limit`` bytes, announced or not.

    The app sets no ``BODY_TIMEOUT``: Quart would wait with ``asyncio.wait_for``, which can lose a cancellation.
    """
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.get_data(cache=False, as_text=False, parse_form_data=False)
    except RequestEntityTooLarge:
        raise PayloadTooLarge(
            f"The request's body is longer than {limit} bytes.",
            details={"max_body_bytes": limit},
            remedy="Send less, or raise MAX_BODY_BYTES.",
        ) from None
    except TimeoutError:
        raise RequestTimedOut("The request's body did not arrive in time.") from None


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; of a key that comes twice, the last value counts.

    NaN and Infinity pass here so that the field holding one can be named; call :func:`refuse_non_json_numbers`
    afterwards. Nesting is bounded by the parser at 200 levels. A byte order mark, which Windows' tools put before text,
    is passed over.
    """
    _check_containers(raw)
    try:
        value = from_json(raw.removeprefix(BOM_UTF8), allow_inf_nan=True)
    except ValueError as error:
        raise InvalidParameter(f"The request's body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidParameter(f"The request's body must be a JSON object; received {described(value)}.")
    return value


def _check_containers(raw: bytes) -> None:
    """Refuse a body of millions of empty objects: it is read in one step, and takes twenty times its size in memory."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_CONTAINERS:
        return
    bare = _STRING.sub(b"", raw)
    count = bare.count(b"{") + bare.count(b"[")
    if count > MAX_CONTAINERS:
        raise InvalidParameter(
            f"The request's body holds {count:,} objects and lists; at most {MAX_CONTAINERS:,} are read.",
            remedy="Send it in several requests.",
        )


def refuse_non_json_numbers(raw: bytes) -> None:
    """Refuse a body whose only fault is a NaN or Infinity in a place no field's own check covers."""
    if b"NaN" in raw or b"Infinity" in raw:
        try:
            from_json(raw.removeprefix(BOM_UTF8), allow_inf_nan=False)
        except ValueError as error:
            raise InvalidParameter(f"The request's body is not valid JSON: {error}.") from None


def validate(schema: type[M], body: dict[str, Any]) -> M:
    """``body`` as ``schema``. Raises :class:`InvalidParameter` naming the first bad field and counting the others."""
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise invalid_parameter(error) from None


def _part(part: str | int) -> str:
    """A step of a field's path; a key that nobody knows may be as long as the body."""
    text = str(part)
    return text if len(text) <= _MAX_PART else f"{text[:_MAX_PART]}…"


def invalid_parameter(error: ValidationError) -> InvalidParameter:
    """The first of a validation's complaints as the contract words it, with what was received in a few words."""
    complaints = []
    for complaint in error.errors(include_url=False, include_context=False):
        place = ".".join(map(_part, complaint["loc"]))
        message = _WORDING.get(complaint["type"], complaint["msg"])
        if complaint["type"] not in _NOTHING_RECEIVED:
            message = f"{message}; received {described(complaint['input'], place)}"
        complaints.append((place, message))
    param, message = complaints[0]
    more = len(complaints) - 1
    tail = f" (and {so_many(more, 'more validation error')})" if more else ""
    return InvalidParameter(
        f"Invalid value for '{param}': {message}{tail}",
        param=param,
        details={"errors": [{"param": place, "message": text} for place, text in complaints[:20]]},
    )
