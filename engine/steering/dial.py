"""The dial (λ): reading it, holding it inside an envelope, and deciding what it acts on.

A dial is absolute: it replaces a stored intensity and never multiplies with it. Clusters cap it at the top only, so
that turning down is always honoured; circuits hold it at both ends. 0 and ``off`` are always allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from engine.documents.fields import GREATEST_INTENSITY, LEAST_INTENSITY, as_number
from engine.documents.ranges import (
    DialBounds,
    Envelope,
    Range,
    circuit_envelope,
    cluster_envelope,
    manual_envelope,
)
from engine.errors import InvalidParameter, described
from engine.steering.errors import SteeringInvalid

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class DialWord(StrEnum):
    """The symbolic settings."""

    OFF = "off"
    MIN = "min"
    MAX = "max"


Dial = float | DialWord


def parse_dial(value: object, *, param: str = "steering_intensity") -> Dial | None:
    """A request's dial: a number from 0 to 2, the same as decimal text, or ``off``, ``min``, ``max``; None is absent.

    Raises :class:`InvalidParameter` for anything else, booleans and NaN included.
    """
    if value is None:
        return None
    number = as_number(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in set(DialWord):
            return DialWord(word)
        number = as_number(float(word)) if _DECIMAL.fullmatch(word) else None
    if number is None or not LEAST_INTENSITY <= number <= GREATEST_INTENSITY:
        raise InvalidParameter(
            f"Invalid value for '{param}': expected a number from 0 to 2, 'off', 'min' or 'max'; "
            f"received {described(value)}.",
            param=param,
        )
    return number + 0.0  # −0.0 becomes 0.0


def cluster_dial(dial: Dial, envelope: Envelope) -> float:
    """The intensity of a cluster, profile or live base: capped at the ceiling, honoured below the floor."""
    if isinstance(dial, DialWord):
        return _symbolic(dial, envelope)
    return min(dial, envelope.ceiling)


def circuit_dial(dial: Dial, envelope: Envelope) -> float:
    """The intensity of a circuit: held at both ends, except that 0 is 0."""
    if isinstance(dial, DialWord):
        return _symbolic(dial, envelope)
    return 0.0 if dial == 0 else max(envelope.floor, min(dial, envelope.ceiling))


def cluster_setting(value: object, envelope: Envelope) -> float:
    """A persistent intensity typed for a cluster: from 0 to the ceiling, else :class:`SteeringInvalid`."""
    return _setting(value, envelope.ceiling)


def circuit_setting(value: object, bounds: DialBounds) -> float:
    """A persistent intensity typed for a circuit, held inside the configured envelope; raises as above."""
    return circuit_dial(_setting(value, GREATEST_INTENSITY), bounds.circuit)


@dataclass(frozen=True)
class ProfileBase:
    """A profile or cluster a dial may act on. ``enabled``: whether live steering is on (asked of the active one).

    ``stored`` is its persistent intensity; ``declared`` the range its document declares.
    """

    has_values: bool
    is_cluster: bool = False
    stored: float = 1.0
    declared: Range | None = None
    enabled: bool = True

    def envelope(self, bounds: DialBounds) -> Envelope:
        """Where its dial may stand."""
        return cluster_envelope(self.declared, bounds) if self.is_cluster else manual_envelope(bounds)


@dataclass(frozen=True)
class CircuitBase:
    """A circuit serving in full. ``steers`` is whether it holds live values now."""

    declared: Range | None = None
    steers: bool = True


@dataclass(frozen=True)
class LiveBase:
    """The live values of the attached SAEs."""

    has_values: bool
    enabled: bool


class Action(StrEnum):
    """What a request runs with. All but the first replace the live plan, or a part of it, for this request."""

    FOLLOW_LIVE = "follow_live"
    UNSTEERED = "unsteered"
    NAMED_PROFILE = "named_profile"
    CIRCUIT = "circuit"
    ACTIVE_PROFILE = "active_profile"
    LIVE_VALUES = "live_values"


@dataclass(frozen=True)
class Decision:
    """The outcome. ``intensity`` is the resolved λ, None where none applies; ``dialled``: the request's dial set it."""

    action: Action
    intensity: float | None = None
    dialled: bool = False


_FOLLOW = Decision(Action.FOLLOW_LIVE)


def decide(
    dial: Dial | None,
    *,
    named: ProfileBase | None = None,
    circuits: Sequence[CircuitBase] = (),
    active: ProfileBase | None = None,
    live: LiveBase,
    bounds: DialBounds,
) -> Decision:
    """What a request with ``dial`` runs with.

    Args:
        dial: The request's dial, None when it has none.
        named: The profile the request names, None when it names none.
        circuits: Every circuit that serves in full. One is the base of a dial; several silence it: no one λ is theirs.
        active: The active profile or cluster, None when there is none.
        live: The live values, base of a dial when nothing else is.
        bounds: The configured bounds.
    """
    if named is not None:
        return _decide_named(dial, named, bounds)
    if dial is None:
        return _FOLLOW
    if dial == 0 or dial is DialWord.OFF:
        return Decision(Action.UNSTEERED, 0.0, dialled=True)
    if len(circuits) > 1:
        return _FOLLOW
    if circuits:
        if not circuits[0].steers:
            return _FOLLOW
        envelope = circuit_envelope(circuits[0].declared, bounds)
        return _scaled(Action.CIRCUIT, circuit_dial(dial, envelope))
    if active is not None:
        if not (active.has_values and active.enabled):
            return _FOLLOW
        return _scaled(Action.ACTIVE_PROFILE, cluster_dial(dial, active.envelope(bounds)))
    if not (live.has_values and live.enabled):
        return _FOLLOW
    return _scaled(Action.LIVE_VALUES, cluster_dial(dial, manual_envelope(bounds)))


def dial_echo(decision: Decision, *, plan_changed: bool) -> str | None:
    """The value of ``X-miLLM-Steering-Intensity``; None when the dial changed nothing and the header is left out."""
    if not (decision.dialled and plan_changed) or decision.intensity is None:
        return None
    return "0" if decision.intensity == 0 else shortest_decimal(decision.intensity)


def shortest_decimal(value: float) -> str:
    """The shortest decimal text that reads back as ``value``, without an exponent: 1.0 is ``1.0``."""
    return format(Decimal(repr(value)), "f")


def _decide_named(dial: Dial | None, named: ProfileBase, bounds: DialBounds) -> Decision:
    dialled = dial is not None
    intensity = named.stored if dial is None else cluster_dial(dial, named.envelope(bounds))
    if intensity == 0:
        return Decision(Action.UNSTEERED, 0.0, dialled)
    if not named.has_values:
        return Decision(Action.UNSTEERED)
    return Decision(Action.NAMED_PROFILE, intensity, dialled)


def _scaled(action: Action, intensity: float) -> Decision:
    """A dial that came out at 0 is off, whatever word it was."""
    return Decision(action if intensity else Action.UNSTEERED, intensity, dialled=True)


def _symbolic(word: DialWord, envelope: Envelope) -> float:
    return {DialWord.OFF: 0.0, DialWord.MIN: envelope.floor, DialWord.MAX: envelope.ceiling}[word]


def _setting(value: object, ceiling: float) -> float:
    number = as_number(value)
    if number is None or not LEAST_INTENSITY <= number <= ceiling:
        raise SteeringInvalid(
            f"The intensity {value!r} is not a number from 0 to {ceiling:g}."
            if isinstance(value, int | float)
            else f"The intensity must be a number from 0 to {ceiling:g}.",
            param="intensity",
            remedy=f"Choose an intensity from 0 to {ceiling:g}.",
        )
    return number + 0.0
