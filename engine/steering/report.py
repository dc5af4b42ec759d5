"""The steering report: what was really added, as the text of ``X-miLLM-Steering`` (RFC 8941) and as plain values.

A label is earned by equal values, never taken from what was asked. Comparison of strengths is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from engine.steering.dial import shortest_decimal
from engine.steering.hashing import steering_set_hash
from engine.steering.strengths import SteeredSet
from engine.wire import LEFT_OUT


class UnknownReason(StrEnum):
    """Why nothing can be said for certain."""

    CLAIMS_UNREADABLE = "claims_unreadable"
    PROFILE_UNREADABLE = "profile_unreadable"
    LLAMACPP_ENTRIES = "llamacpp_entries"
    READ_FAILED = "read_failed"


class ProfileSource(StrEnum):
    """Whether a profile was named by the request or is the active one."""

    REQUEST = "request"
    ACTIVE = "active"


@dataclass(frozen=True)
class CircuitItem:
    """A circuit that steers; ``composed`` when it shares a layer with another.

    ``only_persistence``: every edge of it is; said with its evidence in words, no part of the protocol's text.
    """

    circuit_id: str
    intensity: float
    composed: bool = False
    only_persistence: bool = False


@dataclass(frozen=True)
class ProfileItem:
    """A steered SAE whose values are exactly a profile's."""

    steered: SteeredSet
    name: str
    source: ProfileSource
    intensity: float


@dataclass(frozen=True)
class InlineItem:
    """A steered SAE whose values are exactly those the request carried."""

    steered: SteeredSet


@dataclass(frozen=True)
class ManualItem:
    """A steered SAE with values nothing else accounts for."""

    steered: SteeredSet


SaeItem = ProfileItem | InlineItem | ManualItem


@dataclass(frozen=True)
class ToldItem:
    """A member of a report as it is told: what does not apply to its ``kind`` is left out.

    ``intensity`` is in the protocol's words; ``strengths`` are by feature index.
    """

    kind: str
    reason: UnknownReason | None = field(default=None, metadata=LEFT_OUT)
    id: str | None = field(default=None, metadata=LEFT_OUT)
    name: str | None = field(default=None, metadata=LEFT_OUT)
    source: ProfileSource | None = field(default=None, metadata=LEFT_OUT)
    intensity: str | None = field(default=None, metadata=LEFT_OUT)
    composed: bool = field(default=False, metadata=LEFT_OUT)
    only_persistence: bool = field(default=False, metadata=LEFT_OUT)
    sae: str | None = field(default=None, metadata=LEFT_OUT)
    layer: int | None = field(default=None, metadata=LEFT_OUT)
    features: int | None = field(default=None, metadata=LEFT_OUT)
    hash: str | None = field(default=None, metadata=LEFT_OUT)
    clamped: int | None = field(default=None, metadata=LEFT_OUT)
    strengths: Mapping[int, float] | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True)
class ToldReport:
    """A report as plain values; ``text`` is the header's value."""

    text: str
    changed: bool
    items: tuple[ToldItem, ...]


@dataclass(frozen=True)
class SteeringReport:
    """One answer's report; nothing in it means that nothing was added.

    ``changed`` says that the live plan moved under the answer. ``unknown`` excludes every item.
    """

    circuits: tuple[CircuitItem, ...] = ()
    items: tuple[SaeItem, ...] = ()
    unknown: UnknownReason | None = None
    changed: bool = False

    def __post_init__(self) -> None:
        if self.unknown and (self.circuits or self.items):
            raise ValueError("an unknown steering report has no items")
        if any(item.steered.is_empty for item in self.items):
            raise ValueError("a set that adds nothing is not reported")

    @property
    def only_persistence(self) -> bool:
        """Whether circuits steer and all edges of all of them are persistence."""
        return bool(self.circuits) and all(circuit.only_persistence for circuit in self.circuits)

    def text(self) -> str:
        """The header's value, and the final stream chunk's."""
        return ", ".join(_member(item, changed=self.changed) for item in self._told_items())

    def told(self) -> ToldReport:
        """The same as plain values, with the strengths, for the window."""
        return ToldReport(self.text(), self.changed, self._told_items())

    def _told_items(self) -> tuple[ToldItem, ...]:
        """In the protocol's order."""
        told = [] if self.unknown is None else [ToldItem("unknown", reason=self.unknown)]
        told += [_told_circuit(each) for each in sorted(self.circuits, key=lambda each: each.circuit_id)]
        told += [
            _told_sae(each) for each in sorted(self.items, key=lambda each: (each.steered.layer, each.steered.sae_id))
        ]
        return tuple(told) or (ToldItem("none"),)


NO_STEERING = SteeringReport()
"""Of an answer nothing was added to, and of every scoring pass."""


