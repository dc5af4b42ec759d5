"""What the profile and cluster actions answer: frozen values whose ``as_dict`` is the form in which they travel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.documents.ranges import Range
from engine.documents.verdicts import ImportStatus
from engine.library.records import ProfileRecord
from engine.steering.stored import stored_document
from engine.wire import left_out, wire


@dataclass(frozen=True)
class ProfileSummary:
    """A profile's row."""

    record: ProfileRecord

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it; times are ISO 8601, UTC."""
        record = self.record
        return {
            "id": record.id,
            "name": record.name,
            "description": record.description,
            "model_id": record.model_id,
            "sae_id": record.sae_id,
            "layer": record.layer,
            "steering": {str(index): strength for index, strength in record.steering.items()},
            "is_active": record.is_active,
            "source_kind": record.source_kind.value,
            "intensity": record.intensity,
            "sensing_enabled": record.sensing_enabled,
            "created_at": record.created_at.isoformat(),
            "updated_at": record.updated_at.isoformat(),
        }


@dataclass(frozen=True)
class ProfileList:
    """Profiles by name; ``active_profile_id`` is among them or None."""

    profiles: tuple[ProfileSummary, ...]

    @property
    def active_profile_id(self) -> str | None:
        """The active one."""
        return next((each.record.id for each in self.profiles if each.record.is_active), None)

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "profiles": [each.as_dict() for each in self.profiles],
            "total": len(self.profiles),
            "active_profile_id": self.active_profile_id,
        }


@dataclass(frozen=True)
class ActivatedProfile:
    """An activation. ``feature_count`` features steer because of it; ``warnings`` say what else happened."""

    profile_id: str
    feature_count: int
    warnings: tuple[str, ...] = ()

    @property
    def applied_steering(self) -> bool:
        """Whether anything steers because of it."""
        return self.feature_count > 0

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "profile_id": self.profile_id,
            "applied_steering": self.applied_steering,
            "feature_count": self.feature_count,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class DeactivatedProfile:
    """A deactivation. ``cleared_steering``: values were there and are gone."""

    profile_id: str
    cleared_steering: bool
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "profile_id": self.profile_id,
            "cleared_steering": self.cleared_steering,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class DeletedProfile(DeactivatedProfile):
    """A profile that is gone, and was deactivated first where it was active."""

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {**super().as_dict(), "deleted": True}


@dataclass(frozen=True)
class ClusterSummary:
    """A cluster's row, with what its document says. ``members`` are (feature, label, strength with its direction)."""

    record: ProfileRecord
    members: tuple[tuple[int, str | None, float], ...]
    display_token: str | None = None
    intensity_range: Range | None = None
    budget_b: float | None = None
    formula_id: str | None = None

    @classmethod
    def of(cls, record: ProfileRecord) -> ClusterSummary:
        """The summary of a row. Where its document can no longer be read, the row's own strengths stand alone."""
        document = stored_document(record)
        if document is None:
            return cls(record, tuple((index, None, strength) for index, strength in record.steering.items()))
        definition = document.definition
        return cls(
            record,
            tuple((each.feature_idx, each.label, each.directional_strength) for each in definition.members),
            definition.display_token,
            document.intensity_range,
            definition.budget.B if definition.budget else None,
            definition.budget.formula_id if definition.budget else None,
        )

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        record = self.record
        return {
            "id": record.id,
            "name": record.name,
            "description": record.description,
            "model_id": record.model_id,
            "sae_id": record.sae_id,
            "layer": record.layer,
            "is_active": record.is_active,
            "intensity": record.intensity,
            "sensing_enabled": record.sensing_enabled,
            "member_count": len(self.members),
            "members": [list(member) for member in self.members],
            "display_token": self.display_token,
            "bound": record.bound,
            "warnings": list(record.warnings),
            "hub_ref": None if record.hub_ref is None else dict(record.hub_ref),
            "intensity_range": None if self.intensity_range is None else list(self.intensity_range),
            "budget_b": self.budget_b,
            "formula_id": self.formula_id,
            "created_at": record.created_at.isoformat(),
            "updated_at": record.updated_at.isoformat(),
        }


@dataclass(frozen=True)
class ClusterList:
    """Clusters by name."""

    clusters: tuple[ClusterSummary, ...]

    @property
    def active_cluster_id(self) -> str | None:
        """The active one."""
        return next((each.record.id for each in self.clusters if each.record.is_active), None)

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "clusters": [each.as_dict() for each in self.clusters],
            "active_cluster_id": self.active_cluster_id,
        }


@dataclass(frozen=True)
class ImportItem:
    """What became of one definition of an import.

    ``errors`` are ``{pointer, message}`` where the document itself was refused; ``code`` is the refusal's.
    """

    name: str
    status: ImportStatus
    warnings: tuple[str, ...] = ()
    profile_id: str | None = left_out()
    error: str | None = left_out()
    errors: tuple[dict[str, str], ...] = left_out((), beside="error")
    code: str | None = left_out(beside="error")


@dataclass(frozen=True)
class ImportOutcome:
    """What became of every definition of an import, in the document's order."""

    results: tuple[ImportItem, ...] = field(default_factory=tuple)

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it; ``blocked`` is part of the protocol and always 0."""
        statuses = [each.status for each in self.results]
        return {
            "results": wire(self.results),
            "imported": sum(each in (ImportStatus.IMPORTED, ImportStatus.IMPORTED_UNBOUND) for each in statuses),
            "blocked": statuses.count(ImportStatus.BLOCKED),
            "errors": statuses.count(ImportStatus.ERROR),
        }


@dataclass(frozen=True)
class DialledCluster:
    """A cluster's or profile's dial was set; ``reapplied``: its values are live at the new intensity."""

    profile_id: str
    intensity: float
    reapplied: bool

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {"profile_id": self.profile_id, "intensity": self.intensity, "reapplied": self.reapplied}
