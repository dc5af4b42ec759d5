"""Which JSON Schemas are accepted: our own list of keywords, and the limits on size and shape.

The list is ours because constraint libraries compile some keywords without enforcing them: what is not on it is
refused, whatever a library says. Pure: no library of constraints is needed to say no.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.generation.constraints.patterns import problem
from engine.generation.errors import ResponseFormatUnsupported

FIELD = "response_format"

ACCEPTED = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "enum",
        "const",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
        "$ref",
        "$defs",
    }
)
"""Keywords that are enforced."""

ANNOTATIONS = frozenset({"title", "description", "default", "examples"})
"""Keywords that say something to people and constrain nothing."""

MAX_BYTES = 65_536
"""Bytes of the schema as compact JSON."""
MAX_DEPTH = 32
"""Schemas inside one another, the outermost counted; the same for values in ``enum``, ``const`` and annotations."""
MAX_PROPERTIES = 256
"""Properties of one object."""
MAX_LISTED = 20
"""Refused keywords named in one answer."""

_DEFS = "#/$defs/"


@dataclass(frozen=True)
class Misfit:
    """A keyword that is not accepted, and where: a JSON pointer (RFC 6901) into the schema."""

    keyword: str
    pointer: str


def check_schema(schema: Mapping[str, Any] | bool) -> str:
    """Refuse ``schema`` unless every part of it is enforced here; return it as compact JSON, keys in their order.

    Raises :class:`ResponseFormatUnsupported` naming up to 20 keywords with their JSON pointers, or the limit passed.
    """
    if schema is False:
        raise _refused("The schema is false, which no document fits.")
    # Depth first: everything after it may recurse.
    if _deeper_than(schema, 4 * MAX_DEPTH):
        raise _too_deep()
    text = _compact(schema)
    size = len(text.encode())
    if size > MAX_BYTES:
        raise _refused(f"The schema has {size} bytes as compact JSON; at most {MAX_BYTES} are accepted.")
    walk = _Walk()
    walk.schema(schema, "", 1)
    if walk.misfits:
        raise _listing(walk.misfits)
    _check_well_formed(schema)
    _check_references(schema, walk)
    return text


def _compact(schema: Mapping[str, Any] | bool) -> str:
    try:
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise _refused("The schema holds half of a surrogate pair, which is not Unicode text.") from error
    except (TypeError, ValueError) as error:
        raise _refused(f"The schema is not JSON: {error}.") from error
    return text


class _Walk:
    """Goes through a schema once and notes what does not fit and where references point."""

    def __init__(self) -> None:
        self.misfits: list[Misfit] = []
        self.references: list[tuple[str, str]] = []
        """(pointer of the schema that refers, reference)."""

    def schema(self, schema: object, at: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _too_deep()
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise _refused(f"The schema has {json.dumps(schema)[:80]} at '{at}', where a schema must be.")
        for keyword, value in schema.items():
            place = f"{at}/{_escaped(keyword)}"
            if keyword in ANNOTATIONS:
                _check_value(value, depth)
            elif keyword not in ACCEPTED:
                self.misfits.append(Misfit(keyword, place))
            else:
                self._accepted(keyword, value, at, place, depth)

    def _accepted(self, keyword: str, value: Any, at: str, place: str, depth: int) -> None:
        match keyword:
            case "properties" | "$defs":
                for name, inner in self._named(keyword, value, place):
                    self.schema(inner, f"{place}/{_escaped(name)}", depth + 1)
            case "additionalProperties":
                self.schema(value, place, depth + 1)
            case "items":
                if isinstance(value, list):
                    self.misfits.append(Misfit("items (a list)", place))
                else:
                    self.schema(value, place, depth + 1)
            case "anyOf":
                if not isinstance(value, list):
                    raise _refused(f"'{place}' must be a list of schemas.")
                for number, inner in enumerate(value):
                    self.schema(inner, f"{place}/{number}", depth + 1)
            case "enum" | "const":
                _check_value(value, depth)
            case "pattern":
                reason = problem(value) if isinstance(value, str) else None
                if reason is not None:
                    raise _refused(f"The pattern at '{place}' cannot be used: {reason}.")
            case "$ref":
                # A reference is a URI: what a percent sign stands for in it, readers disagree about.
                if isinstance(value, str) and value.startswith(_DEFS) and "%" not in value:
                    self.references.append((at, value))
                else:
                    self.misfits.append(Misfit("$ref", place))

    def _named(self, keyword: str, value: object, place: str) -> Iterator[tuple[str, object]]:
        if not isinstance(value, Mapping):
            raise _refused(f"'{place}' must be an object of schemas.")
        if keyword == "properties" and len(value) > MAX_PROPERTIES:
            raise _refused(
                f"The object at '{place}' has {len(value)} properties; at most {MAX_PROPERTIES} are accepted."
            )
        yield from value.items()


def _check_value(value: object, depth: int) -> None:
    if _deeper_than(value, MAX_DEPTH - depth + 1):
        raise _too_deep()


def _deeper_than(value: object, limit: int) -> bool:
    """Whether containers lie more than ``limit`` deep in one another; never looks further than that."""
    level: list[object] = [value]
    for _ in range(limit):
        inside: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                inside.extend(each.values())
            elif isinstance(each, list | tuple):
                inside.extend(each)
        if not inside:
            return False
        level = inside
    return any(isinstance(each, Mapping | list | tuple) for each in level)


def _check_well_formed(schema: Mapping[str, Any] | bool) -> None:
    """The values of the keywords, by the metaschema of JSON Schema 2020-12."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    # Without a format checker: the one that would do something, of patterns, is Python's.
    error = best_match(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema))
    if error is not None:
        pointer = "".join(f"/{_escaped(str(part))}" for part in error.absolute_path)
        raise _refused(f"The schema is not valid at '{pointer}': {error.message[:300]}.")


