"""Answers of the management API: the envelope, and bare documents."""

from __future__ import annotations

from typing import Any

from quart import Response

from engine.wire import wire
from server import sse


def success(data: Any, status: int = 200) -> Response:
    """``data`` in the envelope; engine values in it become JSON values (see :func:`engine.wire.wire`)."""
    return _json(sse.dump({"success": True, "data": wire(data), "error": None}), status)


def bare(value: Any) -> Response:
    """``value`` as the whole body: a document, which clients save as it comes."""
    return _json(sse.dump(value), 200)


def _json(body: bytes, status: int) -> Response:
    return Response(body, status, content_type="application/json")
