"""The live steering as one frozen value, and what it comes to: pure functions from state to sets, report and rung.

Each attached SAE has hand-set values and a switch; circuits that serve contribute beside them, under their own name, so
that one going leaves the others as they are. A profile in force is hand-set values with a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from engine.documents.binding import AttachedSae
from engine.documents.ranges import Range
from engine.saes.attachment import Attachment
from engine.steering.dial import CircuitBase, LiveBase, ProfileBase
from engine.steering.plan import ResidualSpec
from engine.steering.report import CircuitLabel, ProfileLabel
from engine.steering.strengths import SteeredSet, applied, combined

AttachmentKey = tuple[str, int]
"""(sae_id, layer): names an attachment."""

MANUAL = "hand-set values"


@dataclass(frozen=True)
class Entry:
    """The hand-set values of one attached SAE and its switch. Off keeps the values and adds nothing."""

    values: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    enabled: bool = False


@dataclass(frozen=True)
class ServingProfile:
    """The active profile or cluster: where it steers, from which authored strengths, at which intensity.

    ``place`` is None while it steers nothing (no values, or no SAE when it was activated).
    """

    profile_id: str
    name: str
    is_cluster: bool
    place: AttachmentKey | None
    authored: Mapping[int, float]
    intensity: float
    declared: Range | None = None

    def steered(self, intensity: float | None = None) -> tuple[SteeredSet, ...]:
        """What it comes to at ``intensity``, its own by default."""
        if self.place is None:
            return ()
        return (SteeredSet.of(*self.place, self.authored, self.intensity if intensity is None else intensity),)


@dataclass(frozen=True)
class ServingCircuit:
    """A circuit that serves in full: authored strengths by place, intensity, evidence.

    ``rung`` is None when its document could not be read again; ``composed``: it shares a layer;
    ``only_persistence``: every one of its edges is.
    """

    circuit_id: str
    name: str
    authored: Mapping[AttachmentKey, Mapping[int, float]]
    intensity: float
    rung: int | None
    declared: Range | None = None
    composed: bool = False
    only_persistence: bool = False

    def steered(self, intensity: float | None = None) -> tuple[SteeredSet, ...]:
        """What it comes to at ``intensity``, its own by default; sets that add nothing are left out."""
        factor = self.intensity if intensity is None else intensity
        sets = [SteeredSet.of(*place, values, factor) for place, values in self.authored.items()]
        return tuple(each for each in sets if not each.is_empty)


@dataclass(frozen=True)
class LiveState:
    """Everything that steers requests without steering of their own. Replaced whole, never changed."""

    version: int = 0
    stream: ResidualSpec | None = None
    attachments: tuple[Attachment, ...] = ()
    entries: Mapping[AttachmentKey, Entry] = field(default_factory=lambda: MappingProxyType({}))
    profile: ServingProfile | None = None
    circuits: tuple[ServingCircuit, ...] = ()

    @property
    def attached(self) -> tuple[AttachedSae, ...]:
        """The attachments as plain values, in the order they were made."""
        return tuple(
            AttachedSae(each.sae_id, each.layer, each.sae.config.d_sae, each.sae.config.d_in)
            for each in self.attachments
        )

    def entry(self, place: AttachmentKey) -> Entry:
        """The hand-set values at ``place``."""
        return self.entries.get(place, Entry())


def together(
    state: LiveState,
    *,
    circuits: Sequence[tuple[str, tuple[SteeredSet, ...]]] | None = None,
    manual: Mapping[AttachmentKey, Mapping[int, float]] | None = None,
) -> tuple[SteeredSet, ...]:
    """What ``state`` adds, one set per SAE that is switched on; ``circuits`` and ``manual`` replace its own.

    Raises :class:`SteeringInvalid` when two owners steer one feature.
    """
    shares = [(one.circuit_id, one.steered()) for one in state.circuits] if circuits is None else circuits
    sets: list[SteeredSet] = []
    for attachment in state.attachments:
        place = (attachment.sae_id, attachment.layer)
        entry = state.entry(place)
        if not entry.enabled:
            continue
        values = entry.values if manual is None else manual.get(place, {})
        owners: list[tuple[str, Mapping[int, float]]] = [(MANUAL, values)]
        owners += [
            (f"circuit {name}", each.values) for name, parts in shares for each in parts if _place(each) == place
        ]
        total = SteeredSet.of(*place, combined(owners))
        if not total.is_empty:
            sets.append(total)
    return tuple(sets)


def scaled_manual(state: LiveState, intensity: float) -> dict[AttachmentKey, dict[int, float]]:
    """All hand-set values times ``intensity``, clamped."""
    return {place: dict(applied(entry.values, intensity).strengths) for place, entry in state.entries.items()}


def redialled_profile(state: LiveState, intensity: float) -> dict[AttachmentKey, Mapping[int, float]]:
    """The hand-set values, the active profile's place at ``intensity`` from its authored strengths."""
    values: dict[AttachmentKey, Mapping[int, float]] = {place: entry.values for place, entry in state.entries.items()}
    if state.profile is not None:
        for each in state.profile.steered(intensity):
            values[_place(each)] = each.values
    return values


