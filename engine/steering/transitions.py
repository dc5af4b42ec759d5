"""From one live state to the next: pure functions, one per kind of change. ``SteeringDesk.apply`` puts them in place.

Each is called without the state and gives a :class:`Transition`. It raises before there is anything to undo, and one
that changes nothing gives back an equal state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from engine.errors import SaeNotAttached
from engine.saes.attachment import Attachment
from engine.steering.live import AttachmentKey, Entry, LiveState, ServingCircuit, ServingProfile
from engine.steering.plan import ResidualSpec
from engine.steering.strengths import clamp
from engine.steering.targets import pairs, require_indices

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")


@dataclass(frozen=True)
class Transition:
    """One change of the live state.

    Attributes:
        quiet: What steers is no other afterwards: neither an event nor a new number of the plan.
    """

    change: Callable[[LiveState], LiveState]
    quiet: bool = False


def _transition(change: Callable[Concatenate[LiveState, P], LiveState]) -> Callable[P, Transition]:
    @wraps(change)
    def make(*args: P.args, **kwargs: P.kwargs) -> Transition:
        return Transition(lambda state: change(state, *args, **kwargs))

    return make


def _quiet(change: Callable[Concatenate[LiveState, P], LiveState]) -> Callable[P, Transition]:
    @wraps(change)
    def make(*args: P.args, **kwargs: P.kwargs) -> Transition:
        return Transition(lambda state: change(state, *args, **kwargs), quiet=True)

    return make


def find_attachment(state: LiveState, sae_id: str | None = None, layer: int | None = None) -> Attachment:
    """The attachment that fits; the first one when nothing is named. Raises :class:`SaeNotAttached`."""
    for each in state.attachments:
        if sae_id in (None, each.sae_id) and layer in (None, each.layer):
            return each
    wanted = "No SAE is attached." if sae_id is None else f"The SAE {sae_id!r} is not attached."
    raise SaeNotAttached(
        wanted if layer is None else f"{wanted[:-1]} at layer {layer}.",
        param="sae_id",
        details={
            "attached_sae_ids": [each.sae_id for each in state.attachments],
            "attached": pairs(state.attached),
        },
        remedy="Attach an SAE first.",
    )


def place_of(attachment: Attachment) -> AttachmentKey:
    """The name of an attachment."""
    return attachment.sae_id, attachment.layer


# --- attachments ------------------------------------------------------------------------------------------------------


@_quiet
def open_for(state: LiveState, stream: ResidualSpec) -> LiveState:
    """Ready for a model that has come. A profile made active before it keeps its label and steers nothing yet."""
    profile = None if state.profile is None else replace(state.profile, place=None)
    return LiveState(version=state.version, stream=stream, profile=profile)


@_transition
def close(state: LiveState) -> LiveState:
    """The model is going: nothing is attached and nothing steers."""
    return LiveState(version=state.version)


@_transition
def attach(state: LiveState, attachments: Sequence[Attachment]) -> LiveState:
    """With these SAEs attached; one that takes the place of another keeps that one's turn. A new one steers nothing."""
    new = {place_of(each): each for each in attachments}
    kept = [new.pop(place_of(each), each) for each in state.attachments]
    return replace(state, attachments=(*kept, *new.values()))


@_transition
def detach(state: LiveState, sae_id: str) -> LiveState:
    """Without the SAE, on every layer; circuits lose what they steer through it, a profile its place.

    What is left of a circuit has not the whole one's evidence, so its rung goes too.
    """
    places = {place_of(each) for each in state.attachments if each.sae_id == sae_id}
    profile = state.profile
    if profile is not None and profile.place in places:
        profile = replace(profile, place=None)
    return replace(
        state,
        attachments=tuple(each for each in state.attachments if each.sae_id != sae_id),
        entries=_without(state.entries, places),
        profile=profile,
        circuits=tuple(_partly_without(one, places) for one in state.circuits),
    )


def _partly_without(circuit: ServingCircuit, places: set[AttachmentKey]) -> ServingCircuit:
    if not places & circuit.authored.keys():
        return circuit
    return replace(circuit, authored=_without(circuit.authored, places), rung=None)


# --- hand-set values --------------------------------------------------------------------------------------------------


@_transition
def set_values(
    state: LiveState, place: AttachmentKey, values: Mapping[int, float], *, replace_all: bool = False
) -> LiveState:
    """With ``values`` merged into a place's (or as its whole set), and the place on.

    Raises :class:`InvalidFeatureIndex`, and :class:`SteeringInvalid` for NaN or a feature that a circuit steers.
    """
    attached = next(each for each in state.attached if (each.sae_id, each.layer) == _require(state, place))
    require_indices(values, attached, what="the change", param="feature_idx")
    wanted = {index: clamp(value) + 0.0 for index, value in values.items()}
    old = {} if replace_all else state.entry(place).values
    return _with_entry(state, place, Entry(frozen({**old, **wanted}), enabled=True))


@_transition
def remove_value(state: LiveState, place: AttachmentKey, index: int) -> LiveState:
    """Without one feature; the last one leaving switches the place off."""
    entry = state.entry(_require(state, place))
    left = {i: v for i, v in entry.values.items() if i != index}
    return _with_entry(state, place, Entry(frozen(left), entry.enabled and (bool(left) or _served(state, place))))


