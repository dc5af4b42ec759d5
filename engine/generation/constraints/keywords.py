"""Which JSON Schemas are accepted: our own list of keywords, and the limits on size and shape.

The list is ours because constraint libraries compile some keywords without enforcing them: what is not on it is
refused, whatever a library says. Pure: no library of constraints is needed to say no.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.generation.constraints import formats
from engine.generation.constraints.enforced import enforced, escaped
from engine.generation.constraints.exclusive import MAX_ALTERNATIVES, are_told_apart
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
        "prefixItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "anyOf",
        "oneOf",
        "$ref",
        "$defs",
        "definitions",
    }
)
"""Keywords that are enforced."""

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "example", "$schema", "$comment", "$vocabulary", "$anchor"}
    | {"deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema", "discriminator"}
)
"""Keywords that say something to people or to generators of code, and constrain nothing. So do ``x-`` words, and
``$id`` on the outermost schema (further in it would change what references mean).
"""

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "uniqueItems": (False,),
    "minProperties": (0,),
    "patternProperties": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "additionalItems": (True, {}),
}
"""Keywords that are refused, but for the values with which they rule out nothing: generators write those, too."""

MAX_BYTES = 65_536
"""Bytes of the schema as compact JSON."""
MAX_DEPTH = 32
"""Schemas inside one another, the outermost counted; the same for values in ``enum``, ``const`` and annotations."""
MAX_PROPERTIES = 256
"""Properties of one object."""
MAX_LISTED = 20
"""Refused keywords named in one answer."""

MAX_EXACT = 2**53
"""Whole numbers up to here are exact wherever they are read; beyond it every second one is, and then fewer."""

_DEFS = ("#/$defs/", "#/definitions/")


@dataclass(frozen=True)
class Misfit:
    """A keyword that is not accepted, and where: a JSON pointer (RFC 6901) into the schema."""

    keyword: str
    pointer: str


def check_schema(schema: Mapping[str, Any] | bool) -> Mapping[str, Any] | bool:
    """Refuse ``schema`` unless every part of it is enforced here; return what is enforced, see ``enforced``.

    Raises :class:`ResponseFormatUnsupported` naming up to 20 keywords with their JSON pointers, or the limit passed.
    """
    if schema is False:
        raise _refused("The schema is false, which no document fits.")
    # Depth first: everything after it may recurse.
    if _deeper_than(schema, 4 * MAX_DEPTH):
        raise _too_deep()
    size = len(compact(schema).encode())
    if size > MAX_BYTES:
        raise _refused(f"The schema has {size} bytes as compact JSON; at most {MAX_BYTES} are accepted.")
    schema = with_prefix_items(schema)
    walk = _Walk()
    walk.schema(schema, "", 1)
    if walk.misfits:
        raise _listing(walk.misfits)
    _check_well_formed(schema)
    _check_references(schema, walk)
    _check_alternatives(schema, walk)
    made = enforced(schema)
    if made is False:
        raise _refused(
            "No document of finite length fits the schema: it requires what contains itself without end, or what is "
            "ruled out."
        )
    return made


def compact(schema: Mapping[str, Any] | bool) -> str:
    """A schema as compact JSON, keys in their order."""
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
        self.alternatives: list[tuple[str, list[Any]]] = []
        """(pointer, value) of each ``oneOf``."""
        self.places: set[str] = set()
        """Pointers of all schemas."""

    def schema(self, schema: object, at: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise _too_deep()
        self.places.add(at)
        if isinstance(schema, bool):
            return
        if not isinstance(schema, Mapping):
            raise _refused(f"The schema has {json.dumps(schema)[:80]} at '{at}', where a schema must be.")
        for keyword, value in schema.items():
            place = f"{at}/{escaped(keyword)}"
            if _says_nothing(keyword, value, at):
                _check_value(value, depth)
            elif keyword not in ACCEPTED:
                self.misfits.append(Misfit(keyword, place))
            else:
                self._accepted(keyword, value, at, place, depth)

    def _accepted(self, keyword: str, value: Any, at: str, place: str, depth: int) -> None:
        match keyword:
            case "properties" | "$defs" | "definitions":
                for name, inner in self._named(keyword, value, place):
                    self.schema(inner, f"{place}/{escaped(name)}", depth + 1)
            case "additionalProperties":
                self.schema(value, place, depth + 1)
            case "items":
                if isinstance(value, list):
                    self.misfits.append(Misfit("items (a list)", place))
                else:
                    self.schema(value, place, depth + 1)
            case "anyOf" | "oneOf" | "prefixItems":
                if not isinstance(value, list):
                    raise _refused(f"'{place}' must be a list of schemas.")
                for number, inner in enumerate(value):
                    self.schema(inner, f"{place}/{number}", depth + 1)
                if keyword == "oneOf":
                    self.alternatives.append((place, value))
            case "enum" | "const":
                _check_value(value, depth)
                _check_numbers(value, place)
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                _check_bound(keyword, value, place)
            case "format":
                if isinstance(value, str) and value not in formats.KNOWN:
                    self.misfits.append(Misfit(f"format {value[:40]!r}", place))
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


def _says_nothing(keyword: str, value: object, at: str) -> bool:
    """Whether a keyword, with this value, rules out no document."""
    if keyword in ANNOTATIONS or (keyword == "$id" and not at):
        return True
    if keyword.startswith("x-"):
        return keyword != "x-guidance"  # which says something to the library that makes the grammar
    # By type, too: in Python 0 equals False.
    return any(type(value) is type(each) and value == each for each in NEUTRAL.get(keyword, ()))


def _check_numbers(value: object, place: str) -> None:
    """Every number inside a listed value is one that is read as the same number everywhere."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, Mapping):
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)
        elif isinstance(each, int) and not _is_exact(each):
            raise _inexact(each, place)


