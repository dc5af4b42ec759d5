"""A schema as it is enforced: what people wrote, said in fewer keywords, without what no finite document can reach.

The same schema makes the grammar and checks the finished document. Pure; takes schemas that ``keywords`` has accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.generation.constraints import formats

_NAMED = ("properties", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")

_KEPT = frozenset(
    {"type", "required", "minItems", "maxItems", "enum", "const", "$ref", "pattern", "minLength", "maxLength"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)
"""Keywords that stay as they are."""


def enforced(schema: Mapping[str, Any] | bool) -> Mapping[str, Any] | bool:
    """``schema`` with the same finite documents: annotations are left out, ``format`` is written as a pattern or as
    bounds, ``oneOf`` as ``anyOf``, and what only endless documents could fit is false. False where no document fits.
    """
    return _Rewriting(schema, _Finite(schema)).schema(schema, "")


def schemas_in(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, str, object]]:
    """(keyword, JSON pointer, schema) of each schema directly inside ``schema``, which is at ``at``."""
    for keyword in _NAMED:
        for name, inner in schema.get(keyword, {}).items():
            yield keyword, f"{at}/{keyword}/{escaped(name)}", inner
    for keyword in _LISTED:
        for number, inner in enumerate(schema.get(keyword, ())):
            yield keyword, f"{at}/{keyword}/{number}", inner
    for keyword in _SINGLE:
        if keyword in schema:
            yield keyword, f"{at}/{keyword}", schema[keyword]


def escaped(name: str) -> str:
    """A name as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


@dataclass
class _Node:
    """Something that is reachable when enough of what it needs is: all of it, or any of it."""

    missing: int
    waited_for_by: list[_Node] = field(default_factory=list)


class _Finite:
    """Which parts of a schema a finite document can fit, by pointer.

    A least fixed point over "needs all of" and "needs one of", in linear time (Dowling and Gallier, 1984). What else
    makes a schema impossible (bounds that cross, types that exclude each other) is the constraint library's to refuse.
    """

    def __init__(self, schema: object) -> None:
        self._nodes: dict[str, _Node] = {}
        self._ready: list[_Node] = []
        self._read(schema, "")
        while self._ready:
            for above in self._ready.pop().waited_for_by:
                above.missing -= 1
                if above.missing == 0:
                    self._ready.append(above)

    def __contains__(self, at: str) -> bool:
        return self._nodes[at].missing <= 0

    def _read(self, schema: object, at: str) -> None:
        node = self._node(at)
        if not isinstance(schema, Mapping):
            self._needs_all(node, [] if schema is not False else [_Node(1)])
            return
        for _, place, inner in schemas_in(schema, at):
            self._read(inner, place)
        needs = []
        if "$ref" in schema:
            needs.append(self._node(schema["$ref"].removeprefix("#")))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                needs.append(self._any_of([self._node(f"{at}/{keyword}/{n}") for n in range(len(schema[keyword]))]))
        own = self._own(schema, at)
        if own is not None:
            needs.append(own)
        self._needs_all(node, needs)

    def _own(self, schema: Mapping[str, Any], at: str) -> _Node | None:
        """What values of its own types need; None where some need nothing."""
        listed = schema.get("type")
        types = {listed} if isinstance(listed, str) else set(listed or ("null",))
        if "const" in schema or "enum" in schema or types - {"object", "array"}:
            return None
        choices = []
        if "object" in types:
            choices.append(self._all_of([self._property(schema, at, name) for name in schema.get("required", ())]))
        if "array" in types:
            first = len(schema.get("prefixItems", ()))
            least = int(schema.get("minItems", 0))
            places = [f"{at}/prefixItems/{n}" for n in range(min(first, least))]
            if least > first and "items" in schema:
                places.append(f"{at}/items")
            choices.append(self._all_of([self._node(place) for place in places]))
        return self._any_of(choices)

    def _property(self, schema: Mapping[str, Any], at: str, name: str) -> _Node:
        if name in schema.get("properties", {}):
            return self._node(f"{at}/properties/{escaped(name)}")
        return self._node(f"{at}/additionalProperties") if "additionalProperties" in schema else self._all_of([])

    def _node(self, at: str) -> _Node:
        return self._nodes.setdefault(at, _Node(1))

    def _needs_all(self, node: _Node, needs: list[_Node]) -> None:
        node.missing = len(needs)
        for each in needs:
            each.waited_for_by.append(node)
        if not needs:
            self._ready.append(node)

    def _all_of(self, needs: list[_Node]) -> _Node:
        node = _Node(0)
        self._needs_all(node, needs)
        return node

    def _any_of(self, choices: list[_Node]) -> _Node:
        node = _Node(1)
        for each in choices:
            each.waited_for_by.append(node)
        return node


class _Rewriting:
    """Writes the schema anew; a reference into what has moved follows it."""

    def __init__(self, schema: object, finite: _Finite) -> None:
        self._finite = finite
        self._moved: dict[str, str] = {}
        self._place(schema, "", "")

    def _place(self, schema: object, at: str, now_at: str) -> None:
        self._moved[at] = now_at
        if isinstance(schema, Mapping):
            for keyword, place, inner in schemas_in(schema, at):
                now = place[len(at) :]
                if keyword == "oneOf":
                    now = f"/{'allOf/0/' if 'anyOf' in schema else ''}anyOf{now.removeprefix('/oneOf')}"
                self._place(inner, place, now_at + now)

    def schema(self, schema: object, at: str) -> Any:
        """What the schema at ``at`` has become."""
        if at not in self._finite:
            return False
        if not isinstance(schema, Mapping):
            return schema
        made: dict[str, Any] = {key: value for key, value in schema.items() if key in _KEPT}
        also: list[dict[str, Any]] = []
        for keyword in (*_NAMED, *_LISTED, *_SINGLE):
            if keyword in schema:
                _add(made, also, self._inside(keyword, schema[keyword], f"{at}/{keyword}"))
        if "format" in schema:
            _add(made, also, formats.as_schema(schema["format"]))
        if "$ref" in schema:
            made["$ref"] = "#" + self._moved[schema["$ref"].removeprefix("#")]
        return {**made, "allOf": also} if also else made

    def _inside(self, keyword: str, value: Any, at: str) -> dict[str, Any]:
        if keyword in _NAMED:
            return {keyword: {name: self.schema(inner, f"{at}/{escaped(name)}") for name, inner in value.items()}}
        if keyword in _LISTED:
            made = [self.schema(inner, f"{at}/{number}") for number, inner in enumerate(value)]
            return {"anyOf" if keyword == "oneOf" else keyword: made}
        return {keyword: self.schema(value, at)}


def _add(made: dict[str, Any], also: list[dict[str, Any]], extra: dict[str, Any]) -> None:
    """Add keywords; beside those that are there already, where a schema cannot hold both."""
    if extra.keys() & made.keys():
        also.append(extra)
    else:
        made.update(extra)
