"""SAEs, the labels of their features, and saved sets of SAEs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, CheckConstraint, Float, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.records import SaeSource, SaeStatus
from engine.library.tables.base import Base, JsonColumn, UtcDateTime, word_column


class SaeRow(Base):
    """Columns as in :class:`engine.library.records.SaeRecord`."""

    __tablename__ = "saes"
    __table_args__ = (
        # The id names a folder and stands in URLs.
        CheckConstraint("length(id) BETWEEN 1 AND 100 AND id NOT GLOB '*[^-A-Za-z0-9._@]*'", name="id"),
    )

    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    repository_id: Mapped[str | None] = mapped_column(String(255))
    revision: Mapped[str | None] = mapped_column(String(100))
    source: Mapped[SaeSource] = mapped_column(word_column(SaeSource, "source"))
    format: Mapped[str | None] = mapped_column(String(32))
    architecture: Mapped[str | None] = mapped_column(String(32))
    d_in: Mapped[int | None] = mapped_column(Integer)
    d_sae: Mapped[int | None] = mapped_column(Integer)
    k: Mapped[int | None] = mapped_column(Integer)
    trained_on: Mapped[str | None] = mapped_column(Text)
    trained_layer: Mapped[int | None] = mapped_column(Integer)
    hook_name: Mapped[str | None] = mapped_column(Text)
    width: Mapped[str | None] = mapped_column(String(32))
    average_l0: Mapped[float | None] = mapped_column(Float)
    source_l0: Mapped[float | None] = mapped_column(Float)
    source_variance_explained: Mapped[float | None] = mapped_column(Float)
    measured_l0: Mapped[float | None] = mapped_column(Float)
    measured_variance_explained: Mapped[float | None] = mapped_column(Float)
    measured_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    dead_share: Mapped[float | None] = mapped_column(Float)
    file_size_bytes: Mapped[int | None] = mapped_column(Integer)
    local_path: Mapped[str | None] = mapped_column(Text)
    copied: Mapped[bool] = mapped_column(Boolean(name="copied", create_constraint=True))
    # Not unique: two revisions on a hub may hold the same bytes and are two SAEs all the same.
    files_sha256: Mapped[str | None] = mapped_column(String(64), index=True)
    dtype: Mapped[str | None] = mapped_column(String(32))
    normalize_activations: Mapped[str | None] = mapped_column(String(64))
    apply_b_dec_to_input: Mapped[bool | None] = mapped_column(
        Boolean(name="apply_b_dec_to_input", create_constraint=True)
    )
    assumed: Mapped[list[str]] = mapped_column(JsonColumn)
    config: Mapped[dict[str, Any]] = mapped_column(JsonColumn)
    status: Mapped[SaeStatus] = mapped_column(word_column(SaeStatus, "status"))
    error_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class LabelRow(Base):
    """What is known about one feature; goes with its SAE. Read by its key, so it needs no row number of its own."""

    __tablename__ = "sae_labels"
    __table_args__ = ({"sqlite_with_rowid": False},)

    sae_id: Mapped[str] = mapped_column(ForeignKey("saes.id", ondelete="CASCADE"), primary_key=True)
    feature_idx: Mapped[int] = mapped_column(Integer, primary_key=True)
    label: Mapped[str] = mapped_column(Text)
    source: Mapped[str | None] = mapped_column(Text)
    confidence: Mapped[float | None] = mapped_column(Float)
    density: Mapped[float | None] = mapped_column(Float)
    max_activation: Mapped[float | None] = mapped_column(Float)
    top_tokens: Mapped[list[str]] = mapped_column(JsonColumn)
    extra: Mapped[dict[str, Any]] = mapped_column(JsonColumn)


class AttachSetRow(Base):
    """A named set of SAEs with their layers."""

    __tablename__ = "attach_sets"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    items: Mapped[list[dict[str, Any]]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
