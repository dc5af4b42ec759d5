"""The model shelf: one row per model the program knows, wherever its files are."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Float, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from engine.library.records import EngineKind, ModelSource, ModelStatus
from engine.library.tables.base import Base, UtcDateTime, word_column


class ModelRow(Base):
    """Columns as in :class:`engine.library.records.ModelRecord`."""

    __tablename__ = "models"
    __table_args__ = (
        # At most one model is locked for steering; the database itself holds it, whatever two threads do.
        Index("uq_models_the_locked_one", "locked", unique=True, sqlite_where=text("locked = 1")),
        # Without AUTOINCREMENT the id of a removed row is given out again, and an old window would act on another
        # model.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    source: Mapped[ModelSource] = mapped_column(word_column(ModelSource, "source"))
    engine: Mapped[EngineKind] = mapped_column(word_column(EngineKind, "engine"))
    repo_id: Mapped[str | None] = mapped_column(String(255))
    local_path: Mapped[str | None] = mapped_column(Text, index=True)
    params: Mapped[int | None] = mapped_column(Integer)
    architecture: Mapped[str | None] = mapped_column(Text)
    quantization: Mapped[str | None] = mapped_column(String(8))
    gguf_label: Mapped[str | None] = mapped_column(String(64))
    revision: Mapped[str | None] = mapped_column(String(100))
    pipeline_tag: Mapped[str | None] = mapped_column(String(64))
    context_length: Mapped[int | None] = mapped_column(Integer)
    has_chat_template: Mapped[bool | None] = mapped_column(Boolean)
    disk_size_mb: Mapped[float | None] = mapped_column(Float)
    estimated_memory_mb: Mapped[float | None] = mapped_column(Float)
    trust_remote_code: Mapped[bool] = mapped_column(Boolean(name="trust_remote_code", create_constraint=True))
    status: Mapped[ModelStatus] = mapped_column(word_column(ModelStatus, "status"))
    error_message: Mapped[str | None] = mapped_column(Text)
    locked: Mapped[bool] = mapped_column(Boolean(name="locked", create_constraint=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    loaded_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