@dataclass(frozen=True)
class RequestLabel:
    """What a request carried: inline sets, or a profile by name at an intensity (then ``name`` is set)."""

    sets: tuple[SteeredSet, ...]
    name: str | None = None
    intensity: float = 1.0


@dataclass(frozen=True)
class ProfileLabel:
    """What the active profile comes to at its intensity (the dial's, where a dial acts on it)."""

    sets: tuple[SteeredSet, ...]
    name: str
    intensity: float


@dataclass(frozen=True)
class CircuitLabel:
    """What a circuit that serves in full comes to at its intensity."""

    sets: tuple[SteeredSet, ...]
    circuit_id: str
    intensity: float
    composed: bool = False
    only_persistence: bool = False


def describe(
    added: Sequence[SteeredSet],
    *,
    requested: RequestLabel | None = None,
    circuits: Sequence[CircuitLabel] = (),
    active: ProfileLabel | None = None,
    changed: bool = False,
) -> SteeringReport:
    """The report on ``added``, what the hooks really added, one set per steered SAE.

    A set is the request's if its values are exactly the request's; else a circuit's, as far as circuits that are whole
    account for it; else the active profile's if exactly equal; else manual.
    """
    by_place = {(each.sae_id, each.layer): each for each in added if not each.is_empty}
    whole = [label for label in circuits if _is_whole(label, by_place)]
    items: list[SaeItem] = []
    served: set[str] = set()
    for place, steered in by_place.items():
        own = _equal(steered, requested.sets) if requested else None
        if requested and own:
            if requested.name is None:
                items.append(InlineItem(own))
            else:
                items.append(ProfileItem(own, requested.name, ProfileSource.REQUEST, requested.intensity))
            continue
        claimants = [(label, part) for label in whole for part in label.sets if (part.sae_id, part.layer) == place]
        served.update(label.circuit_id for label, _ in claimants)
        explained = {pair for _, part in claimants for pair in part.strengths}
        if claimants and explained == set(steered.strengths):
            continue
        profile = _equal(steered, active.sets) if active and not claimants else None
        if active and profile:
            items.append(ProfileItem(profile, active.name, ProfileSource.ACTIVE, active.intensity))
        else:
            items.append(ManualItem(steered))
    return SteeringReport(
        circuits=tuple(
            CircuitItem(label.circuit_id, label.intensity, label.composed, label.only_persistence)
            for label in whole
            if label.circuit_id in served
        ),
        items=tuple(items),
        changed=changed,
    )


def _is_whole(label: CircuitLabel, by_place: dict[tuple[str, int], SteeredSet]) -> bool:
    for part in label.sets:
        there = by_place.get((part.sae_id, part.layer))
        if not part.is_empty and (there is None or not set(part.strengths) <= set(there.strengths)):
            return False
    return any(not part.is_empty for part in label.sets)


def _equal(steered: SteeredSet, candidates: Sequence[SteeredSet]) -> SteeredSet | None:
    for each in candidates:
        if (each.sae_id, each.layer, each.strengths) == (steered.sae_id, steered.layer, steered.strengths):
            return each
    return None


def _told_circuit(item: CircuitItem) -> ToldItem:
    return ToldItem(
        "circuit",
        id=item.circuit_id,
        intensity=shortest_decimal(item.intensity),
        composed=item.composed,
        only_persistence=item.only_persistence,
    )


def _told_sae(item: SaeItem) -> ToldItem:
    steered = item.steered
    told = ToldItem(
        {ProfileItem: "profile", InlineItem: "inline", ManualItem: "manual"}[type(item)],
        sae=steered.sae_id,
        layer=steered.layer,
        features=len(steered.strengths),
        hash=steering_set_hash(steered.sae_id, steered.values),
        clamped=None if isinstance(item, ManualItem) else steered.clamped or None,
        strengths=steered.values,
    )
    if isinstance(item, ProfileItem):
        return replace(told, name=item.name, source=item.source, intensity=shortest_decimal(item.intensity))
    return told


_NO_PARAMETERS = ("kind", "only_persistence", "strengths")
"""Of a told item; the others are parameters in the protocol's order."""


def _member(item: ToldItem, *, changed: bool) -> str:
    told = [(each.name, getattr(item, each.name)) for each in fields(item) if each.name not in _NO_PARAMETERS]
    if changed:
        told.append(("changed", True))
    said = (f";{name}{_parameter_value(value)}" for name, value in told if value is not None and value is not False)
    return item.kind + "".join(said)


def _parameter_value(value: str | int) -> str:
    if value is True:
        return ""
    if isinstance(value, StrEnum):
        return f"={value.value}"
    return f'="{_quotable(value)}"' if isinstance(value, str) else f"={value}"


def _quotable(text: str) -> str:
    """``text`` percent-encoded outside 0x20–0x7E and for percent, quote and backslash: nothing left needs an escape."""
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if 0x20 <= b <= 0x7E and b not in b'%"\\' else f"%{b:02X}" for b in raw)
