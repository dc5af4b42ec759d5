"""Records: saved comparisons, sweeps and contrasts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.tables.base import Base, JsonColumn, UtcDateTime


class ExperimentRow(Base):
    """A record; all of it is in the row, so that nothing done later changes what was seen."""

    __tablename__ = "experiments"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    title: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    prompt: Mapped[str] = mapped_column(Text)
    plain: Mapped[str] = mapped_column(Text)
    steered: Mapped[str] = mapped_column(Text)
    settings: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    steering: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    evidence: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    versions: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    plain_details: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    steered_details: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    kind: Mapped[str] = mapped_column(Text, server_default="comparison")
    content: Mapped[dict[str, Any]] = mapped_column(JsonColumn, server_default="{}")
