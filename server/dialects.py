"""The APIs that this server speaks. A new one is a package beside them and a line here."""

from __future__ import annotations

from engine.errors import MillmError
from server.dialect import Dialect, ErrorAnswer
from server.management.dialect import Management
from server.openai.dialect import OpenAI

OTHERS = Management()
"""Whose errors are told on a path that belongs to none."""
DIALECTS: tuple[Dialect, ...] = (OpenAI(), OTHERS)


def owner_of(path: str) -> Dialect | None:
    """The dialect that ``path`` belongs to."""
    owned = [
        (len(root), dialect)
        for dialect in DIALECTS
        for root in dialect.roots
        if path == root or path.startswith(f"{root}/")
    ]
    return max(owned, key=lambda each: each[0])[1] if owned else None


def answer_for(error: MillmError, path: str, *, while_generating: bool = False) -> ErrorAnswer:
    """``error`` as the dialect says it that ``path`` belongs to."""
    return (owner_of(path) or OTHERS).answer(error, while_generating=while_generating)
