"""Small values remembered between starts: the last model, the window's place."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import String, select
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now
from engine.library.sessions import Sessions


class StateRow(Base):
    """One remembered value under its key."""

    __tablename__ = "state"

    key: Mapped[str] = mapped_column(String(100), primary_key=True)
    value: Mapped[Any] = mapped_column(JsonColumn)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StateRepository:
    """JSON values by key (at most 100 characters). Keys are the program's own words, such as ``last_model``."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def get(self, key: str, default: Any = None) -> Any:
        """The value under ``key``; ``default`` when nothing was ever stored there."""
        with self._sessions.read() as session:
            row = session.get(StateRow, key)
            return default if row is None else row.value

    def keys(self, prefix: str) -> list[str]:
        """Every key that begins so, in order."""
        with self._sessions.read() as session:
            return list(
                session.scalars(
                    select(StateRow.key).where(StateRow.key.startswith(prefix, autoescape=True)).order_by(StateRow.key)
                )
            )

    def set(self, key: str, value: Any) -> None:
        """Remember ``value``, which must be JSON-serialisable (TypeError), in place of what was there."""
        json.dumps(value)  # so that what cannot be stored fails here, as itself
        with self._sessions.write() as session:
            session.merge(StateRow(key=key, value=value, updated_at=utc_now()))

    def remove(self, key: str) -> None:
        """Forget ``key``; harmless when it is not there."""
        with self._sessions.write() as session:
            row = session.get(StateRow, key)
            if row is not None:
                session.delete(row)