@_transition
def clear(state: LiveState, place: AttachmentKey) -> LiveState:
    """Without hand-set values at a place, which is then off where no circuit steers."""
    return _cleared(state, _require(state, place))


@_transition
def set_enabled(state: LiveState, place: AttachmentKey, enabled: bool) -> LiveState:
    """With a place switched on or off, values kept."""
    return _with_entry(state, place, replace(state.entry(_require(state, place)), enabled=enabled))


@_transition
def restore(state: LiveState, earlier: LiveState) -> LiveState:
    """With the hand-set values and switches of ``earlier``, as far as the SAEs are still there."""
    there = {place_of(each) for each in state.attachments}
    return replace(state, entries=frozen({p: e for p, e in earlier.entries.items() if p in there}))


# --- profiles and circuits --------------------------------------------------------------------------------------------


@_transition
def activate_profile(state: LiveState, profile: ServingProfile) -> LiveState:
    """With ``profile`` active; its values are the whole hand-set set of its place, those of the one before are gone.

    An intensity of 0, or no values, clears the place and switches it off. Indices were checked by the caller.
    """
    if state.profile is not None and state.profile.place not in (None, profile.place):
        state = _cleared(state, state.profile.place)
    if profile.place is not None:
        place = _require(state, profile.place)
        values = {index: value for each in profile.steered() for index, value in each.strengths}
        state = _with_entry(state, place, Entry(frozen(values), bool(values) or _served(state, place)))
    return replace(state, profile=profile)


@_quiet
def relabel_profile(state: LiveState, profile: ServingProfile) -> LiveState:
    """With the active profile known as ``profile`` where it is that one; where and how much it steers stays."""
    now = state.profile
    if now is None or now.profile_id != profile.profile_id:
        return state
    return replace(state, profile=replace(profile, place=now.place, intensity=now.intensity))


@_transition
def deactivate_profile(state: LiveState, profile_id: str, *, clear: bool = True) -> LiveState:
    """Without an active profile where it is that one; ``clear`` takes its values out."""
    active = state.profile
    if active is None or active.profile_id != profile_id:
        return state
    if clear and active.place is not None:
        state = _cleared(state, active.place)
    return replace(state, profile=None)


@_transition
def serve_circuit(state: LiveState, circuit: ServingCircuit) -> LiveState:
    """With ``circuit`` serving, in the stead of what it added before; an intensity of 0 adds nothing.

    Raises :class:`SteeringInvalid` when it steers a feature that someone else steers.
    """
    for place in circuit.authored:
        _require(state, place)
    before = next((one for one in state.circuits if one.circuit_id == circuit.circuit_id), None)
    circuits = tuple(circuit if one is before else one for one in state.circuits)
    if before is None:
        circuits = (*circuits, circuit)
    state = replace(state, circuits=circuits)
    return _switched(state, [*circuit.authored, *(before.authored if before else ())])


@_transition
def stop_circuit(state: LiveState, circuit_id: str) -> LiveState:
    """Without what a circuit adds; everybody else's stays."""
    going = [one for one in state.circuits if one.circuit_id == circuit_id]
    state = replace(state, circuits=tuple(one for one in state.circuits if one.circuit_id != circuit_id))
    return _switched(state, [place for one in going for place in one.authored])


@_quiet
def mark_composed(state: LiveState, composed: Mapping[str, bool]) -> LiveState:
    """With circuits marked as sharing a layer or not; those not named stay as they are. Part of a claim."""
    circuits = tuple(replace(one, composed=composed.get(one.circuit_id, one.composed)) for one in state.circuits)
    return replace(state, circuits=circuits)


# --- steps ------------------------------------------------------------------------------------------------------------


def frozen(values: Mapping[K, V]) -> Mapping[K, V]:
    """A read-only copy."""
    return MappingProxyType(dict(values))


def _require(state: LiveState, place: AttachmentKey) -> AttachmentKey:
    return place_of(find_attachment(state, *place))


def _without(values: Mapping[AttachmentKey, V], places: Iterable[AttachmentKey]) -> Mapping[AttachmentKey, V]:
    gone = set(places)
    return frozen({place: value for place, value in values.items() if place not in gone})


def _with_entry(state: LiveState, place: AttachmentKey, entry: Entry) -> LiveState:
    if entry == state.entry(place):
        return state
    others = _without(state.entries, [place])
    # A place without values that is off is as if it had never been touched.
    return replace(state, entries=others if entry == Entry() else frozen({**others, place: entry}))


def _served(state: LiveState, place: AttachmentKey) -> bool:
    """Whether a circuit adds anything at ``place``."""
    return any((each.sae_id, each.layer) == place for one in state.circuits for each in one.steered())


def _cleared(state: LiveState, place: AttachmentKey) -> LiveState:
    return _with_entry(state, place, Entry(enabled=state.entry(place).enabled and _served(state, place)))


def _switched(state: LiveState, places: Iterable[AttachmentKey]) -> LiveState:
    """Switch places on where a circuit adds something, and off where nobody has anything left to add."""
    for place in places:
        entry = state.entry(place)
        if _served(state, place):
            state = _with_entry(state, place, replace(entry, enabled=True))
        elif not entry.values:
            state = _with_entry(state, place, Entry())
    return state
