"""The steering path of an answer that was written in several goes, as plain values. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Step = dict[str, Any]

NOT_KNOWN: Step = {
    "token": 0,
    "text": "unknown;reason=read_failed",
    "items": [{"kind": "unknown", "reason": "read_failed"}],
}
"""Of a text that was kept without word of what steered it, or only of how that ended."""


def former_steps(details: Mapping[str, Any]) -> list[Step]:
    """The path of a text that goes on: as it was kept, else one step where its report is of the whole."""
    report = details.get("steering")
    if not isinstance(report, dict):
        return [dict(NOT_KNOWN)]
    path = report.get("path")
    if isinstance(path, list) and path:
        return [dict(step) for step in path]
    if report.get("changed"):
        return [dict(NOT_KNOWN)]
    return [{"token": 0, "text": report.get("text", ""), "items": list(report.get("items", []))}]


def going_on(former: Sequence[Step], path: Sequence[Step], tokens: int) -> list[Step]:
    """``path``, of what was written after ``tokens`` tokens of the same answer, joined to the path of those.

    The text so far is read anew for it, so what steered while its prompt was read holds from its first token on.
    """
    if not former:
        return list(path)
    joined = list(former)
    read = [step for step in path if not step["token"]][-1:]
    for step in (*read, *(each for each in path if each["token"])):
        if step["items"] != joined[-1]["items"]:
            joined.append({**step, "token": tokens + max(1, step["token"])})
    return joined
