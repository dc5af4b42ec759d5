"""What is known about the features of SAEs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import Float, ForeignKey, Integer, Text, delete, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Mapped, mapped_column

from engine.errors import InvalidParameter
from engine.library.rows import Base, JsonColumn
from engine.library.saes import require_sae
from engine.library.sessions import Sessions, fold
from engine.library.values import check_whole, columns, is_storable, may_exist, storable, values_of


@dataclass(frozen=True)
class FeatureLabel:
    """What is known about one feature of an SAE.

    ``source`` says whose words ``label`` are; ``confidence`` and ``density`` (how often it fires) are 0 to 1.
    ``extra`` keeps what else the source said.
    """

    feature_idx: int
    label: str
    source: str | None = None
    confidence: float | None = None
    density: float | None = None
    max_activation: float | None = None
    top_tokens: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


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


_BATCH = 1000
"""Rows written, or indices asked for, in one statement; SQLite takes at most 32,766 values."""

_FIELDS = tuple(each.name for each in fields(FeatureLabel))


class LabelRepository:
    """Reads and writes labels, one for each feature. They go with their SAE."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def upsert(self, sae_id: str, labels: Iterable[FeatureLabel]) -> int:
        """Store labels, each in place of what its feature had: all of them, or none. Returns how many.

        Raises :class:`SaeNotFound`; :class:`InvalidParameter` for a feature that the SAE does not have.
        """
        rows = [_row(sae_id, label) for label in labels]
        statement = insert(LabelRow)
        statement = statement.on_conflict_do_update(
            index_elements=[LabelRow.sae_id, LabelRow.feature_idx],
            set_={name: statement.excluded[name] for name in _FIELDS if name != "feature_idx"},
        )
        with self._sessions.write() as session:
            d_sae = require_sae(session, sae_id).d_sae
            for row in rows:
                if d_sae is not None and row["feature_idx"] >= d_sae:
                    raise InvalidParameter(
                        f"The SAE {sae_id!r} has features 0 to {d_sae - 1}; a label is for {row['feature_idx']}.",
                        param="feature_idx",
                        details={"feature_idx": row["feature_idx"], "d_sae": d_sae},
                        remedy="Check that these labels belong to this SAE.",
                    )
            for start in range(0, len(rows), _BATCH):
                session.execute(statement, rows[start : start + _BATCH])
        return len(rows)

    def get(self, sae_id: str, feature_idx: int) -> FeatureLabel | None:
        """The label of one feature, or None."""
        return self.of(sae_id, [feature_idx]).get(feature_idx)

    def of(self, sae_id: str, indices: Collection[int]) -> dict[int, FeatureLabel]:
        """The labels of many features, by index, rising; features without one are left out."""
        if not is_storable(sae_id):
            return {}
        wanted = sorted({index for index in indices if index == 0 or may_exist(index)})
        found: dict[int, FeatureLabel] = {}
        with self._sessions.read() as session:
            for start in range(0, len(wanted), _BATCH):
                part = wanted[start : start + _BATCH]
                query = (
                    select(LabelRow)
                    .where(LabelRow.sae_id == sae_id, LabelRow.feature_idx.in_(part))
                    .order_by(LabelRow.feature_idx)
                )
                found |= {row.feature_idx: _label(row) for row in session.scalars(query)}
        return found

    def search(self, sae_id: str, text: str, *, limit: int = 50) -> list[FeatureLabel]:
        """Features whose label holds ``text``, at most ``limit``: labels that begin with it first, then by index.

        The search knows no case, in any alphabet, and no wildcards; blank text finds every labelled feature.
        """
        if not is_storable(sae_id):
            return []
        query = select(LabelRow).where(LabelRow.sae_id == sae_id)
        wanted = fold(storable(text.strip()))
        if wanted:
            place = func.instr(func.millm_fold(LabelRow.label), wanted)
            query = query.where(place > 0).order_by(place > 1)
        query = query.order_by(LabelRow.feature_idx).limit(max(limit, 0))
        with self._sessions.read() as session:
            return [_label(row) for row in session.scalars(query)]

    def count(self, sae_id: str) -> int:
        """How many features of that SAE have a label."""
        if not is_storable(sae_id):
            return 0
        with self._sessions.read() as session:
            query = select(func.count()).select_from(LabelRow).where(LabelRow.sae_id == sae_id)
            return session.scalar(query) or 0

    def clear(self, sae_id: str) -> int:
        """Remove every label of an SAE; returns how many there were. Raises :class:`SaeNotFound`."""
        with self._sessions.write() as session:
            require_sae(session, sae_id)
            count = select(func.count()).select_from(LabelRow).where(LabelRow.sae_id == sae_id)
            there = session.scalar(count) or 0
            session.execute(delete(LabelRow).where(LabelRow.sae_id == sae_id))
            return there


def _row(sae_id: str, label: FeatureLabel) -> dict[str, Any]:
    check_whole(label.feature_idx, "feature_idx")
    return {"sae_id": sae_id, **columns(values_of(label, _FIELDS))}


def _label(row: LabelRow) -> FeatureLabel:
    return FeatureLabel(**values_of(row, _FIELDS) | {"top_tokens": tuple(row.top_tokens), "extra": dict(row.extra)})
