"""The model shelf: one row per model the program knows, wherever its files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Boolean, Float, Index, Integer, String, Text, select, text, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from engine.errors import ModelAlreadyExists, ModelLocked, ModelNotFound
from engine.library.rows import Base, UtcDateTime, utc_now, word_column
from engine.library.sessions import Sessions
from engine.library.values import is_storable, may_exist, refuse_unknown, values_of


class ModelStatus(StrEnum):
    """Where a model stands; ``loading`` and ``loaded`` are never true after a restart."""

    DOWNLOADING = "downloading"
    READY = "ready"
    LOADING = "loading"
    LOADED = "loaded"
    ERROR = "error"


class ModelSource(StrEnum):
    """Where a model came from."""

    HUGGINGFACE = "huggingface"
    LOCAL = "local"
    DEMO = "demo"


class EngineKind(StrEnum):
    """Which backend runs it."""

    TRANSFORMERS = "transformers"
    LLAMACPP = "llamacpp"


@dataclass(frozen=True)
class ModelRecord:
    """One row of the model shelf. Sizes are in MB (10⁶ bytes); times are UTC.

    ``quantization`` is one of FP32, FP16, Q8, Q4, Q2 or None for the checkpoint's own format; ``gguf_label`` is a
    GGUF's exact tag (``Q4_1``). ``local_path`` is the checkpoint folder or the GGUF file. ``has_chat_template`` is None
    where nobody has looked yet. A new one is made without what the library fills in: ``id``, the times, ``locked``.
    """

    name: str
    source: ModelSource
    engine: EngineKind
    local_path: str | None = None
    repo_id: str | None = None
    params: int | None = None
    architecture: str | None = None
    quantization: str | None = None
    gguf_label: str | None = None
    revision: str | None = None
    pipeline_tag: str | None = None
    context_length: int | None = None
    has_chat_template: bool | None = None
    disk_size_mb: float | None = None
    estimated_memory_mb: float | None = None
    trust_remote_code: bool = False
    status: ModelStatus = ModelStatus.READY
    error_message: str | None = None
    locked: bool = False
    id: int = 0
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    loaded_at: datetime | None = None
    last_used_at: datetime | None = None


class ModelRow(Base):
    """Columns as in :class:`ModelRecord`."""

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


INTERRUPTED = "The download was interrupted when the program ended."

_NAMES = frozenset(each.name for each in fields(ModelRecord))
_CHANGEABLE = _NAMES - {"id", "created_at", "updated_at"}
_GIVEN = _CHANGEABLE - {"error_message", "locked", "loaded_at", "last_used_at"}
"""What an import knows of a model before it has a row."""

ModelRecords = list[ModelRecord]


class ModelRepository:
    """Reads and writes models. A missing row is None when asked for and :class:`ModelNotFound` when changed."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(self, new: ModelRecord) -> ModelRecord:
        """Store a model. Raises :class:`ModelAlreadyExists` (``details['existing_model_id']``) for a name or place
        taken.
        """
        with self._sessions.write() as session:
            _refuse_same_place(session, new)
            _refuse_same_name(session, new.name)
            now = utc_now()
            row = ModelRow(**values_of(new, _GIVEN), locked=False, created_at=now, updated_at=now)
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, model_id: int) -> ModelRecord | None:
        """The model with this id, or None."""
        if not may_exist(model_id):
            return None
        with self._sessions.read() as session:
            row = session.get(ModelRow, model_id)
            return None if row is None else _record(row)

    def by_name(self, name: str) -> ModelRecord | None:
        """The model of exactly this name, case included, or None."""
        if not is_storable(name):
            return None
        with self._sessions.read() as session:
            row = session.scalar(select(ModelRow).where(ModelRow.name == name))
            return None if row is None else _record(row)

    def list(self) -> ModelRecords:
        """Every model, newest first."""
        with self._sessions.read() as session:
            return [_record(row) for row in session.scalars(select(ModelRow).order_by(ModelRow.id.desc()))]

    def last_used(self) -> ModelRecord | None:
        """The model that was loaded or answered last, or None when none ever was."""
        query = (
            select(ModelRow)
            .where(ModelRow.last_used_at.is_not(None))
            .order_by(ModelRow.last_used_at.desc(), ModelRow.id.desc())
            .limit(1)
        )
        with self._sessions.read() as session:
            row = session.scalar(query)
            return None if row is None else _record(row)

    def set_status(self, model_id: int, status: ModelStatus, *, error_message: str | None = None) -> ModelRecord:
        """Move a model to ``status`` and replace its error message. ``LOADED`` stamps ``loaded_at`` and
        ``last_used_at``.
        """

        def change(_session: Session, row: ModelRow) -> None:
            row.status = status
            row.error_message = error_message
            if status is ModelStatus.LOADED:
                row.loaded_at = row.last_used_at = utc_now()

        return self._change(model_id, change)

    def update(self, model_id: int, **changes: object) -> ModelRecord:
        """Set fields of :class:`ModelRecord` by name.

        Raises :class:`ModelAlreadyExists` for a name that is taken, :class:`ModelLocked` when another model holds the
        lock, TypeError for a field that does not exist or is not the caller's to set.
        """
        refuse_unknown(changes, _CHANGEABLE, "a model")

        def change(session: Session, row: ModelRow) -> None:
            name = changes.get("name")
            if isinstance(name, str) and name != row.name:
                _refuse_same_name(session, name)
            if changes.get("locked"):
                _refuse_second_lock(session, model_id)
            for key, value in changes.items():
                setattr(row, key, value)

        return self._change(model_id, change)

    def touch(self, model_id: int) -> None:
        """Note that the model was used just now."""
        with self._sessions.write() as session:
            _require(session, model_id).last_used_at = utc_now()

    def remove(self, model_id: int) -> None:
        """Forget a model; its files stay. Its id is never given out again."""
        with self._sessions.write() as session:
            session.delete(_require(session, model_id))

    def reset_after_restart(self) -> None:
        """Put right what no start can be true of: nothing is loaded, loading, downloading or locked yet."""
        now = utc_now()
        with self._sessions.write() as session:
            session.execute(
                update(ModelRow)
                .where(ModelRow.status.in_([ModelStatus.LOADING, ModelStatus.LOADED]))
                .values(status=ModelStatus.READY, updated_at=now)
            )
            session.execute(
                update(ModelRow)
                .where(ModelRow.status == ModelStatus.DOWNLOADING)
                .values(status=ModelStatus.ERROR, error_message=INTERRUPTED, updated_at=now)
            )
            session.execute(update(ModelRow).where(ModelRow.locked).values(locked=False, updated_at=now))

    def _change(self, model_id: int, change: Callable[[Session, ModelRow], None]) -> ModelRecord:
        with self._sessions.write() as session:
            row = _require(session, model_id)
            change(session, row)
            row.updated_at = utc_now()
            session.flush()
            return _record(row)


