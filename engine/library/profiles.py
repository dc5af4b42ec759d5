"""Profiles: steering under a name. A cluster is a profile that came with a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Boolean, Float, Index, Integer, String, Text, func, select, text, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from engine.errors import InvalidParameter
from engine.library.errors import ProfileAlreadyExists, ProfileNotFound
from engine.library.names import (
    CLUSTER_NAME_LIMIT,
    DESCRIPTION_LIMIT,
    MAX_RENAMES,
    NARRATIVE_LIMIT,
    PROFILE_NAME_LIMIT,
)
from engine.library.rows import Base, JsonColumn, UtcDateTime, utc_now, word_column
from engine.library.sessions import Transactions
from engine.library.values import (
    check_text,
    check_verbatim,
    check_whole,
    columns,
    finite,
    free_name,
    fresh_id,
    is_storable,
    refuse_unknown,
    values_of,
)


class ProfileKind(StrEnum):
    """Made by hand, or imported as a cluster document."""

    MANUAL = "manual"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class ProfileFields:
    """What a person gives of a profile, and what its document carries; every place that passes them on takes them
    from here.

    ``steering`` is strength by feature index at intensity 1, unclamped.
    """

    name: str
    description: str | None = None
    model_id: str | None = None
    sae_id: str | None = None
    layer: int | None = None
    steering: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileRecord(ProfileFields):
    """A profile; ``steering`` in the order it was given.

    ``intensity`` is where its dial stands. ``cluster_meta`` is a cluster's document, the very text that was stored;
    ``extras`` are keys of an imported profile that have no field here. ``bound`` is False for a cluster that has not
    met its SAE yet. ``hub_ref`` says which hub file a cluster came from. A new one is made without what the library
    fills in: ``is_active``, ``id`` and the times.
    """

    source_kind: ProfileKind = ProfileKind.MANUAL
    intensity: float = 1.0
    sensing_enabled: bool = False
    cluster_meta: str | None = None
    bound: bool = True
    warnings: tuple[str, ...] = ()
    hub_ref: Mapping[str, Any] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    is_active: bool = False
    id: str = ""
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)


PROFILE_FIELDS = tuple(each.name for each in fields(ProfileFields))


class ProfileRow(Base):
    """Columns as in :class:`ProfileRecord`."""

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


_NAMES = frozenset(each.name for each in fields(ProfileRecord))
_GIVEN = _NAMES - {"id", "is_active", "created_at", "updated_at"}
_CHANGEABLE = _GIVEN - {"source_kind", "cluster_meta"}

ProfileRecords = list[ProfileRecord]


class ProfileRepository:
    """Reads and writes profiles. A missing row is None when asked for and :class:`ProfileNotFound` when changed.

    Only :meth:`set_active`, :meth:`deactivate` and :meth:`reset_after_restart` say which one is active.
    """

    def __init__(self, sessions: Transactions) -> None:
        self._sessions = sessions

    def add(self, new: ProfileRecord, *, rename: bool = False) -> ProfileRecord:
        """Store a profile under a fresh id; with ``rename`` a taken name gets " (2)", " (3)" … behind it.

        Raises :class:`ProfileAlreadyExists` for a name that is taken (with ``rename``: when fifty others are too),
        :class:`InvalidParameter` for values no profile can have.
        """
        values = _checked(values_of(new, _GIVEN), new.source_kind)
        with self._sessions.write() as session:
            values["name"] = _name_to_use(session, values["name"], new.source_kind, rename)
            now = utc_now()
            row = ProfileRow(
                **values,
                id=fresh_id(session, ProfileRow, "prof_"),
                is_active=False,
                created_at=now,
                updated_at=now,
            )
            session.add(row)
            session.flush()
            return _record(row)

    def put_back(self, record: ProfileRecord) -> ProfileRecord:
        """Store a profile that was removed as it was, its id included, but not active; a taken name gets a number.

        Raises :class:`ProfileAlreadyExists` when its id is there, or fifty names made from its own are.
        """
        values = _checked(values_of(record, _GIVEN), record.source_kind)
        with self._sessions.write() as session:
            if _find(session, record.id) is not None:
                raise _taken(session, record.name)
            values["name"] = _name_to_use(session, values["name"], record.source_kind, True)
            row = ProfileRow(
                **values, id=record.id, is_active=False, created_at=record.created_at, updated_at=record.updated_at
            )
            session.add(row)
            session.flush()
            return _record(row)

    def get(self, profile_id: str) -> ProfileRecord | None:
        """The profile with this id, or None."""
        with self._sessions.read() as session:
            row = _find(session, profile_id)
            return None if row is None else _record(row)

    def by_name(self, name: str) -> ProfileRecord | None:
        """The profile of exactly this name, case included, or None."""
        if not is_storable(name):
            return None
        with self._sessions.read() as session:
            row = session.scalar(select(ProfileRow).where(ProfileRow.name == name))
            return None if row is None else _record(row)

    def list(self, kind: ProfileKind | None = None) -> ProfileRecords:
        """Every profile, or those of one kind, by name."""
        query = select(ProfileRow).order_by(func.millm_fold(ProfileRow.name), ProfileRow.name)
        if kind is not None:
            query = query.where(ProfileRow.source_kind == kind)
        with self._sessions.read() as session:
            return [_record(row) for row in session.scalars(query)]

    def active(self) -> ProfileRecord | None:
        """The active profile, or None."""
        with self._sessions.read() as session:
            row = session.scalar(select(ProfileRow).where(ProfileRow.is_active))
            return None if row is None else _record(row)

    def update(self, profile_id: str, **changes: object) -> ProfileRecord:
        """Set fields of :class:`ProfileRecord` by name and keep the rest; ``steering`` takes the place of all it had.

        Raises :class:`ProfileAlreadyExists` for a name that is taken, :class:`InvalidParameter` for a value no profile
        can have and for the steering of a cluster, TypeError for a field that is not the caller's to set.
        """
        with self._sessions.write() as session:
            return _change(session, _require(session, profile_id), changes)

    def set_active(self, profile_id: str | None, **changes: object) -> ProfileRecord | None:
        """Make one profile active and every other inactive, or with None all of them; returns the active one.

        ``changes`` as in :meth:`update` are made in the same step: an activation may bind a cluster to its SAE.
        """
        with self._sessions.write() as session:
            # The one before must be gone before the next takes its place.
            others = update(ProfileRow).where(ProfileRow.is_active).values(is_active=False)
            if profile_id is None:
                if changes:
                    raise TypeError("changes need a profile that is made active")
                session.execute(others)
                return None
            row = _require(session, profile_id)
            session.execute(others.where(ProfileRow.id != profile_id))
            row.is_active = True
            return _change(session, row, changes)

    def deactivate(self, profile_id: str) -> bool:
        """Make a profile inactive; True when it was active, False when there was nothing to do."""
        with self._sessions.write() as session:
            row = _require(session, profile_id)
            was_active = row.is_active
            row.is_active = False
            return was_active

    def remove(self, profile_id: str) -> ProfileRecord:
        """Delete a profile; returns it as it was, ``is_active`` included."""
        with self._sessions.write() as session:
            row = _require(session, profile_id)
            record = _record(row)
            session.delete(row)
            return record

    def reset_after_restart(self) -> None:
        """Put right what no start can be true of: no profile is active yet."""
        self.set_active(None)


def _find(session: Session, profile_id: str) -> ProfileRow | None:
    return session.get(ProfileRow, profile_id) if is_storable(profile_id) else None


def _require(session: Session, profile_id: str) -> ProfileRow:
    row = _find(session, profile_id)
    if row is None:
        raise ProfileNotFound(
            f"There is no profile with the id {profile_id!r}.",
            param="profile_id",
            details={"profile_id": profile_id},
            remedy="List the profiles to see their ids.",
        )
    return row


def _name_to_use(session: Session, wanted: str, kind: ProfileKind, rename: bool) -> str:
    name = free_name(session, ProfileRow.name, wanted, limit=_name_limit(kind))
    if name is None or (name != wanted and not rename):
        raise _taken(session, wanted, renamed=rename)
    return name


def _taken(session: Session, name: str, *, renamed: bool = False) -> ProfileAlreadyExists:
    holder = session.scalars(select(ProfileRow.id).where(ProfileRow.name == name)).first()
    also = f", and {MAX_RENAMES} names made from it are taken too" if renamed else ""
    return ProfileAlreadyExists(
        f"The library has a profile named {name!r} already{also}.",
        param="name",
        details={"existing_profile_id": holder, "existing_name": name},
        remedy="Give this one another name.",
    )


def _change(session: Session, row: ProfileRow, changes: Mapping[str, object]) -> ProfileRecord:
    refuse_unknown(changes, _CHANGEABLE, "a profile")
    if "steering" in changes and row.source_kind is ProfileKind.CLUSTER:
        raise InvalidParameter(
            "The strengths of a cluster belong to its document and cannot be edited.",
            param="steering",
            remedy="Save them as a profile under another name, and edit that one.",
        )
    values = _checked(changes, row.source_kind)
    name = values.get("name", row.name)
    if name != row.name and session.scalar(select(ProfileRow.id).where(ProfileRow.name == name)) is not None:
        raise _taken(session, name)
    for key, value in values.items():
        setattr(row, key, value)
    if values:
        row.updated_at = utc_now()
    session.flush()
    return _record(row)


def _name_limit(kind: ProfileKind) -> int:
    return CLUSTER_NAME_LIMIT if kind is ProfileKind.CLUSTER else PROFILE_NAME_LIMIT


def _checked(values: Mapping[str, object], kind: ProfileKind) -> dict[str, Any]:
    given: dict[str, Any] = dict(values)
    if "name" in given:
        check_text(given["name"], "name", least=1, most=_name_limit(kind))
    if given.get("description") is not None:
        # A cluster's description is its narrative.
        most = NARRATIVE_LIMIT if kind is ProfileKind.CLUSTER else DESCRIPTION_LIMIT
        check_text(given["description"], "description", most=most)
    if given.get("layer") is not None:
        check_whole(given["layer"], "layer")
    if given.get("cluster_meta") is not None:
        check_verbatim(given["cluster_meta"], "cluster_meta")
    if "intensity" in given:
        given["intensity"] = finite(given["intensity"], "intensity")
    if "steering" in given:
        given["steering"] = _steering(given["steering"])
    return columns(given)


def _steering(values: Mapping[int, float]) -> dict[str, float]:
    found = {}
    for index, strength in values.items():
        check_whole(index, "steering")
        found[str(index)] = finite(strength, f"steering.{index}")
    return found


def _record(row: ProfileRow) -> ProfileRecord:
    return ProfileRecord(
        **values_of(row, _NAMES)
        | {
            "steering": {int(index): strength for index, strength in row.steering.items()},
            "warnings": tuple(row.warnings),
            "hub_ref": None if row.hub_ref is None else dict(row.hub_ref),
            "extras": dict(row.extras),
        }
    )
