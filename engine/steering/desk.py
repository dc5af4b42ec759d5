"""The steering desk: the one holder of what steers live, and the only place that changes it.

A change makes a new state and its plan first and then puts both in place at once, so that a refused change leaves
everything as it was, bit for bit, and readers never see half of one. Every change by a person or a management call
raises the live plan's number by one; a change that changes nothing does not, nor does anything a request does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.events import EventBus, SteeringUpdated
from engine.saes.attachment import Attachment
from engine.steering.live import (
    LiveState,
    circuit_labels,
    claimable_rung,
    profile_label,
    together,
)
from engine.steering.plan import EMPTY_PLAN, SteeringPlan, build_plan
from engine.steering.report import describe
from engine.steering.transitions import Transition, find_attachment, place_of


@dataclass(frozen=True)
class Snapshot:
    """State and plan of one moment; they belong together."""

    state: LiveState
    plan: SteeringPlan


class Draft:
    """A change in the making: what nobody else sees yet. Afterwards ``state`` is what was put in place."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.loud = False

    @property
    def state(self) -> LiveState:
        """What the live state will be."""
        return self.snapshot.state


class SteeringDesk:
    """Live state and plan. All methods may be called from any thread; reading never blocks."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._lock = threading.RLock()
        self._now = Snapshot(LiveState(), EMPTY_PLAN)
        self._draft: Draft | None = None

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Snapshot:
        """State and live plan, from the same moment."""
        return self._now

    @property
    def state(self) -> LiveState:
        return self._now.state

    @property
    def live_plan(self) -> SteeringPlan:
        """What requests without steering of their own run with."""
        return self._now.plan

    def attachment(self, sae_id: str | None = None, layer: int | None = None) -> Attachment:
        """The attachment that fits; the first one when nothing is named. Raises :class:`SaeNotAttached`."""
        return find_attachment(self.state, sae_id, layer)

    # --- several changes as one -------------------------------------------------------------------------------------

    @contextmanager
    def changes(self) -> Iterator[Draft]:
        """Several changes as one: nobody sees them before the block ends, and the plan's number rises by one at most.

        An error in the block undoes them all; leaving it cannot fail. So a block whose last step is to store what it
        did keeps disk and desk together. Nobody else changes anything meanwhile: keep it short, and wait for no thread
        in it. Inside, ask the draft for the state; the properties of the desk say what is in place.
        """
        update: SteeringUpdated | None = None
        with self._lock:
            if self._draft is not None:
                with _undone_on_error(self._draft) as outer:
                    yield outer
                return
            self._draft = draft = Draft(self._now)
            try:
                yield draft
                if draft.state != self._now.state:
                    if draft.loud:
                        version = self._now.state.version + 1
                        draft.snapshot = Snapshot(
                            replace(draft.state, version=version), replace(draft.snapshot.plan, version=version)
                        )
                        update = _event(draft.snapshot)
                    self._now = draft.snapshot
            finally:
                self._draft = None
        if update is not None:
            self._events.publish(update)

    def apply(self, transition: Transition) -> LiveState:
        """Make one change; returns the state after it. Raises as :mod:`engine.steering.transitions` says of each."""
        with self.changes() as draft:
            state = transition.change(draft.state)
            if state != draft.state:
                draft.snapshot = Snapshot(state, _plan_of(state))
                draft.loud = draft.loud or not transition.quiet
            return draft.state


@contextmanager
def _undone_on_error(draft: Draft) -> Iterator[Draft]:
    before, loud = draft.snapshot, draft.loud
    try:
        yield draft
    except BaseException:
        draft.snapshot, draft.loud = before, loud
        raise


def _plan_of(state: LiveState) -> SteeringPlan:
    sets = together(state)
    if state.stream is None or not sets:
        return SteeringPlan(version=state.version)
    report = describe(sets, circuits=circuit_labels(state), active=profile_label(state))
    rung = claimable_rung(state, sets)
    return build_plan(sets, state.attachments, state.stream, report=report, rung=rung, version=state.version)


def _event(snapshot: Snapshot) -> SteeringUpdated:
    """The first attached SAE's values, as the contract has it, with all places beside them."""
    state = snapshot.state
    places: list[dict[str, Any]] = [
        {
            "sae_id": each.sae_id,
            "layer": each.layer,
            "enabled": state.entry(place_of(each)).enabled,
            "values": {str(i): v for i, v in sorted(state.entry(place_of(each)).values.items())},
        }
        for each in state.attachments
    ]
    first: dict[str, Any] = places[0] if places else {"enabled": False, "values": {}}
    return SteeringUpdated(
        enabled=bool(first["enabled"]),
        values=dict(first["values"]),
        active_count=sum(len(each.strengths) for each in snapshot.plan.sets),
        version=state.version,
        report=snapshot.plan.report.text(),
        entries=places,
    )
