"""Tuples as JSON Schema wrote them before 2020-12, and as many generators still do: ``items`` as a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
