"""The schema that a tool's arguments are held to.

A strict tool's schema is enforced whole or refused, as a response format's is. Of any other what can be enforced is: a
keyword that cannot is left out, which only lets more documents fit, and what remains is told to the model. Objects that
list their properties have no others, unless they say so: a model that may invent arguments will.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.errors import MillmError
from engine.generation.constraints import formats
from engine.generation.constraints.enforced import escaped
from engine.generation.constraints.exclusive import are_told_apart
from engine.generation.constraints.keywords import ACCEPTED, MAX_PROPERTIES, check_schema
from engine.generation.constraints.patterns import problem
from engine.generation.errors import ResponseFormatUnsupported, ToolSchemaUnsupported
from engine.generation.tools.values import Tool

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "prefixItems")
_DEFS = ("#/$defs/", "#/definitions/")
_KNOWN_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_LENGTHS = ("minItems", "maxItems", "minLength", "maxLength")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@dataclass(frozen=True)
class Enforced:
    """What a tool's arguments are held to. ``whole``: the schema that was asked for, with nothing left out of it."""

    schema: Mapping[str, Any]
    whole: bool = True


def enforced_arguments(tool: Tool) -> Enforced:
    """What the arguments of ``tool`` are held to.

    Raises :class:`ToolSchemaUnsupported` for a strict tool whose schema cannot be enforced whole; the message names the
    keyword and where it stands, its parameter is ``parameters``.
    """
    if tool.takes_nothing:
        return Enforced(NO_ARGUMENTS)
    try:
        return _enforced(json.dumps(tool.schema), tool.strict)
    except ResponseFormatUnsupported as error:
        raise ToolSchemaUnsupported(
            f"The schema of the strict tool {tool.name!r} cannot be enforced. {error.message}",
            param="parameters",
            details=error.details,
            remedy=error.remedy or "Change the part that is named, or leave 'strict' out.",
        ) from error


@lru_cache(maxsize=1024)
def _enforced(text: str, strict: bool) -> Enforced:
    """Kept by the schema's text: clients send the same tools with each chat, and looking at thirty takes a while."""
    asked: Mapping[str, Any] = json.loads(text)
    if "type" not in asked:
        asked = {"type": "object", **asked}
    if strict:
        made = check_schema(asked)
        return Enforced(_closed(made) if isinstance(made, Mapping) else ANY_OBJECT)
    for attempt in (asked, _Loosened(asked).made):
        try:
            made = check_schema(attempt)
        except MillmError:
            continue
        if isinstance(made, Mapping) and made.get("type") == "object":
            return Enforced(_closed(made), whole=attempt is asked)
    return Enforced(ANY_OBJECT, whole=False)


def _closed(schema: Any) -> Any:
    """``schema`` where objects that list properties have no others, unless it says so."""
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED:
            made[keyword] = {name: _closed(inner) for name, inner in value.items()}
        elif keyword in ("anyOf", "prefixItems"):
            made[keyword] = [_closed(inner) for inner in value]
        elif keyword in ("items", "additionalProperties"):
            made[keyword] = _closed(value)
        else:
            made[keyword] = value
    # Beside alternatives, what is listed here is not all there is.
    if made.get("properties") and not any(word in made for word in ("anyOf", "allOf", "$ref", "additionalProperties")):
        made["additionalProperties"] = False
    return made


class _Loosened:
    """A schema without what is not enforced, and without what would make it refused."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._places = {
            f"#/{word}/{escaped(name)}"
            for word in ("$defs", "definitions")
            if isinstance(schema.get(word), Mapping)
            for name in schema[word]
        }
        self._root = schema
        self.made: Any = self._schema(schema)

    def _schema(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema if isinstance(schema, bool) else True
        made: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword in ACCEPTED and (kept := self._kept(keyword, value)) is not None:
                made[keyword] = kept
        for keyword in _LISTED[:2]:
            # Alternatives beside a rest that was loosened are alternatives still.
            if keyword in made and not made[keyword]:
                del made[keyword]
        if "oneOf" in made and not self._told_apart(made["oneOf"]):
            alternatives = made.pop("oneOf")
            made.setdefault("anyOf", alternatives)
        return made

    def _kept(self, keyword: str, value: Any) -> Any:
        """``value`` as it can be kept; None: it cannot."""
        if keyword in _NAMED:
            if not isinstance(value, Mapping) or (keyword == "properties" and len(value) > MAX_PROPERTIES):
                return None
            return {str(name): self._schema(inner) for name, inner in value.items()}
        if keyword in _LISTED:
            return [self._schema(inner) for inner in value] if isinstance(value, list) and value else None
        if keyword in ("items", "additionalProperties"):
            return None if isinstance(value, list) else self._schema(value)
        fits = {
            "type": lambda: _types(value),
            "required": lambda: _strings(value),
            "enum": lambda: value if isinstance(value, list) and value else None,
            "const": lambda: value,
            "pattern": lambda: value if isinstance(value, str) and problem(value) is None else None,
            "format": lambda: value if isinstance(value, str) and value in formats.KNOWN else None,
            "$ref": lambda: value if isinstance(value, str) and self._leads(value) else None,
        }
        if keyword in fits:
            return fits[keyword]()
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if keyword in _LENGTHS:
            return value if number and value >= 0 and float(value).is_integer() else None
        if keyword in _BOUNDS:
            return value if number else None
        return None

    def _leads(self, reference: str) -> bool:
        if not reference.startswith(_DEFS) or "%" in reference:
            return False
        head = "/".join(reference.split("/")[:3])
        return head in self._places and reference == head

    def _told_apart(self, alternatives: list[Any]) -> bool:
        def resolve(reference: str) -> object:
            found: Any = self._root
            for part in reference.split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                found = found.get(name) if isinstance(found, Mapping) else None
            return found

        try:
            return are_told_apart(alternatives, resolve)
        except (TypeError, ValueError, AttributeError, RecursionError):
            return False


def _types(value: Any) -> Any:
    if isinstance(value, str):
        return value if value in _KNOWN_TYPES else None
    if isinstance(value, list):
        known = [
            each for each in dict.fromkeys(each for each in value if isinstance(each, str)) if each in _KNOWN_TYPES
        ]
        return known if known and len(known) == len(value) else None
    return None


def _strings(value: Any) -> list[str] | None:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return list(dict.fromkeys(value))
