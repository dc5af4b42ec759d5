"""How a route says what it takes and what it answers. The decorator stands under the route's own:

    @app.post("/api/things/<int:thing_id>/paint")
    @describe(
        "Paint a thing.",          # one short sentence
        query=PaintQuery,          # the model that read_query gets; NoQuery for none
        body=PaintBody,            # the model that read_json gets
        body_optional=True,        # where read_json is called with optional=True
        data=PaintedThing,         # the type of the envelope's data ...
        answer=ThingDocument,      # ... or of the whole body, where there is no envelope
        status=202,                # of success; 200 unless said otherwise
        also={200: PaintedThing},  # further statuses with an answer of their own
        errors=(404, 409),         # statuses of refusals beside those that every route has
        also_as=("text/csv",),     # other content types of success, where a parameter chooses
    )
    async def paint(thing_id: int) -> Response: ...

``data`` and ``answer`` are types whose JSON form follows from them: dataclasses, pydantic models, the TypedDicts of
``/v1``, lists, mappings, unions and plain values (see ``shapes.py``). Nothing here changes what a route does. A test
fails for a route that is not described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__described__"
_PARAMETER = re.compile(r"<(?:(?P<converter>[^<>:]+):)?(?P<name>[^<>:]+)>")


@dataclass(frozen=True)
class Text:
    """An answer or a body that is not JSON."""

    content_type: str


@dataclass(frozen=True)
class Document:
    """A body that is a JSON document of somebody else's making, checked by an importer and not by a model."""

    description: str


@dataclass(frozen=True)
class Upload:
    """A body that is a file, whatever its type."""

    description: str


TEXT = Text("text/plain")
HTML = Text("text/html")
EVENT_STREAM = Text("text/event-stream")

NOTHING = type(None)
"""The type of an envelope whose data is null."""


@dataclass(frozen=True)
class Description:
    """What a route takes and answers; see the module's text.

    Attributes:
        in_envelope: Whether ``answer`` is the envelope's data.
        also_as: Other content types that a success may have; all of them text.
        streams: It may also answer with server-sent events, whose data have this type.
        only_refuses: It never answers with success.
        open_to_all: It wants no API key.
        headers: Names of response headers of ours that it may send.
        request_headers: Names of request headers of ours that it reads.
    """

    summary: str
    query: type[BaseModel] | None = None
    body: type[BaseModel] | Document | Upload | None = None
    body_optional: bool = False
    answer: Any = NOTHING
    in_envelope: bool = True
    status: int = 200
    also: Mapping[int, Any] = field(default_factory=lambda: MappingProxyType({}))
    errors: tuple[int, ...] = ()
    also_as: tuple[str, ...] = ()
    streams: Any = None
    only_refuses: bool = False
    open_to_all: bool = False
    headers: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()


_UNSET = object()


def describe(summary: str, *, data: Any = _UNSET, answer: Any = _UNSET, **more: Any) -> Callable[[F], F]:
    """Put a :class:`Description` on a route's function. Without ``data`` and ``answer`` the envelope's data is null."""
    if answer is not _UNSET:
        found = Description(summary, answer=answer, in_envelope=False, **more)
    else:
        found = Description(summary, answer=NOTHING if data is _UNSET else data, **more)

    def decorate(view: F) -> F:
        setattr(view, _ATTRIBUTE, found)
        return view

    return decorate


def description_of(view: Callable[..., Any]) -> Description | None:
    """What a route's function says about itself."""
    found = getattr(view, _ATTRIBUTE, None)
    return found if isinstance(found, Description) else None


def path_template(rule: str) -> str:
    """A route's pattern as OpenAPI writes it: ``/api/things/{thing_id}``."""
    return _PARAMETER.sub(r"{\g<name>}", rule)


def path_parameters(rule: str) -> dict[str, str]:
    """The names in a route's pattern, with their converters (``string`` where none is named)."""
    return {found["name"]: (found["converter"] or "string") for found in _PARAMETER.finditer(rule)}
