"""Saved conversations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

PLAIN_SIDE: Final = "plain"
"""Where the details of an answer keep the one written beside it in a comparison: ``{"content": …, "details": {…}}``."""


CUT_OFF: Final = "interrupted"
"""Why an answer ended that is kept while it is written: it is found like this where the program ended before it did."""


@dataclass(frozen=True)
class StoredMessage:
    """One message of a saved conversation. ``role`` is system, user or assistant.

    ``details`` holds what the window knew when it was written (model, sampling, finish reason, token counts).
    """

    role: str
    content: str
    details: dict[str, object]


@dataclass(frozen=True)
class ConversationRecord:
    """A saved conversation; ``messages`` in order."""

    id: int
    title: str
    system_prompt: str
    messages: tuple[StoredMessage, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class ConversationSummary:
    """A conversation without its messages, for lists."""

    id: int
    title: str
    updated_at: datetime
    message_count: int
