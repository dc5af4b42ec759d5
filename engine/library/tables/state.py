"""Small values the program remembers between starts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.tables.base import Base, JsonColumn, UtcDateTime


class StateRow(Base):
    """One remembered value under its key."""

    __tablename__ = "state"

    key: Mapped[str] = mapped_column(String(100), primary_key=True)
    value: Mapped[Any] = mapped_column(JsonColumn)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
