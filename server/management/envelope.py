"""Answers of the management API: the envelope, bare documents, and engine values as JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from quart import Response

from server import sse


@runtime_checkable
class Travelling(Protocol):
    """An engine value that says itself how it travels."""

    def as_dict(self) -> dict[str, Any]:
        """The value as JSON values."""
        ...


def success(data: Any, status: int = 200) -> Response:
    """``data`` in the envelope; engine values in it become JSON values (see :func:`wire`)."""
    return _json(sse.dump({"success": True, "data": wire(data), "error": None}), status)


def bare(value: Any) -> Response:
    """``value`` as the whole body: a document, which clients save as it comes."""
    return _json(sse.dump(value), 200)


def wire(value: Any) -> Any:
    """``value`` as JSON has it: mappings with text keys, lists, ISO times, an enum's own value.

    A figure that is not finite is one that could not be worked out, and becomes null: JSON has no other word for it.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Travelling):
        return wire(value.as_dict())
    if isinstance(value, Mapping):
        return {str(key): wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [wire(item) for item in value]
    if isinstance(value, Set):
        return [wire(item) for item in sorted(value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, PurePath):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: wire(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _json(body: bytes, status: int) -> Response:
    return Response(body, status, content_type="application/json")
