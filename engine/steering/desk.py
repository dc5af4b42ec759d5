"""The steering desk: the one holder of what steers live, and the only place that changes it.

A change makes a new state and its plan first and then puts both in place at once, so that a refused change leaves
everything as it was, bit for bit, and readers never see half of one. Every change by a person or a management call
raises the live plan's number by one; a change that changes nothing does not, nor does anything a request does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from engine.errors import SaeNotAttached
from engine.events import EventBus, SteeringUpdated
from engine.saes.attachment import Attachment
from engine.steering.live import (
    Entry,
    LiveState,
    Place,
    ServingCircuit,
    ServingProfile,
    circuit_labels,
    claimable_rung,
    profile_label,
    together,
)
from engine.steering.plan import EMPTY_PLAN, SteeringPlan, Stream, build_plan
from engine.steering.report import describe
from engine.steering.strengths import SteeredSet, clamp
from engine.steering.targets import pairs, require_indices

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Snapshot:
    """State and plan of one moment; they belong together."""

    state: LiveState
    plan: SteeringPlan


class SteeringDesk:
    """Live state and plan. All methods may be called from any thread; reading never blocks."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._lock = threading.RLock()
        self._now = Snapshot(LiveState(), EMPTY_PLAN)

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Snapshot:
        """State and live plan, from the same moment."""
        return self._now

    @property
    def state(self) -> LiveState:
        """The live state."""
        return self._now.state

    @property
    def live_plan(self) -> SteeringPlan:
        """What requests without steering of their own run with."""
        return self._now.plan

    def attachment(self, sae_id: str | None = None, layer: int | None = None) -> Attachment:
        """The attachment that fits; the first one when nothing is named. Raises :class:`SaeNotAttached`."""
        for each in self.state.attachments:
            if sae_id in (None, each.sae_id) and layer in (None, each.layer):
                return each
        wanted = "No SAE is attached." if sae_id is None else f"The SAE {sae_id!r} is not attached."
        raise SaeNotAttached(
            wanted if layer is None else f"{wanted[:-1]} at layer {layer}.",
            param="sae_id",
            details={
                "attached_sae_ids": [each.sae_id for each in self.state.attachments],
                "attached": pairs(self.state.attached),
            },
            remedy="Attach an SAE first.",
        )

    # --- model and attachments --------------------------------------------------------------------------------------

    def open(self, stream: Stream) -> None:
        """A model is resident: plans are made for its residual stream from now on."""
        self._change(lambda state: LiveState(version=state.version, stream=stream), quiet=True)

    def close(self) -> None:
        """The model is going: nothing is attached and nothing steers."""
        self._change(lambda state: LiveState(version=state.version))

    def attach(self, attachments: Iterable[Attachment]) -> None:
        """Put SAEs in their places; one already there is replaced. They steer nothing yet."""
        new = tuple(attachments)
        places = {_place(each) for each in new}

        def change(state: LiveState) -> LiveState:
            kept = tuple(each for each in state.attachments if _place(each) not in places)
            return replace(state, attachments=kept + new)

        self._change(change)

    def detach(self, sae_id: str) -> tuple[Attachment, ...]:
        """Take an SAE away from every layer it is on, with its values, and return what was there.

        Circuits lose what they steer through it; a profile that steered through it has no place any more.
        """
        gone = tuple(each for each in self.state.attachments if each.sae_id == sae_id)
        places = {_place(each) for each in gone}

        def change(state: LiveState) -> LiveState:
            profile = state.profile
            if profile is not None and profile.place in places:
                profile = replace(profile, place=None)
            circuits = tuple(replace(one, authored=_without(one.authored, places)) for one in state.circuits)
            return replace(
                state,
                attachments=tuple(each for each in state.attachments if each.sae_id != sae_id),
                entries=_without(state.entries, places),
                profile=profile,
                circuits=circuits,
            )

        self._change(change)
        return gone

    # --- hand-set values --------------------------------------------------------------------------------------------

    def set_values(self, place: Place, values: Mapping[int, float], *, replace_all: bool = False) -> None:
        """Merge checked strengths into a place's values (or make them the whole set) and switch it on.

        Raises :class:`InvalidFeatureIndex`, and :class:`SteeringInvalid` for NaN or a feature that a circuit steers.
        """
        attached = next(each for each in self.state.attached if (each.sae_id, each.layer) == self._require(place))
        require_indices(values, attached, what="the change", param="feature_idx")
        wanted = {index: clamp(value) + 0.0 for index, value in values.items()}

        def change(state: LiveState) -> LiveState:
            old = {} if replace_all else dict(state.entry(place).values)
            return _with_entry(state, place, Entry(_frozen({**old, **wanted}), enabled=True))

        self._change(change)

    def remove_value(self, place: Place, index: int) -> None:
        """Take one feature out; the last one leaving also switches the place off."""
        self._require(place)

        def change(state: LiveState) -> LiveState:
            entry = state.entry(place)
            left = {i: v for i, v in entry.values.items() if i != index}
            return _with_entry(
                state, place, Entry(_frozen(left), entry.enabled and bool(left or _served(state, place)))
            )

        self._change(change)

    def clear(self, place: Place) -> None:
        """Take all hand-set values out and, where no circuit steers there, switch the place off."""
        self._require(place)
        self._change(lambda state: _cleared(state, place))

    def set_enabled(self, place: Place, enabled: bool) -> None:
        """Switch a place on or off, values kept."""
        self._require(place)
        self._change(lambda state: _with_entry(state, place, replace(state.entry(place), enabled=enabled)))

    def restore(self, state: LiveState) -> None:
        """Bring hand-set values and switches back to those of an earlier state, as far as the SAEs are still there."""
        there = {_place(each) for each in self.state.attachments}
        entries = {place: entry for place, entry in state.entries.items() if place in there}
        self._change(lambda now: replace(now, entries=_frozen(entries)))

    # --- profiles and circuits --------------------------------------------------------------------------------------

    def activate_profile(self, profile: ServingProfile) -> int:
        """Make ``profile`` the active one: its values are the whole hand-set set of its place. Returns how many steer.

        An intensity of 0, or no values, clears the place and switches it off. Indices were checked by the caller.
        """
        steered = profile.steered()
        count = sum(len(each.strengths) for each in steered)

        def change(state: LiveState) -> LiveState:
            if state.profile is not None and state.profile.place not in (None, profile.place):
                state = _cleared(state, state.profile.place)
            if profile.place is not None:
                self._require(profile.place)
                values = steered[0].values if steered else {}
                on = bool(values) or bool(_served(state, profile.place))
                state = _with_entry(state, profile.place, Entry(_frozen(values), enabled=on))
            return replace(state, profile=profile)

        self._change(change)
        return count

    def deactivate_profile(self, profile_id: str, *, clear: bool = True) -> bool:
        """No profile is active any more; ``clear`` takes its values out. False when ``profile_id`` was not active."""
        active = self.state.profile
        if active is None or active.profile_id != profile_id:
            return False

        def change(state: LiveState) -> LiveState:
            if clear and active.place is not None:
                state = _cleared(state, active.place)
            return replace(state, profile=None)

        self._change(change)
        return True

    def serve_circuit(self, circuit: ServingCircuit) -> tuple[SteeredSet, ...]:
        """Serve ``circuit``, or serve it anew at another intensity; returns what it adds.

        An intensity of 0 adds nothing. Raises :class:`SteeringInvalid` when it steers a feature someone else steers.
        """
        for place in circuit.authored:
            self._require(place)

        def change(state: LiveState) -> LiveState:
            others = tuple(one for one in state.circuits if one.circuit_id != circuit.circuit_id)
            state = replace(state, circuits=(*others, circuit))
            return _switched(state, circuit.authored)

        self._change(change)
        return circuit.steered()

    def mark_composed(self, composed: Mapping[str, bool]) -> None:
        """Circuit id → whether it shares a layer; others stay. Part of a claim, so not a change of its own."""

        def change(state: LiveState) -> LiveState:
            circuits = tuple(
                replace(one, composed=composed.get(one.circuit_id, one.composed)) for one in state.circuits
            )
            return replace(state, circuits=circuits)

        self._change(change, quiet=True)

    def stop_circuit(self, circuit_id: str) -> bool:
        """Take a circuit's own contribution out; everybody else's stays. False when it was not serving."""
        serving = next((one for one in self.state.circuits if one.circuit_id == circuit_id), None)
        if serving is None:
            return False

        def change(state: LiveState) -> LiveState:
            state = replace(state, circuits=tuple(one for one in state.circuits if one.circuit_id != circuit_id))
            return _switched(state, serving.authored)

        self._change(change)
        return True

    # --- the change -------------------------------------------------------------------------------------------------

    def _change(self, change: Callable[[LiveState], LiveState], *, quiet: bool = False) -> None:
        with self._lock:
            old = self._now
            state = change(old.state)
            if state == old.state:
                return
            if not quiet:
                state = replace(state, version=old.state.version + 1)
            self._now = Snapshot(state, _plan_of(state))
            snapshot = self._now
        if not quiet:
            self._events.publish(_event(snapshot))

    def _require(self, place: Place) -> Place:
        return _place(self.attachment(*place))


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
            "enabled": state.entry(_place(each)).enabled,
            "values": {str(i): v for i, v in sorted(state.entry(_place(each)).values.items())},
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


def _place(each: Attachment) -> Place:
    return each.sae_id, each.layer


def _frozen(values: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(values))


def _without(values: Mapping[Place, V], places: Iterable[Place]) -> Mapping[Place, V]:
    gone = set(places)
    return _frozen({place: value for place, value in values.items() if place not in gone})


def _with_entry(state: LiveState, place: Place, entry: Entry) -> LiveState:
    return replace(state, entries=_frozen({**state.entries, place: entry}))


def _served(state: LiveState, place: Place) -> bool:
    """Whether a circuit adds anything at ``place``."""
    return any((each.sae_id, each.layer) == place for one in state.circuits for each in one.steered())


def _cleared(state: LiveState, place: Place) -> LiveState:
    if place not in state.entries:
        return state
    return _with_entry(state, place, Entry(enabled=state.entry(place).enabled and _served(state, place)))


def _switched(state: LiveState, places: Iterable[Place]) -> LiveState:
    """Switch places on where a circuit adds something, and off where nobody has anything left to add."""
    for place in places:
        entry = state.entry(place)
        if _served(state, place):
            state = _with_entry(state, place, replace(entry, enabled=True))
        elif not entry.values:
            state = _with_entry(state, place, Entry())
    return state