def _require(session: Session, model_id: int) -> ModelRow:
    row = session.get(ModelRow, model_id) if may_exist(model_id) else None
    if row is None:
        raise ModelNotFound(
            f"There is no model with the id {model_id}.", param="model", remedy="List the models to see their ids."
        )
    return row


def _refuse_same_name(session: Session, name: str) -> None:
    taken = session.scalar(select(ModelRow).where(ModelRow.name == name))
    if taken is not None:
        raise ModelAlreadyExists(
            f"The library has a model named {name!r} already.",
            param="custom_name",
            details={"existing_model_id": taken.id, "existing_name": taken.name},
            remedy="Give this one another name.",
        )


def _refuse_same_place(session: Session, new: ModelRecord) -> None:
    if new.local_path is None:
        return
    taken = session.scalar(
        select(ModelRow).where(
            ModelRow.local_path == new.local_path,
            # One folder may stand for several rows that differ in how it is loaded.
            ModelRow.quantization.is_not_distinct_from(new.quantization),
            ModelRow.gguf_label.is_not_distinct_from(new.gguf_label),
        )
    )
    if taken is not None:
        raise ModelAlreadyExists(
            f"{new.local_path} is in the library already, as {taken.name!r}.",
            param="local_path",
            details={"existing_model_id": taken.id, "existing_name": taken.name},
            remedy="Use that model, or remove it from the library first.",
        )


def _refuse_second_lock(session: Session, model_id: int) -> None:
    holder = session.scalar(select(ModelRow).where(ModelRow.locked, ModelRow.id != model_id))
    if holder is not None:
        raise ModelLocked(
            f"The model {holder.name!r} is locked for steering, and only one can be.",
            param="model",
            details={"locked_model_id": holder.id, "locked_model_name": holder.name},
            remedy=f"Unlock {holder.name!r} first.",
        )


def _record(row: ModelRow) -> ModelRecord:
    return ModelRecord(**values_of(row, _NAMES))
