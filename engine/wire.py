"""Engine values as JSON has them: an answer is a frozen dataclass or a named tuple, its fields the keys of the object.

What is written here holds wherever a value leaves the program (the API, events, the details of a refusal, stored
rows); ``server/openapi/shapes.py`` reads the same dataclasses for the API's description.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import Field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeVar

T = TypeVar("T")

_DECIDES, _UNTOLD = "decides", "untold"

UNTOLD: Mapping[str, Any] = {_UNTOLD: True}
"""Metadata of a field that is for the program itself, and no part of the object."""

LEFT_OUT: Mapping[str, Any] = {_DECIDES: None}
"""Metadata of a field that the object lacks while it is None, False or an empty tuple; where it is, it is not null."""


def beside(name: str) -> Mapping[str, Any]:
    """Metadata of a field that the object has, null or not, where it has the field ``name``, which may be left out."""
    return {_DECIDES: name}


def told_fields(kind: Any) -> list[Field[Any]]:
    """The fields of a dataclass, or of a value of one, that are keys of the object."""
    return [each for each in fields(kind) if _UNTOLD not in each.metadata]


def may_be_left_out(each: Field[Any]) -> bool:
    """Whether the object may lack the field."""
    return _DECIDES in each.metadata


def decides_alone(each: Field[Any]) -> bool:
    """Whether a field that may be left out is never null where it is there."""
    return may_be_left_out(each) and each.metadata[_DECIDES] is None


def wire(value: Any) -> Any:
    """``value`` as JSON has it: objects with text keys, lists, ISO times, an enum's own value; sets rise.

    A figure that is not finite is one that could not be worked out, and becomes null: JSON has no other word for it.
    Raises ``TypeError`` for what has no JSON form.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): wire(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: wire(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple):
        return [wire(item) for item in value]
    if isinstance(value, Set):
        return [wire(item) for item in sorted(value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: wire(getattr(value, each.name)) for each in told_fields(value) if _is_there(value, each)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def made_of(kind: type[T], source: object, /, **more: Any) -> T:
    """A ``kind`` whose fields are those of ``source`` of the same name, and ``more``; what neither has is default."""
    given = {
        each.name: getattr(source, each.name)
        for each in fields(kind)  # type: ignore[arg-type]
        if each.init and each.name not in more and hasattr(source, each.name)
    }
    return kind(**given, **more)


def _is_there(value: object, each: Field[Any]) -> bool:
    if not may_be_left_out(each):
        return True
    decisive = getattr(value, each.metadata[_DECIDES] or each.name)
    return not (decisive is None or decisive is False or decisive == ())
