"""The steering desk: the one holder of what steers live, and the only place that changes it.

A change makes a new state and its plan first and then puts both in place at once, so that a refused change leaves
everything as it was, bit for bit, and readers never see half of one. Every change by a person or a management call
raises the live plan's number by one; a change that changes nothing does not, nor does anything a request does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.events import EventBus, SteeringUpdated
from engine.saes.attachment import Attachment
from engine.steering import transitions as moves
from engine.steering.live import (
    AttachmentKey,
    LiveState,
    ServingCircuit,
    ServingProfile,
    circuit_labels,
    claimable_rung,
    profile_label,
    together,
)
from engine.steering.plan import EMPTY_PLAN, ResidualSpec, SteeringPlan, build_plan
from engine.steering.report import describe
from engine.steering.strengths import SteeredSet


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
        return moves.find_attachment(self.state, sae_id, layer)

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

    # --- model and attachments --------------------------------------------------------------------------------------

    def open(self, stream: ResidualSpec) -> None:
        """A model is resident: plans are made for its residual stream from now on."""
        self._change(lambda state: moves.open_for(state, stream), quiet=True)

    def close(self) -> None:
        """The model is going: nothing is attached and nothing steers."""
        self._change(lambda state: LiveState(version=state.version))

    def attach(self, attachments: Iterable[Attachment]) -> None:
        """Put SAEs in their places; one already there is replaced. A new one steers nothing yet."""
        new = tuple(attachments)
        self._change(lambda state: moves.attach(state, new))

    def detach(self, sae_id: str) -> tuple[Attachment, ...]:
        """Take an SAE away from every layer it is on, with its values, and return what was there.

        Circuits lose what they steer through it; a profile that steered through it has no place any more.
        """
        with self.changes() as draft:
            gone = tuple(each for each in draft.state.attachments if each.sae_id == sae_id)
            self._change(lambda state: moves.detach(state, sae_id))
        return gone

    # --- hand-set values --------------------------------------------------------------------------------------------

    def set_values(self, place: AttachmentKey, values: Mapping[int, float], *, replace_all: bool = False) -> None:
        """Merge checked strengths into a place's values (or make them the whole set) and switch it on.

        Raises :class:`InvalidFeatureIndex`, and :class:`SteeringInvalid` for NaN or a feature that a circuit steers.
        """
        self._change(lambda state: moves.set_values(state, place, values, replace_all=replace_all))

    def remove_value(self, place: AttachmentKey, index: int) -> None:
        """Take one feature out; the last one leaving also switches the place off."""
        self._change(lambda state: moves.remove_value(state, place, index))

    def clear(self, place: AttachmentKey) -> None:
        """Take all hand-set values out and, where no circuit steers there, switch the place off."""
        self._change(lambda state: moves.clear(state, place))

    def set_enabled(self, place: AttachmentKey, enabled: bool) -> None:
        """Switch a place on or off, values kept."""
        self._change(lambda state: moves.set_enabled(state, place, enabled))

    def restore(self, state: LiveState) -> None:
        """Bring hand-set values and switches back to those of an earlier state, as far as the SAEs are still there."""
        self._change(lambda now: moves.restore(now, state))

    # --- profiles and circuits --------------------------------------------------------------------------------------

    def activate_profile(self, profile: ServingProfile) -> int:
        """Make ``profile`` the active one: its values are the whole hand-set set of its place. Returns how many steer.

        An intensity of 0, or no values, clears the place and switches it off. Indices were checked by the caller.
        """
        self._change(lambda state: moves.activate_profile(state, profile))
        return sum(len(each.strengths) for each in profile.steered())

    def relabel_profile(self, profile: ServingProfile) -> None:
        """The active profile's row was edited: its name, and what a dial scales. What steers now stays as it is."""
        self._change(lambda state: moves.relabel_profile(state, profile), quiet=True)

    def deactivate_profile(self, profile_id: str, *, clear: bool = True) -> bool:
        """No profile is active any more; ``clear`` takes its values out. False when ``profile_id`` was not active."""
        with self.changes() as draft:
            active = draft.state.profile
            if active is None or active.profile_id != profile_id:
                return False
            self._change(lambda state: moves.deactivate_profile(state, clear=clear))
        return True

    def serve_circuit(self, circuit: ServingCircuit) -> tuple[SteeredSet, ...]:
        """Serve ``circuit``, or serve it anew at another intensity; returns what it adds.

        An intensity of 0 adds nothing. Raises :class:`SteeringInvalid` when it steers a feature someone else steers.
        """
        self._change(lambda state: moves.serve_circuit(state, circuit))
        return circuit.steered()

    def mark_composed(self, composed: Mapping[str, bool]) -> None:
        """Circuit id → whether it shares a layer; others stay. Part of a claim, so not a change of its own."""
        self._change(lambda state: moves.mark_composed(state, composed), quiet=True)

    def stop_circuit(self, circuit_id: str) -> bool:
        """Take a circuit's own contribution out; everybody else's stays. False when it was not serving."""
        with self.changes() as draft:
            if all(one.circuit_id != circuit_id for one in draft.state.circuits):
                return False
            self._change(lambda state: moves.stop_circuit(state, circuit_id))
        return True

    # --- the change -------------------------------------------------------------------------------------------------

    def _change(self, move: Callable[[LiveState], LiveState], *, quiet: bool = False) -> None:
        with self.changes() as draft:
            state = move(draft.state)
            if state == draft.state:
                return
            draft.snapshot = Snapshot(state, _plan_of(state))
            draft.loud = draft.loud or not quiet


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
            "enabled": state.entry(moves.place_of(each)).enabled,
            "values": {str(i): v for i, v in sorted(state.entry(moves.place_of(each)).values.items())},
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
