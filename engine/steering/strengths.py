"""From authored strengths to what is added: scale by the dial, clamp to ±200, drop zeros.

A strength multiplies a decoder row as it is stored. Scaling always starts from the authored strengths, never from
values applied before: clamping cannot be undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.documents.members import directional
from engine.documents.ranges import STEERING_RANGE
from engine.steering.errors import SteeringInvalid

__all__ = ["STEERING_RANGE", "Applied", "SteeredSet", "applied", "check_typed", "clamp", "combined", "directional"]


@dataclass(frozen=True)
class Applied:
    """What a set of authored strengths comes to: non-zero values by rising index, and how many were clamped."""

    strengths: tuple[tuple[int, float], ...]
    clamped: int


@dataclass(frozen=True)
class SteeredSet:
    """What is added through one attached SAE: non-zero clamped strengths by rising index."""

    sae_id: str
    layer: int
    strengths: tuple[tuple[int, float], ...]
    clamped: int = 0

    def __post_init__(self) -> None:
        indices = [index for index, _ in self.strengths]
        if indices != sorted(set(indices)) or (indices and indices[0] < 0):
            raise ValueError("a steered set names each feature once, in rising order")
        if any(value == 0 or clamp(value) != value for _, value in self.strengths):
            raise ValueError(f"a steered set holds non-zero strengths within ±{STEERING_RANGE:g}")

    @classmethod
    def of(cls, sae_id: str, layer: int, authored: Mapping[int, float], intensity: float = 1.0) -> SteeredSet:
        """The set that ``authored`` strengths come to at ``intensity``; raises as :func:`applied` does."""
        result = applied(authored, intensity)
        return cls(sae_id, layer, result.strengths, result.clamped)

    @property
    def values(self) -> dict[int, float]:
        """Feature index to strength."""
        return dict(self.strengths)

    @property
    def is_empty(self) -> bool:
        return not self.strengths


def clamp(value: float) -> float:
    """``value`` within ±200; raises :class:`SteeringInvalid` for NaN and infinities, which would become ±200."""
    if not math.isfinite(value):
        raise SteeringInvalid(f"A steering strength must be a finite number, not {value}.")
    return max(-STEERING_RANGE, min(STEERING_RANGE, value))


def applied(authored: Mapping[int, float], intensity: float = 1.0) -> Applied:
    """``authored`` (with their direction) times ``intensity``, clamped; zeros of either sign are dropped.

    Raises :class:`SteeringInvalid` when a strength or the intensity is not finite, whatever the other is.
    """
    if not math.isfinite(intensity):
        raise SteeringInvalid(f"A steering intensity must be a finite number, not {intensity}.")
    kept: list[tuple[int, float]] = []
    clamped = 0
    for index in sorted(authored):
        if not math.isfinite(authored[index]):
            raise SteeringInvalid(f"The strength of feature {index} must be a finite number, not {authored[index]}.")
        # Two finite numbers may multiply to infinity, which is beyond the range like any other large value.
        product = authored[index] * intensity
        value = max(-STEERING_RANGE, min(STEERING_RANGE, product))
        clamped += value != product
        if value != 0:
            kept.append((index, value))
    return Applied(tuple(kept), clamped)


def check_typed(value: float, *, param: str) -> float:
    """A strength a person typed, which is refused outside ±200 where a computed one is clamped."""
    if not math.isfinite(value) or abs(value) > STEERING_RANGE:
        raise SteeringInvalid(
            f"The strength {value:g} is outside −{STEERING_RANGE:g} to {STEERING_RANGE:g}.",
            param=param,
            remedy=f"Choose a strength between −{STEERING_RANGE:g} and {STEERING_RANGE:g}.",
        )
    return float(value)


def combined(owners: Iterable[tuple[str, Mapping[int, float]]]) -> dict[int, float]:
    """What several owners steer through one SAE, together; each pair is (owner, applied strengths).

    Raises :class:`SteeringInvalid` when two of them steer the same feature.
    """
    together: dict[int, float] = {}
    holder: dict[int, str] = {}
    for owner, strengths in owners:
        for index, value in strengths.items():
            if index in together:
                raise SteeringInvalid(
                    f"Feature {index} is steered by {holder[index]} and by {owner}.",
                    details={"feature_idx": index, "owners": [holder[index], owner]},
                    remedy="Deactivate one of them.",
                )
            together[index] = value
            holder[index] = owner
    return together
