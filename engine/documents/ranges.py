"""Intensity ranges: the one parser, and the envelope a dial may move in. A dial value (λ) is a number from 0 to 2."""

from __future__ import annotations

from dataclasses import dataclass

from engine.documents.fields import GREATEST_INTENSITY, LEAST_INTENSITY, as_number

STEERING_RANGE = 200.0
"""Largest strength that is ever applied, either way."""

Range = tuple[float, float]


def parse_intensity_range(value: object) -> Range | None:
    """A declared ``intensity_range`` as (low, high); None when it is absent or cannot be read as two finite numbers.

    A swapped pair is sorted. Every consumer (import warnings, the dial of the window and of a request) reads it here.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    first, second = as_number(value[0]), as_number(value[1])
    if first is None or second is None:
        return None
    return (min(first, second), max(first, second))


@dataclass(frozen=True)
class Envelope:
    """Where a dial may stand: ``floor`` is what ``min`` means, ``ceiling`` what ``max`` means. 0 is allowed besides."""

    floor: float
    ceiling: float

    def __post_init__(self) -> None:
        if not (LEAST_INTENSITY <= self.floor <= self.ceiling <= GREATEST_INTENSITY):
            raise ValueError(f"not an intensity envelope: {self.floor} to {self.ceiling}")


@dataclass(frozen=True)
class DialBounds:
    """The configured bounds, for what declares no range (settings ``CLUSTER_…`` and ``CIRCUIT_INTENSITY_…``)."""

    cluster: Envelope = Envelope(0.5, 1.5)
    circuit: Envelope = Envelope(0.0, 2.0)


def cluster_envelope(declared: Range | None, bounds: DialBounds) -> Envelope:
    """A cluster's envelope: its declared range inside [0, 2], or the configured one."""
    return _overlap(declared, Envelope(LEAST_INTENSITY, GREATEST_INTENSITY)) or bounds.cluster


def manual_envelope(bounds: DialBounds) -> Envelope:
    """The envelope of a hand-made profile and of live values: the configured floor, the dial's own ceiling."""
    return Envelope(bounds.cluster.floor, GREATEST_INTENSITY)


def circuit_envelope(declared: Range | None, bounds: DialBounds) -> Envelope:
    """A circuit's envelope: its declared range inside the configured one, or the configured one when they miss."""
    return _overlap(declared, bounds.circuit) or bounds.circuit


def _overlap(declared: Range | None, within: Envelope) -> Envelope | None:
    if declared is None:
        return None
    low, high = max(declared[0], within.floor), min(declared[1], within.ceiling)
    return Envelope(low, high) if low <= high else None
