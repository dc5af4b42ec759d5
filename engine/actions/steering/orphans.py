"""What a detached SAE ends: the profile that steered through it, and every circuit that is no longer whole."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.actions.steering.circuits import CircuitActions
from engine.actions.steering.profiles import ProfileActions
from engine.errors import MillmError
from engine.library.database import Library
from engine.steering.desk import SteeringDesk

log = logging.getLogger(__name__)


def end_what_lost_its_place(
    library: Library, desk: SteeringDesk, profiles: ProfileActions, circuits: CircuitActions
) -> None:
    """Deactivate what the desk can only serve in part now. A part of a circuit has not the whole one's evidence."""
    state = desk.state
    if state.profile is not None and state.profile.place is None and state.profile.authored:
        _end(profiles.deactivate, state.profile.profile_id)
    for one in state.circuits:
        record = library.circuits.get(one.circuit_id)
        if record is not None and {layer for _, layer in one.authored} != set(record.layers):
            _end(circuits.deactivate, one.circuit_id)


def _end(deactivate: Callable[[str], object], name: str) -> None:
    try:
        deactivate(name)
    except MillmError:
        # The SAE is gone already; what could not be recorded is put right at the next start.
        log.exception("%s could not be deactivated after its SAE was detached", name)
