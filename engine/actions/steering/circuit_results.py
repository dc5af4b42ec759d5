"""What the circuit actions answer: frozen values whose ``as_dict`` is the form in which they travel.

The phrase of a rung is always sent beside the number, so that nobody else has to spell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.documents.evidence import is_validated, rung_language, rung_next_step
from engine.library.records import CircuitRecord
from engine.steering.hazards import Hazard
from engine.steering.strengths import SteeredSet


@dataclass(frozen=True)
class CircuitSummary:
    """A circuit's row. ``steering``: whether it adds anything now; None where that was not looked at."""

    record: CircuitRecord
    steering: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it; times are ISO 8601, UTC."""
        record = self.record
        return {
            "id": record.id,
            "name": record.name,
            "description": record.description,
            "rung": record.rung,
            "rung_language": rung_language(record.rung),
            "rung_next_step": rung_next_step(record.rung),
            "only_persistence": record.only_persistence,
            "validated": is_validated(record.rung),
            "edge_count": record.edge_count,
            "layers": list(record.layers),
            "serveable": record.serveable,
            "is_active": record.is_active,
            "serving_mode": None if record.serving_mode is None else record.serving_mode.value,
            "intensity": record.intensity,
            "per_sae_warnings": [dict(each) for each in record.per_sae_warnings],
            "steering": self.steering,
            "created_at": record.created_at.isoformat(),
            "updated_at": record.updated_at.isoformat(),
        }


@dataclass(frozen=True)
class CircuitList:
    """A page of circuits, newest first; ``total`` counts all that fit the question."""

    circuits: tuple[CircuitSummary, ...]
    active_circuit_id: str | None
    total: int

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "circuits": [each.as_dict() for each in self.circuits],
            "active_circuit_id": self.active_circuit_id,
            "total": self.total,
        }


@dataclass(frozen=True)
class ImportedCircuit:
    """A circuit that is in the library now, and what was found when it was read."""

    summary: CircuitSummary
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {**self.summary.as_dict(), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class ActivatedCircuit:
    """A circuit that serves now.

    Attributes:
        bound_layers: Its layers that have their SAE, rising.
        steered: What it adds, one set per SAE.
        slice_layer, slice_profile_id: Which layer a slice serves, and the cluster that does; None when served in full.
        acknowledged_unvalidated: It is below rung 2 and the caller said that this is known.
        composed_layers: Its layers that another circuit holds too.
        allowed_layer_overlap: The caller allowed that.
    """

    summary: CircuitSummary
    bound_layers: tuple[int, ...]
    steered: tuple[SteeredSet, ...]
    hazards: tuple[Hazard, ...]
    warnings: tuple[str, ...]
    acknowledged_unvalidated: bool
    slice_layer: int | None = None
    slice_profile_id: str | None = None
    composed_layers: tuple[int, ...] = ()
    allowed_layer_overlap: bool = False

    @property
    def applied_per_layer(self) -> dict[str, dict[str, float]]:
        """Layer → feature → what is added, with indices as text; nothing at intensity 0."""
        return applied_per_layer(self.steered)

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it; what does not apply is left out."""
        travelling = {
            **self.summary.as_dict(),
            "bound_layers": list(self.bound_layers),
            "applied_per_layer": self.applied_per_layer,
            "hazards": [each.as_dict() for each in self.hazards],
            "warnings": list(self.warnings),
            "acknowledged_unvalidated": self.acknowledged_unvalidated,
        }
        if self.slice_layer is not None:
            travelling |= {"slice_layer": self.slice_layer, "slice_profile_id": self.slice_profile_id}
        if self.composed_layers:
            travelling["composed_layers"] = list(self.composed_layers)
        if self.allowed_layer_overlap:
            travelling["allowed_layer_overlap"] = True
        return travelling


@dataclass(frozen=True)
class DialledCircuit:
    """A circuit's dial was set.

    ``reapplied``: its values are live at the new intensity. ``superseded``: somebody changed the live steering after
    that and before this answer.
    """

    summary: CircuitSummary
    reapplied: bool
    superseded: bool
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            **self.summary.as_dict(),
            "reapplied": self.reapplied,
            "superseded": self.superseded,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class DeactivatedCircuit:
    """A circuit that serves no more. ``cleared_steering``: it added something, and that is gone."""

    summary: CircuitSummary
    cleared_steering: bool

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {**self.summary.as_dict(), "cleared_steering": self.cleared_steering}


@dataclass(frozen=True)
class DeletedCircuit:
    """A circuit that is gone. ``slice_profile_id``: the cluster of its slice, which went with it."""

    circuit_id: str
    cleared_steering: bool
    slice_profile_id: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it; what does not apply is left out."""
        travelling = {"circuit_id": self.circuit_id, "deleted": True, "cleared_steering": self.cleared_steering}
        return travelling if self.slice_profile_id is None else travelling | {"slice_profile_id": self.slice_profile_id}


@dataclass(frozen=True)
class ReleasedClaims:
    """Layers that a circuit let go of, rising."""

    circuit_id: str
    released_layers: tuple[int, ...]
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As the management API gives it."""
        return {
            "circuit_id": self.circuit_id,
            "released_layers": list(self.released_layers),
            "warnings": list(self.warnings),
        }


def applied_per_layer(steered: Sequence[SteeredSet]) -> dict[str, dict[str, float]]:
    """``steered`` by layer and feature, with indices as text."""
    return {str(each.layer): {str(index): value for index, value in each.strengths} for each in steered}
