"""JSON schemas of answers, from the types that the engine and the routes answer with.

The rules are those of :func:`engine.wire.wire`: a dataclass is an object of its fields, a float that is not finite is
null, a time is ISO 8601, an enum is its value. The answers of ``/v1`` are TypedDicts.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence, Set
from dataclasses import Field, is_dataclass
from datetime import datetime
from enum import Enum
from inspect import cleandoc
from pathlib import PurePath
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel

from engine.wire import decides_alone, may_be_left_out, told_fields

Schema = dict[str, Any]

REF = "#/components/schemas/{model}"


class Shapes:
    """Collects the named schemas that an API's description refers to."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}
        self._types: dict[str, Any] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of values of type ``kind``; named types are collected and referred to.

        Raises ``TypeError`` for a type that has no JSON form.
        """
        if kind is Any:
            return {}
        if kind is None or kind is type(None):
            return {"type": "null"}
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            return _union([self.of(each) for each in get_args(kind)])
        if origin is Literal:
            return {"enum": list(get_args(kind))}
        if origin is NotRequired:
            return self.of(get_args(kind)[0])
        if origin is not None:
            return self._generic(kind, origin)
        return self._plain(kind)

    def _generic(self, kind: Any, origin: Any) -> Schema:
        arguments = get_args(kind)
        if issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            size = len(arguments)
            items = [self.of(each) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}
        if issubclass(origin, Sequence | Set):
            return {"type": "array", "items": self.of(arguments[0])}
        raise TypeError(f"{kind!r} has no JSON form")

    def _plain(self, kind: Any) -> Schema:
        if is_typeddict(kind) or is_dataclass(kind) or hasattr(kind, "_fields"):
            return self._object(kind)
        if not isinstance(kind, type):
            raise TypeError(f"{kind!r} has no JSON form")
        if issubclass(kind, BaseModel):
            return self.model(kind)
        if issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        for python, schema in _VALUES:
            if issubclass(kind, python):
                return dict(schema)
        raise TypeError(f"{kind!r} has no JSON form")

    def _object(self, kind: Any) -> Schema:
        name = self._name(kind)
        if name not in self.named:
            # First the name: a type may hold itself.
            self.named[name] = {}
            hints = get_type_hints(kind, include_extras=True)
            if is_typeddict(kind):
                # Not __required_keys__: with annotations kept as text it does not see NotRequired.
                required = [each for each, hint in hints.items() if get_origin(hint) is not NotRequired]
            elif not is_dataclass(kind):
                required = list(hints)
            else:
                found = told_fields(kind)
                hints = {each.name: _where_it_is_there(each, hints[each.name]) for each in found}
                required = [each.name for each in found if not may_be_left_out(each)]
            self.named[name] = {
                "type": "object",
                "description": _first_sentence(kind),
                "properties": {each: self.of(hint) for each, hint in hints.items()},
                "required": required,
                "additionalProperties": False,
            }
        return {"$ref": REF.format(model=name)}

    def model(self, kind: type[BaseModel]) -> Schema:
        """A pydantic model, as it reads what is sent."""
        name = self._name(kind)
        if name not in self.named:
            schema = kind.model_json_schema(mode="validation", ref_template=REF)
            for inner, definition in schema.pop("$defs", {}).items():
                self.named.setdefault(inner, _tidy(definition))
            self.named[name] = {**_tidy(schema), "description": _first_sentence(kind)}
        return {"$ref": REF.format(model=name)}

    def _name(self, kind: Any) -> str:
        name: str = kind.__name__.lstrip("_")
        known = self._types.setdefault(name, kind)
        if known is not kind:
            raise TypeError(f"two types are called {name}: {known.__module__} and {kind.__module__}")
        return name


_VALUES: tuple[tuple[type, Schema], ...] = (
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": ["number", "null"]}),
    (str, {"type": "string"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (PurePath, {"type": "string"}),
    (dict, {"type": "object"}),
    (list, {"type": "array"}),
)
"""A float may be null: see :func:`engine.wire.wire`."""


_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def _where_it_is_there(each: Field[Any], hint: Any) -> Any:
    """A field's type in an object that has it: what is left out while it is None is never null."""
    if not decides_alone(each) or get_origin(hint) not in (Union, types.UnionType):
        return hint
    return Union[tuple(kind for kind in get_args(hint) if kind is not type(None))]  # noqa: UP007


def _union(schemas: list[Schema]) -> Schema:
    if all(set(each) == {"type"} for each in schemas):
        found: dict[str, None] = {}
        for each in schemas:
            kinds = each["type"]
            found.update(dict.fromkeys([kinds] if isinstance(kinds, str) else kinds))
        return {"type": list(found)}
    return {"anyOf": schemas}


def _tidy(schema: Schema) -> Schema:
    """``schema`` without pydantic's titles, which only repeat the names."""
    out = {
        # Bounds behind a validator of our own come out under pydantic's names.
        _BOUNDS.get(key, key): value
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }
    for key in ("properties", "$defs", "patternProperties"):
        if isinstance(out.get(key), dict):
            out[key] = {name: _tidy(each) for name, each in out[key].items()}
    for key in ("items", "additionalProperties", "not"):
        if isinstance(out.get(key), dict):
            out[key] = _tidy(out[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(out.get(key), list):
            out[key] = [_tidy(each) for each in out[key]]
    return out


def _first_sentence(kind: Any) -> str:
    """The first paragraph of a type's text, in one line and without markup."""
    text = cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.replace("``", "`").replace(":class:", "").split())
