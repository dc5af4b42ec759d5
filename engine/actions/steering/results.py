"""What the profile and cluster actions answer: frozen values whose fields are the keys of the management API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine.documents.ranges import Range
from engine.documents.verdicts import ImportStatus
from engine.library.records import ProfileKind, ProfileRecord
from engine.steering.stored import stored_document
from engine.wire import LEFT_OUT, UNTOLD, beside, made_of


@dataclass(frozen=True)
class ProfileSummary:
    """A profile; a cluster is one too. ``steering`` is by feature index as text."""

    id: str
    name: str
    description: str | None
    model_id: str | None
    sae_id: str | None
    layer: int | None
    steering: Mapping[int, float]
    is_active: bool
    source_kind: ProfileKind
    intensity: float
    sensing_enabled: bool
    created_at: datetime
    updated_at: datetime
    record: ProfileRecord = field(metadata=UNTOLD)

    @classmethod
    def of(cls, record: ProfileRecord) -> ProfileSummary:
        """The summary of a row."""
        return made_of(cls, record, record=record)


@dataclass(frozen=True)
class ProfileList:
    """Profiles by name."""

    profiles: tuple[ProfileSummary, ...]
    total: int
    active_profile_id: str | None

    @classmethod
    def of(cls, records: Iterable[ProfileRecord]) -> ProfileList:
        """The list of these rows; the active one is among them or None."""
        found = tuple(map(ProfileSummary.of, records))
        return cls(found, len(found), next((each.id for each in found if each.is_active), None))


@dataclass(frozen=True)
class ActivatedProfile:
    """A profile or cluster was activated.

    ``feature_count`` features steer because of it; ``warnings`` say what else happened.
    """

    profile_id: str
    applied_steering: bool = field(init=False)
    feature_count: int
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "applied_steering", self.feature_count > 0)


@dataclass(frozen=True)
class DeactivatedProfile:
    """A profile or cluster was deactivated.

    ``cleared_steering``: values were there and are gone.
    """

    profile_id: str
    cleared_steering: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeletedProfile(DeactivatedProfile):
    """A profile or cluster is gone.

    It was deactivated first where it was active.
    """

    deleted: bool = field(default=True, init=False)


@dataclass(frozen=True)
class ClusterSummary:
    """A cluster. ``members`` are [feature, label, strength with its direction]."""

    id: str
    name: str
    description: str | None
    model_id: str | None
    sae_id: str | None
    layer: int | None
    is_active: bool
    intensity: float
    sensing_enabled: bool
    member_count: int
    members: tuple[tuple[int, str | None, float], ...]
    display_token: str | None
    bound: bool
    warnings: tuple[str, ...]
    hub_ref: Mapping[str, Any] | None
    intensity_range: Range | None
    budget_b: float | None
    formula_id: str | None
    created_at: datetime
    updated_at: datetime
    record: ProfileRecord = field(metadata=UNTOLD)

    @classmethod
    def of(cls, record: ProfileRecord) -> ClusterSummary:
        """The summary of a row. Where its document can no longer be read, the row's own strengths stand alone."""
        document = stored_document(record)
        definition = None if document is None else document.definition
        budget = None if definition is None else definition.budget
        members: tuple[tuple[int, str | None, float], ...] = (
            tuple((index, None, strength) for index, strength in record.steering.items())
            if definition is None
            else tuple((each.feature_idx, each.label, each.directional_strength) for each in definition.members)
        )
        return made_of(
            cls,
            record,
            record=record,
            member_count=len(members),
            members=members,
            display_token=None if definition is None else definition.display_token,
            intensity_range=None if document is None else document.intensity_range,
            budget_b=None if budget is None else budget.B,
            formula_id=None if budget is None else budget.formula_id,
        )


@dataclass(frozen=True)
class ClusterList:
    """Clusters by name."""

    clusters: tuple[ClusterSummary, ...]
    active_cluster_id: str | None

    @classmethod
    def of(cls, records: Iterable[ProfileRecord]) -> ClusterList:
        """The list of these rows."""
        found = tuple(map(ClusterSummary.of, records))
        return cls(found, next((each.id for each in found if each.is_active), None))


@dataclass(frozen=True)
class ImportItem:
    """What became of one definition of an import.

    ``errors`` are ``{pointer, message}`` where the document itself was refused; ``code`` is the refusal's.
    """

    name: str
    status: ImportStatus
    warnings: tuple[str, ...] = ()
    profile_id: str | None = field(default=None, metadata=LEFT_OUT)
    error: str | None = field(default=None, metadata=LEFT_OUT)
    errors: tuple[Mapping[str, str], ...] = field(default=(), metadata=beside("error"))
    code: str | None = field(default=None, metadata=beside("error"))


@dataclass(frozen=True)
class ImportOutcome:
    """What became of every definition of an import.

    They are in the document's order; ``blocked`` is part of the protocol and always 0.
    """

    results: tuple[ImportItem, ...]
    imported: int
    blocked: int
    errors: int

    @classmethod
    def of(cls, results: Iterable[ImportItem]) -> ImportOutcome:
        """The outcome of these."""
        found = tuple(results)
        statuses = [each.status for each in found]
        imported = statuses.count(ImportStatus.IMPORTED) + statuses.count(ImportStatus.IMPORTED_UNBOUND)
        return cls(found, imported, statuses.count(ImportStatus.BLOCKED), statuses.count(ImportStatus.ERROR))


@dataclass(frozen=True)
class DialledCluster:
    """A cluster's dial was set.

    A profile's too; ``reapplied``: its values are live at the new intensity.
    """

    profile_id: str
    intensity: float
    reapplied: bool
