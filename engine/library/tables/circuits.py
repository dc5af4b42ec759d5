"""Circuits and the layers they claim."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.records import ServingMode
from engine.library.tables.base import Base, JsonColumn, UtcDateTime, word_column


class CircuitRow(Base):
    """Columns as in :class:`engine.library.records.CircuitRecord`. Several may be active."""

    __tablename__ = "circuits"
    __table_args__ = (
        CheckConstraint("rung BETWEEN 0 AND 3", name="rung"),
        CheckConstraint("is_active = (serving_mode IS NOT NULL)", name="serving"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    description: Mapped[str | None] = mapped_column(Text)
    definition: Mapped[str] = mapped_column(Text)
    rung: Mapped[int] = mapped_column(Integer)
    edge_count: Mapped[int] = mapped_column(Integer)
    layers: Mapped[list[int]] = mapped_column(JsonColumn)
    per_sae_warnings: Mapped[list[dict[str, Any]]] = mapped_column(JsonColumn)
    serveable: Mapped[bool] = mapped_column(Boolean(name="serveable", create_constraint=True))
    is_active: Mapped[bool] = mapped_column(Boolean(name="is_active", create_constraint=True))
    serving_mode: Mapped[ServingMode | None] = mapped_column(word_column(ServingMode, "serving_mode"))
    intensity: Mapped[float | None] = mapped_column(Float)
    slice_profile_id: Mapped[str | None] = mapped_column(ForeignKey("profiles.id", ondelete="SET NULL"))
    provenance: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ClaimRow(Base):
    """A layer that a circuit holds, or held until ``released_at``."""

    __tablename__ = "circuit_claims"
    __table_args__ = (
        # Of two circuits that want a layer for themselves only one gets it; the database itself holds it.
        Index(
            "uq_circuit_claims_one_holder_of_a_layer",
            "layer",
            unique=True,
            sqlite_where=text("released_at IS NULL AND composed = 0"),
        ),
        Index(
            "uq_circuit_claims_one_claim_of_a_circuit",
            "circuit_id",
            "layer",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    circuit_id: Mapped[str] = mapped_column(ForeignKey("circuits.id", ondelete="CASCADE"), index=True)
    layer: Mapped[int] = mapped_column(Integer)
    composed: Mapped[bool] = mapped_column(Boolean(name="composed", create_constraint=True))
    steering_keys: Mapped[list[int]] = mapped_column(JsonColumn)
    claimed_at: Mapped[datetime] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
