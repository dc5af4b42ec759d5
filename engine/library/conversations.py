"""Saved conversations: what is handed out, how it lies in the database, and what reads and writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import CheckConstraint, ForeignKey, Integer, String, Text, UniqueConstraint, case, func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship, selectinload

from engine.errors import InvalidParameter, NotFound
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now
from engine.library.sessions import Sessions, fold
from engine.library.values import may_exist, storable

ROLES = ("system", "user", "assistant")

PLAIN_SIDE: Final = "plain"
"""Where the details of an answer keep the one written beside it in a comparison: ``{"content": …, "reasoning": …,
"details": {…}}``; ``reasoning`` where there is any."""


CUT_OFF: Final = "interrupted"
"""Why an answer ended that is kept while it is written: it is found like this where the program ended before it did."""


@dataclass(frozen=True)
class StoredMessage:
    """One message of a saved conversation. ``role`` is system, user or assistant.

    ``details`` holds what the window knew when it was written (model, sampling, finish reason, token counts);
    ``reasoning`` is what the model wrote before the answer, which is no part of ``content``.
    """

    role: str
    content: str
    details: dict[str, object]
    reasoning: str = ""


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


Summaries = list[ConversationSummary]


class ConversationRow(Base):
    """A conversation; its messages go with it when it is removed."""

    __tablename__ = "conversations"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    system_prompt: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    messages: Mapped[list[MessageRow]] = relationship(
        order_by="MessageRow.position", cascade="all, delete-orphan", passive_deletes=True
    )


class MessageRow(Base):
    """One message; ``position`` counts from 0 within its conversation."""

    __tablename__ = "messages"
    __table_args__ = (
        UniqueConstraint("conversation_id", "position"),
        CheckConstraint("role IN ('system', 'user', 'assistant')", name="role"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    conversation_id: Mapped[int] = mapped_column(ForeignKey("conversations.id", ondelete="CASCADE"))
    position: Mapped[int] = mapped_column(Integer)
    role: Mapped[str] = mapped_column(String(16))
    content: Mapped[str] = mapped_column(Text)
    details: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    reasoning: Mapped[str] = mapped_column(Text, server_default="")


class ConversationRepository:
    """Reads and writes conversations with their messages. Lone surrogates in a text are stored as U+FFFD."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def create(self, title: str, system_prompt: str = "", messages: Sequence[StoredMessage] = ()) -> ConversationRecord:
        """Save a conversation. Raises :class:`InvalidParameter` for an unknown role or details that are not JSON."""
        rows = _message_rows(messages)
        now = utc_now()
        with self._sessions.write() as session:
            row = ConversationRow(
                title=storable(title), system_prompt=storable(system_prompt), created_at=now, updated_at=now
            )
            row.messages = rows
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, conversation_id: int) -> ConversationRecord | None:
        """The conversation with this id, or None."""
        with self._sessions.read() as session:
            row = _find(session, conversation_id)
            return None if row is None else _record(row)

    def list(self, search: str | None = None) -> Summaries:
        """Every conversation, last changed first; with ``search``, those whose title or a message holds that text, the
        reasoning and the plain side of a comparison included.

        The search knows no case, in any alphabet, and no wildcards; blank text finds everything.
        """
        counts = (
            select(func.count())
            .where(MessageRow.conversation_id == ConversationRow.id)
            .correlate(ConversationRow)
            .scalar_subquery()
        )
        query = select(ConversationRow.id, ConversationRow.title, ConversationRow.updated_at, counts).order_by(
            ConversationRow.updated_at.desc(), ConversationRow.id.desc()
        )
        wanted = fold(storable(search.strip())) if search else ""
        if wanted:
            # SQLite refuses what is not strictly JSON, as a NaN among the figures would be.
            details = case((func.json_valid(MessageRow.details) == 1, MessageRow.details))
            beside = [func.json_extract(details, f"$.{PLAIN_SIDE}.{name}") for name in ("content", "reasoning")]
            texts = (MessageRow.content, MessageRow.reasoning, *beside)
            inside = select(MessageRow.conversation_id).where(
                or_(*(func.instr(func.millm_fold(text), wanted) > 0 for text in texts))
            )
            query = query.where(
                or_(func.instr(func.millm_fold(ConversationRow.title), wanted) > 0, ConversationRow.id.in_(inside))
            )
        with self._sessions.read() as session:
            return [ConversationSummary(*row) for row in session.execute(query)]

    def replace(
        self,
        conversation_id: int,
        *,
        title: str | None = None,
        system_prompt: str | None = None,
        messages: Sequence[StoredMessage] | None = None,
    ) -> ConversationRecord:
        """Change what is given and keep the rest; ``messages`` takes the place of all that were there.

        Raises :class:`NotFound` for a missing conversation, :class:`InvalidParameter` as :meth:`create` does.
        """
        rows = None if messages is None else _message_rows(messages)
        with self._sessions.write() as session:
            row = _require(session, conversation_id)
            if title is not None:
                row.title = storable(title)
            if system_prompt is not None:
                row.system_prompt = storable(system_prompt)
            if rows is not None:
                # The old rows must be gone before the new ones take their positions.
                row.messages = []
                session.flush()
                row.messages = rows
            row.updated_at = utc_now()
            session.flush()
            return _record(row)

    def put_message(self, conversation_id: int, position: int, message: StoredMessage) -> None:
        """Write the message at ``position``, over the one that is there; for an answer that grows, whose conversation
        is not written anew each time.

        Raises :class:`NotFound` for a missing conversation, :class:`InvalidParameter` as :meth:`create` does.
        """
        (new,) = _message_rows([message])
        with self._sessions.write() as session:
            conversation = _require(session, conversation_id)
            row = next((each for each in conversation.messages if each.position == position), None)
            if row is None:
                new.position = position
                conversation.messages.append(new)
            else:
                row.role, row.content, row.details, row.reasoning = new.role, new.content, new.details, new.reasoning
            conversation.updated_at = utc_now()

    def remove(self, conversation_id: int) -> None:
        """Delete a conversation and its messages. Raises :class:`NotFound` for a missing one."""
        with self._sessions.write() as session:
            session.delete(_require(session, conversation_id))


def _find(session: Session, conversation_id: int) -> ConversationRow | None:
    if not may_exist(conversation_id):
        return None
    return session.get(ConversationRow, conversation_id, options=[selectinload(ConversationRow.messages)])


def _require(session: Session, conversation_id: int) -> ConversationRow:
    row = _find(session, conversation_id)
    if row is None:
        raise NotFound(
            f"There is no conversation with the id {conversation_id}.",
            remedy="It may have been deleted; list the conversations to see which there are.",
        )
    return row


def _message_rows(messages: Sequence[StoredMessage]) -> list[MessageRow]:
    rows = []
    for position, message in enumerate(messages):
        if message.role not in ROLES:
            raise InvalidParameter(
                f"A saved message cannot have the role {message.role!r}; it is one of {', '.join(ROLES)}.",
                param=f"messages.{position}.role",
            )
        try:
            json.dumps(message.details)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParameter(
                f"The details of a saved message must be JSON values: {error}.", param=f"messages.{position}.details"
            ) from error
        rows.append(
            MessageRow(
                position=position,
                role=message.role,
                content=storable(message.content),
                details=dict(message.details),
                reasoning=storable(message.reasoning),
            )
        )
    return rows


def _record(row: ConversationRow) -> ConversationRecord:
    return ConversationRecord(
        id=row.id,
        title=row.title,
        system_prompt=row.system_prompt,
        messages=tuple(StoredMessage(m.role, m.content, dict(m.details), m.reasoning) for m in row.messages),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
