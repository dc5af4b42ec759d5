"""Server-sent events: one frame a JSON object, as OpenAI's clients read them."""

from __future__ import annotations

import json
from typing import Any

_ESCAPED = "backslashreplace"
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment; clients skip it, proxies see traffic."""

HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def frame(value: dict[str, Any]) -> bytes:
    """``value`` as one event."""
    return b"data: " + dump(value) + b"\n\n"


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8. Raises ``ValueError`` for a NaN, which no JSON reader would take.

    Half a surrogate pair, as Python puts into the name of a file that is no UTF-8, is written as JSON's own escape.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", _ESCAPED)
