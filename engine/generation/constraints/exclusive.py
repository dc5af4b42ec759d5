"""Whether the alternatives of a ``oneOf`` are told apart, so that no value fits two of them.

They are when every two of them differ in the types they allow, in the values they list, or in a property that both
require and for which they list different values (a discriminator). Then "exactly one" says what "any of" says, and can
be enforced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_ALTERNATIVES = 256
"""Alternatives of one ``oneOf``; each is held against each."""

TYPES = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})

Resolve = Callable[[str], object]


@dataclass(frozen=True)
class _Shape:
    """What is known of every value that fits a schema without alternatives of its own.

    Attributes:
        types: The types it may have; a whole number is ``integer``, any other ``number``.
        values: What it may be, each as :func:`_canonical` has it, where values are listed.
        tags: Properties that it has if it is an object, with the values listed for each.
    """

    types: frozenset[str]
    values: frozenset[str] | None
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)


def are_told_apart(alternatives: Sequence[object], resolve: Resolve) -> bool:
    """Whether no value fits two of ``alternatives``, as far as this can tell.

    Args:
        resolve: The schema that a reference names, or None.
    """
    if len(alternatives) > MAX_ALTERNATIVES:
        return False
    shapes = []
    for each in alternatives:
        found = list(_shapes(each, resolve, frozenset()))
        if len(found) > MAX_ALTERNATIVES:
            return False
        shapes.append(found)
    return all(
        _differ(left, right)
        for number, first in enumerate(shapes)
        for second in shapes[number + 1 :]
        for left in first
        for right in second
    )


def _shapes(schema: object, resolve: Resolve, following: frozenset[str]) -> Iterator[_Shape]:
    """The shapes of a schema: one, or one for each alternative inside it."""
    if not isinstance(schema, Mapping):
        yield _Shape(frozenset() if schema is False else TYPES, None)
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        # What stands beside a reference only narrows it.
        if reference not in following:
            yield from _shapes(resolve(reference), resolve, following | {reference})
        return
    own = _own_shape(schema, resolve)
    inside = schema.get("oneOf", schema.get("anyOf"))
    if not isinstance(inside, list):
        yield own
        return
    for each in inside:
        for shape in _shapes(each, resolve, following):
            yield _Shape(shape.types & own.types, shape.values or own.values, {**own.tags, **shape.tags})


def _own_shape(schema: Mapping[str, Any], resolve: Resolve) -> _Shape:
    listed = schema.get("type", sorted(TYPES))
    types = frozenset([listed] if isinstance(listed, str) else listed)
    types = types | {"integer"} if "number" in types else types
    properties = schema.get("properties", {})
    tags = {}
    for name in schema.get("required", ()):
        values = _listed(properties.get(name), resolve)
        if values is not None:
            tags[name] = values
    return _Shape(types, _listed(schema, resolve), tags)


def _listed(schema: object, resolve: Resolve) -> frozenset[str] | None:
    """The values a schema lists, through a reference too; None where it lists none."""
    if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        schema = resolve(schema["$ref"])
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return frozenset([_canonical(schema["const"])])
    if "enum" in schema:
        return frozenset(_canonical(each) for each in schema["enum"])
    return None


def _differ(left: _Shape, right: _Shape) -> bool:
    if left.values is not None and right.values is not None and not left.values & right.values:
        return True
    common = left.types & right.types
    if common - {"object"}:
        return False
    return not common or any(not values & right.tags[name] for name, values in left.tags.items() if name in right.tags)


def _canonical(value: object) -> str:
    """A text that is equal for values that JSON Schema calls equal: 1 and 1.0 are, true and 1 are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{json.dumps(key)}:{_canonical(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_canonical(each) for each in value) + "]"
    return json.dumps(value)
