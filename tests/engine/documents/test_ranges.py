from __future__ import annotations

from typing import Any

import pytest

from engine.documents.ranges import (
    DialBounds,
    Envelope,
    circuit_envelope,
    cluster_envelope,
    manual_envelope,
    parse_intensity_range,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0.5, 1.5], (0.5, 1.5)),
        ((1, 2), (1.0, 2.0)),
        ([1.5, 0.5], (0.5, 1.5)),
        ([1, 1], (1.0, 1.0)),
        ([-1, 3], (-1.0, 3.0)),
        ([0, 1, 2], None),
        ([1], None),
        ([], None),
        (None, None),
        ("0-1", None),
        ({"lo": 0, "hi": 1}, None),
        ([True, 2], None),
        ([0, float("nan")], None),
        ([0, float("inf")], None),
        ([0, 10**400], None),
        (["0", "1"], None),
        ([None, 1], None),
        ([[0], [1]], None),
    ],
)
def test_what_is_a_range(value: Any, expected: tuple[float, float] | None) -> None:
    assert parse_intensity_range(value) == expected


@pytest.mark.parametrize(
    ("declared", "cluster", "circuit"),
    [
        (None, (0.5, 1.5), (0.0, 2.0)),
        ((0.25, 1.75), (0.25, 1.75), (0.25, 1.75)),
        ((-1.0, 1.0), (0.0, 1.0), (0.0, 1.0)),
        ((1.0, 5.0), (1.0, 2.0), (1.0, 2.0)),
        ((3.0, 4.0), (0.5, 1.5), (0.0, 2.0)),
        ((-2.0, -1.0), (0.5, 1.5), (0.0, 2.0)),
        ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    ],
)
def test_envelopes(
    declared: tuple[float, float] | None, cluster: tuple[float, float], circuit: tuple[float, float]
) -> None:
    assert cluster_envelope(declared, DialBounds()) == Envelope(*cluster)
    assert circuit_envelope(declared, DialBounds()) == Envelope(*circuit)


def test_configured_bounds() -> None:
    bounds = DialBounds(Envelope(0.2, 0.9), Envelope(0.4, 1.2))
    assert cluster_envelope(None, bounds) == Envelope(0.2, 0.9)
    assert cluster_envelope((0.0, 2.0), bounds) == Envelope(0.0, 2.0)
    assert circuit_envelope((0.0, 1.0), bounds) == Envelope(0.4, 1.0)
    assert circuit_envelope((0.0, 0.3), bounds) == Envelope(0.4, 1.2)
    assert manual_envelope(bounds) == Envelope(0.2, 2.0)


@pytest.mark.parametrize(("floor", "ceiling"), [(1.0, 0.5), (-0.1, 1.0), (0.0, 2.1), (float("nan"), 1.0)])
def test_an_impossible_envelope_is_refused(floor: float, ceiling: float) -> None:
    with pytest.raises(ValueError):
        Envelope(floor, ceiling)
