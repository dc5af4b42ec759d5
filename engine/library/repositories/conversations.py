"""Saved conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import case, func, or_, select
from sqlalchemy.orm import Session, selectinload

from engine.errors import InvalidParameter, NotFound
from engine.library.records import PLAIN_SIDE, ConversationRecord, ConversationSummary, StoredMessage
from engine.library.rows import utc_now
from engine.library.sessions import Sessions, fold
from engine.library.tables.conversations import ConversationRow, MessageRow
from engine.library.values import may_exist, storable

ROLES = ("system", "user", "assistant")

Summaries = list[ConversationSummary]


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
        plain side of a comparison included.

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
            beside = func.json_extract(details, f"$.{PLAIN_SIDE}.content")
            inside = select(MessageRow.conversation_id).where(
                or_(*(func.instr(func.millm_fold(text), wanted) > 0 for text in (MessageRow.content, beside)))
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
                row.role, row.content, row.details = new.role, new.content, new.details
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
                position=position, role=message.role, content=storable(message.content), details=dict(message.details)
            )
        )
    return rows


def _record(row: ConversationRow) -> ConversationRecord:
    return ConversationRecord(
        id=row.id,
        title=row.title,
        system_prompt=row.system_prompt,
        messages=tuple(StoredMessage(message.role, message.content, dict(message.details)) for message in row.messages),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