def profile_label(state: LiveState, intensity: float | None = None) -> ProfileLabel | None:
    """What the active profile is called and comes to."""
    profile = state.profile
    if profile is None:
        return None
    factor = profile.intensity if intensity is None else intensity
    return ProfileLabel(profile.steered(factor), profile.name, factor)


def circuit_labels(state: LiveState, intensity: float | None = None) -> list[CircuitLabel]:
    """What the serving circuits are called and come to; ``intensity`` is a request's dial over the only one."""
    return [
        CircuitLabel(
            one.steered(intensity),
            one.circuit_id,
            one.intensity if intensity is None else intensity,
            one.composed,
            one.only_persistence,
        )
        for one in state.circuits
    ]


def claimable_rung(state: LiveState, sets: Sequence[SteeredSet], intensity: float | None = None) -> int | None:
    """The rung that may be claimed for what ``sets`` add: of the one circuit that truly steers, alone on its layers."""
    steering = [one for one in state.circuits if one.steered(intensity)]
    if len(steering) != 1:
        return None
    (circuit,) = steering
    if circuit.composed or circuit.rung is None:
        return None
    there = {_place(each): set(each.strengths) for each in sets}
    whole = all(set(part.strengths) <= there.get(_place(part), set()) for part in circuit.steered(intensity))
    return circuit.rung if whole else None


def circuit_steers(state: LiveState, circuit: ServingCircuit) -> bool:
    """Whether a circuit adds anything now: an SAE that is switched off adds nothing."""
    return any(state.entry(_place(part)).enabled for part in circuit.steered())


def profile_steers(state: LiveState) -> bool:
    """Whether the active profile's place has values and is on."""
    if state.profile is None or state.profile.place is None:
        return False
    entry = state.entry(state.profile.place)
    return entry.enabled and bool(entry.values)


def bases(state: LiveState) -> tuple[list[CircuitBase], ProfileBase | None, LiveBase]:
    """What a request's dial may act on: the serving circuits, the active profile, the hand-set values."""
    circuits = [CircuitBase(one.declared, circuit_steers(state, one)) for one in state.circuits]
    active = None
    if state.profile is not None:
        place = state.profile.place
        active = ProfileBase(
            has_values=bool(state.profile.authored),
            is_cluster=state.profile.is_cluster,
            stored=state.profile.intensity,
            declared=state.profile.declared,
            enabled=place is not None and state.entry(place).enabled,
        )
    entries = state.entries.values()
    live = LiveBase(any(one.values for one in entries), any(one.enabled and one.values for one in entries))
    return circuits, active, live


def _place(each: SteeredSet) -> AttachmentKey:
    return each.sae_id, each.layer
