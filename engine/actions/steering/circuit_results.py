"""What the circuit actions answer: frozen values whose fields are the keys of the management API.

The phrase of a rung is always sent beside the number, so that nobody else has to spell it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from engine.documents.evidence import is_validated, rung_language, rung_next_step
from engine.library.records import CircuitRecord, ServingMode
from engine.steering.hazards import Hazard
from engine.wire import LEFT_OUT, UNTOLD, beside, made_of


@dataclass(frozen=True)
class CircuitSummary:
    """A circuit. ``steering``: whether it adds anything now; null where that was not looked at.

    ``only_persistence``: every edge is a direction that the residual stream carries on, nothing computed; it is to be
    said beside the phrase of the rung. ``rung_next_step`` is done outside this program, with the tool that made the
    document.
    """

    id: str
    name: str
    description: str | None
    rung: int
    rung_language: str
    rung_next_step: str | None
    only_persistence: bool
    validated: bool
    edge_count: int
    layers: tuple[int, ...]
    serveable: bool
    is_active: bool
    serving_mode: ServingMode | None
    intensity: float | None
    per_sae_warnings: tuple[Mapping[str, Any], ...]
    steering: bool | None
    created_at: datetime
    updated_at: datetime
    record: CircuitRecord = field(metadata=UNTOLD)

    @classmethod
    def of(cls, record: CircuitRecord, steering: bool | None = None, **more: Any) -> Self:
        """The summary of a row, with the fields that an answer has beside it."""
        return made_of(
            cls,
            record,
            rung_language=rung_language(record.rung),
            rung_next_step=rung_next_step(record.rung),
            validated=is_validated(record.rung),
            steering=steering,
            record=record,
            **more,
        )


@dataclass(frozen=True)
class CircuitList:
    """A page of circuits, newest first.

    ``total`` counts all that fit the question.
    """

    circuits: tuple[CircuitSummary, ...]
    active_circuit_id: str | None
    total: int


@dataclass(frozen=True)
class ImportedCircuit(CircuitSummary):
    """A circuit that came in, and what was found when it was read."""

    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ActivatedCircuit(CircuitSummary):
    """A circuit that serves now. ``applied_per_layer`` is by layer and feature index, as text.

    Attributes:
        bound_layers: Its layers that have their SAE, rising.
        applied_per_layer: What it adds; nothing at intensity 0.
        acknowledged_unvalidated: It is below rung 2 and the caller said that this is known.
        slice_layer, slice_profile_id: Which layer a slice serves, and the cluster that does; neither when served in
            full.
        composed_layers: Its layers that another circuit holds too.
        allowed_layer_overlap: The caller allowed that.
    """

    bound_layers: tuple[int, ...]
    applied_per_layer: Mapping[int, Mapping[int, float]]
    hazards: tuple[Hazard, ...]
    warnings: tuple[str, ...]
    acknowledged_unvalidated: bool
    slice_layer: int | None = field(default=None, metadata=LEFT_OUT)
    slice_profile_id: str | None = field(default=None, metadata=beside("slice_layer"))
    composed_layers: tuple[int, ...] = field(default=(), metadata=LEFT_OUT)
    allowed_layer_overlap: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True)
class DialledCircuit(CircuitSummary):
    """A circuit's dial was set.

    ``reapplied``: its values are live at the new intensity. ``superseded``: somebody changed the live steering after
    that and before this answer.
    """

    reapplied: bool
    superseded: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class DeactivatedCircuit(CircuitSummary):
    """A circuit that serves no more.

    ``cleared_steering``: it added something, and that is gone.
    """

    cleared_steering: bool


@dataclass(frozen=True)
class DeletedCircuit:
    """A circuit that is gone.

    ``slice_profile_id``: the cluster of its slice, which went with it.
    """

    circuit_id: str
    deleted: bool = field(default=True, init=False)
    cleared_steering: bool
    slice_profile_id: str | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True)
class ReleasedClaims:
    """Layers that a circuit let go of.

    They rise.
    """

    circuit_id: str
    released_layers: tuple[int, ...]
    warnings: tuple[str, ...] = ()