def _check_bound(keyword: str, value: object, place: str) -> None:
    """A bound that leaves whole numbers none of the library's 64 bits is refused; any other is narrowed to them."""
    if isinstance(value, int | float):
        too_far = value >= 2**63 if keyword.endswith("inimum") else value < -(2**63)
        if too_far:
            raise ResponseFormatUnsupported(
                f"The bound {str(value)[:60]} at '{place}' is too far out: whole numbers are written in 64 bits.",
                param=FIELD,
                remedy="Ask for it as a string, or use a nearer bound.",
            )


def _is_exact(number: int) -> bool:
    """Whether a double holds it. JSON's numbers are doubles to most readers (RFC 8259, section 6)."""
    try:
        return abs(number) <= MAX_EXACT or int(float(number)) == number
    except OverflowError:
        return False


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
        pointer = "".join(f"/{escaped(str(part))}" for part in error.absolute_path)
        raise _refused(f"The schema is not valid at '{pointer}': {error.message[:300]}.")


def _check_references(schema: Mapping[str, Any] | bool, walk: _Walk) -> None:
    """Every reference leads to a schema, and none leads back to itself without going into a value."""
    for at, reference in walk.references:
        if reference.removeprefix("#") not in walk.places:
            raise _refused(f"'{at}/$ref' refers to {reference!r}, which is no schema in this document.")
    settled: set[str] = set()
    for at, _ in walk.references:
        _check_circle(schema, at, settled)


def _check_alternatives(schema: Mapping[str, Any] | bool, walk: _Walk) -> None:
    """Every ``oneOf`` is one that "any of" says as well."""
    for place, alternatives in walk.alternatives:
        if not are_told_apart(alternatives, lambda reference: _find(schema, reference.removeprefix("#"))):
            raise ResponseFormatUnsupported(
                f"Nothing tells the alternatives of 'oneOf' at '{place}' apart, so that exactly one fits cannot be "
                f"enforced; at most {MAX_ALTERNATIVES} alternatives are compared.",
                param=FIELD,
                remedy="Give every alternative a required property with a value of its own ('const'), or use 'anyOf'.",
            )


def _check_circle(schema: Mapping[str, Any] | bool, at: str, settled: set[str]) -> None:
    """Follow what applies to the same value: ``$ref``, ``anyOf`` and ``oneOf``. Iterative, as chains may be long."""
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
            for keyword in ("anyOf", "oneOf"):
                for number in range(len(found.get(keyword, ()))):
                    stack.append((f"{place}/{keyword}/{number}", False))


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


# --- refusals ---------------------------------------------------------------------------------------------------------


def _too_deep() -> ResponseFormatUnsupported:
    return _refused(f"The schema is nested more than {MAX_DEPTH} deep.")


def _inexact(number: int, place: str) -> ResponseFormatUnsupported:
    return ResponseFormatUnsupported(
        f"The number {str(number)[:60]} at '{place}' is not one that a JSON reader holds exactly: beyond {MAX_EXACT} "
        "(2 to the 53rd) not every whole number is.",
        param=FIELD,
        remedy="Ask for it as a string, with 'pattern', 'enum' or 'const'.",
    )


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
        f"$ref only into {' and '.join(_DEFS)}; of formats {', '.join(formats.KNOWN)}.",
    )


_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "prefixItems")


def with_prefix_items(schema: Any) -> Any:
    """``schema`` with every ``items`` that is a list of schemas written as ``prefixItems``, and ``additionalItems``
    beside it as ``items``: the same documents, in the words of 2020-12. All else stays as it is, in its order, and so
    does a schema with ``prefixItems`` of its own, which neither draft explains. The caller has bounded the depth.
    """
    if not isinstance(schema, Mapping):
        return schema
    tuple_here = isinstance(schema.get("items"), list) and "prefixItems" not in schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        name = keyword
        if tuple_here and keyword in ("items", "additionalItems"):
            name = "prefixItems" if keyword == "items" else "items"
        made[name] = _inside(name, value)
    return made


def _inside(keyword: str, value: Any) -> Any:
    if keyword in _NAMED and isinstance(value, Mapping):
        return {name: with_prefix_items(inner) for name, inner in value.items()}
    if keyword in _LISTED and isinstance(value, list):
        return [with_prefix_items(inner) for inner in value]
    if keyword in ("items", "additionalProperties"):
        return with_prefix_items(value)
    return value
