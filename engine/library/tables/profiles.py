"""Profiles and clusters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Float, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.records import ProfileKind
from engine.library.tables.base import Base, JsonColumn, UtcDateTime, word_column


class ProfileRow(Base):
    """Columns as in :class:`engine.library.records.ProfileRecord`."""

    __tablename__ = "profiles"
    __table_args__ = (
        # At most one profile is active; the database itself holds it, whatever two threads do.
        Index("uq_profiles_the_active_one", "is_active", unique=True, sqlite_where=text("is_active = 1")),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    description: Mapped[str | None] = mapped_column(Text)
    model_id: Mapped[str | None] = mapped_column(Text)
    # No reference to a row: a profile may name an SAE that is not here, or no longer.
    sae_id: Mapped[str | None] = mapped_column(Text)
    layer: Mapped[int | None] = mapped_column(Integer)
    steering: Mapped[dict[str, float]] = mapped_column(JsonColumn)
    is_active: Mapped[bool] = mapped_column(Boolean(name="is_active", create_constraint=True))
    source_kind: Mapped[ProfileKind] = mapped_column(word_column(ProfileKind, "source_kind"))
    intensity: Mapped[float] = mapped_column(Float)
    sensing_enabled: Mapped[bool] = mapped_column(Boolean(name="sensing_enabled", create_constraint=True))
    cluster_meta: Mapped[str | None] = mapped_column(Text)
    bound: Mapped[bool] = mapped_column(Boolean(name="bound", create_constraint=True))
    warnings: Mapped[list[str]] = mapped_column(JsonColumn)
    hub_ref: Mapped[dict[str, Any] | None] = mapped_column(JsonColumn, nullable=False)
    extras: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
