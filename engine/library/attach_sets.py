"""Named sets of SAEs to attach together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Text, func, select
from sqlalchemy.orm import Mapped, mapped_column

from engine.errors import InvalidParameter, NotFound
from engine.library.names import SET_NAME_LIMIT
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now
from engine.library.sessions import Sessions
from engine.library.values import check_text, check_verbatim, check_whole, is_storable, storable


@dataclass(frozen=True)
class AttachItem:
    """An SAE and the layer (0-based) it is attached at."""

    sae_id: str
    layer: int


@dataclass(frozen=True)
class AttachSetRecord:
    """A named set of SAEs to attach together; some of them may have left the library since."""

    name: str
    items: tuple[AttachItem, ...]
    created_at: datetime


class AttachSetRow(Base):
    """A named set of SAEs with their layers."""

    __tablename__ = "attach_sets"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    items: Mapped[list[dict[str, Any]]] = mapped_column(JsonColumn)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


AttachSets = list[AttachSetRecord]


class AttachSetRepository:
    """Reads and writes saved sets. Whether their SAEs are still here is for whoever attaches them."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def save(self, name: str, items: Sequence[AttachItem]) -> AttachSetRecord:
        """Save a set, in place of one of that name.

        Raises :class:`InvalidParameter` for an empty set, the same SAE twice at one layer, or a name that is not 1 to
        100 characters.
        """
        check_text(name, "name", least=1, most=SET_NAME_LIMIT)
        if not items:
            raise InvalidParameter("A set needs at least one SAE.", param="saes")
        if len(set(items)) < len(items):
            raise InvalidParameter("A set names the same SAE at the same layer twice.", param="saes")
        for position, item in enumerate(items):
            check_verbatim(item.sae_id, f"saes.{position}.sae_id")
            check_whole(item.layer, f"saes.{position}.layer")
        row = AttachSetRow(
            name=storable(name),
            items=[{"sae_id": item.sae_id, "layer": item.layer} for item in items],
            created_at=utc_now(),
        )
        with self._sessions.write() as session:
            return _record(session.merge(row))

    def get(self, name: str) -> AttachSetRecord | None:
        """The set of exactly this name, or None."""
        if not is_storable(name):
            return None
        with self._sessions.read() as session:
            row = session.get(AttachSetRow, name)
            return None if row is None else _record(row)

    def list(self) -> AttachSets:
        """Every set, by name."""
        query = select(AttachSetRow).order_by(func.millm_fold(AttachSetRow.name), AttachSetRow.name)
        with self._sessions.read() as session:
            return [_record(row) for row in session.scalars(query)]

    def remove(self, name: str) -> None:
        """Forget a set. Raises :class:`NotFound` for a missing one."""
        with self._sessions.write() as session:
            row = session.get(AttachSetRow, name) if is_storable(name) else None
            if row is None:
                raise NotFound(f"There is no saved set of SAEs named {name!r}.", param="name")
            session.delete(row)


def _record(row: AttachSetRow) -> AttachSetRecord:
    items = tuple(AttachItem(item["sae_id"], item["layer"]) for item in row.items)
    return AttachSetRecord(row.name, items, row.created_at)