def _check_references(schema: Mapping[str, Any] | bool, walk: _Walk) -> None:
    """Every reference leads to a schema, and none leads back to itself without going into a value."""
    for at, reference in walk.references:
        if not isinstance(_find(schema, reference.removeprefix("#")), Mapping | bool):
            raise _refused(f"'{at}/$ref' refers to {reference!r}, which is no schema in this document.")
    settled: set[str] = set()
    for at, _ in walk.references:
        _check_circle(schema, at, settled)


def _check_circle(schema: Mapping[str, Any] | bool, at: str, settled: set[str]) -> None:
    """Follow what applies to the same value: ``$ref`` and ``anyOf``. Iterative, as chains may be long."""
    stack: list[tuple[str, bool]] = [(at, False)]
    open_now: set[str] = set()
    while stack:
        place, leaving = stack.pop()
        if leaving:
            open_now.discard(place)
            settled.add(place)
            continue
        if place in settled:
            continue
        if place in open_now:
            raise _refused(f"The schema at '{place}' refers back to itself without going into a value.")
        open_now.add(place)
        stack.append((place, True))
        found = _find(schema, place)
        if isinstance(found, Mapping):
            if isinstance(found.get("$ref"), str):
                stack.append((found["$ref"].removeprefix("#"), False))
            for number in range(len(found.get("anyOf", ()))):
                stack.append((f"{place}/anyOf/{number}", False))


def _find(schema: object, pointer: str) -> object:
    """What ``pointer`` names in ``schema``; None when there is nothing."""
    found = schema
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# --- refusals ---------------------------------------------------------------------------------------------------------


def _too_deep() -> ResponseFormatUnsupported:
    return _refused(f"The schema is nested more than {MAX_DEPTH} deep.")


def _refused(message: str) -> ResponseFormatUnsupported:
    return ResponseFormatUnsupported(
        message, param=FIELD, remedy="Simplify the schema, or split what is asked into several requests."
    )


def _listing(misfits: list[Misfit]) -> ResponseFormatUnsupported:
    named = misfits[:MAX_LISTED]
    listed = ", ".join(f"{each.keyword} at {each.pointer}" for each in named)
    more = f" and {len(misfits) - MAX_LISTED} more" if len(misfits) > MAX_LISTED else ""
    return ResponseFormatUnsupported(
        f"The schema uses what cannot be enforced: {listed}{more}.",
        param=FIELD,
        details={
            "keywords": [{"keyword": each.keyword, "pointer": each.pointer} for each in named],
            "keywords_total": len(misfits),
        },
        remedy=f"Accepted are {', '.join(sorted(ACCEPTED))}, and {', '.join(sorted(ANNOTATIONS))} as annotations; "
        f"$ref only into {_DEFS}.",
    )
