"""Records: saved comparisons, sweeps and contrasts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.tables.base import Base, JsonText, UtcDateTime


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
    settings: Mapped[dict[str, Any]] = mapped_column(JsonText)
    steering: Mapped[dict[str, Any]] = mapped_column(JsonText)
    evidence: Mapped[dict[str, Any]] = mapped_column(JsonText)
    versions: Mapped[dict[str, Any]] = mapped_column(JsonText)
    plain_details: Mapped[dict[str, Any]] = mapped_column(JsonText)
    steered_details: Mapped[dict[str, Any]] = mapped_column(JsonText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    kind: Mapped[str] = mapped_column(Text, server_default="comparison")
    content: Mapped[dict[str, Any]] = mapped_column(JsonText, server_default="{}")
