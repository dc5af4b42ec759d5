from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents.ranges import DialBounds, Envelope
from engine.errors import InvalidParameter
from engine.steering.dial import (
    Action,
    CircuitBase,
    Decision,
    DialWord,
    LiveBase,
    ProfileBase,
    circuit_dial,
    circuit_setting,
    cluster_dial,
    cluster_setting,
    decide,
    dial_echo,
    parse_dial,
    shortest_decimal,
)
from engine.steering.errors import SteeringInvalid

OFF, MIN, MAX = DialWord.OFF, DialWord.MIN, DialWord.MAX


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
        (0.4375, 0.4375),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("5e-1", 0.5),
        (".5", 0.5),
        ("0", 0.0),
        ("off", OFF),
        ("min", MIN),
        ("max", MAX),
        (" MAX ", MAX),
    ],
)
def test_what_a_dial_is(value: Any, expected: Any) -> None:
    assert parse_dial(value) == expected
    assert type(parse_dial(value)) is type(expected)


def test_minus_zero_is_zero() -> None:
    assert str(parse_dial(-0.0)) == "0.0" and str(parse_dial("-0")) == "0.0"


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        float("nan"),
        float("inf"),
        -0.1,
        2.01,
        10**400,
        "loud",
        "",
        "nan",
        "inf",
        "Infinity",
        "1_0",
        "2.01",
        "-1",
        "1e999",
        "0x1",
        "١",
        "1,5",
        [],
        [1],
        {},
        b"1",
    ],
)
def test_what_a_dial_is_not(value: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse_dial(value)
    assert caught.value.param == "steering_intensity"


@pytest.mark.parametrize(
    ("dial", "cluster", "circuit"),
    [
        (0.0, 0.0, 0.0),
        (0.1, 0.1, 0.5),
        (0.5, 0.5, 0.5),
        (1.0, 1.0, 1.0),
        (1.4, 1.4, 1.4),
        (1.5, 1.4, 1.4),
        (2.0, 1.4, 1.4),
        (OFF, 0.0, 0.0),
        (MIN, 0.5, 0.5),
        (MAX, 1.4, 1.4),
    ],
)
def test_clusters_are_held_at_the_top_and_circuits_at_both_ends(dial: Any, cluster: float, circuit: float) -> None:
    envelope = Envelope(0.5, 1.4)
    assert cluster_dial(dial, envelope) == cluster
    assert circuit_dial(dial, envelope) == circuit


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0, 2))
def test_no_dial_leaves_its_envelope(dial: float, one: float, other: float) -> None:
    envelope = Envelope(min(one, other), max(one, other))
    assert cluster_dial(dial, envelope) <= envelope.ceiling
    assert cluster_dial(dial, envelope) in (dial, envelope.ceiling)
    resolved = circuit_dial(dial, envelope)
    assert resolved == 0.0 if dial == 0 else envelope.floor <= resolved <= envelope.ceiling
    if envelope.floor <= dial <= envelope.ceiling:
        assert cluster_dial(dial, envelope) == circuit_dial(dial, envelope) == dial
    for again in (cluster_dial, circuit_dial):
        assert again(again(dial, envelope), envelope) == again(dial, envelope)


# --- the decision table -----------------------------------------------------------------------------------------------

BOUNDS = DialBounds()
NO_LIVE = LiveBase(has_values=False, enabled=False)
LIVE = LiveBase(has_values=True, enabled=True)
LIVE_OFF = LiveBase(has_values=True, enabled=False)
MANUAL = ProfileBase(has_values=True)
CLUSTER = ProfileBase(has_values=True, is_cluster=True, stored=0.75)
RANGED = ProfileBase(has_values=True, is_cluster=True, declared=(0.25, 1.75))
FROM_ZERO = ProfileBase(has_values=True, is_cluster=True, declared=(0.0, 1.0))
EMPTY = ProfileBase(has_values=False)
STORED_OFF = ProfileBase(has_values=True, stored=0.0)
SWITCHED_OFF = ProfileBase(has_values=True, enabled=False)
CIRCUIT = CircuitBase()
RANGED_CIRCUIT = CircuitBase(declared=(0.5, 1.5))
SILENT_CIRCUIT = CircuitBase(steers=False)

FOLLOW = Decision(Action.FOLLOW_LIVE)


def _own(intensity: float, *, dialled: bool) -> Decision:
    return Decision(Action.NAMED_PROFILE, intensity, dialled)


def _off(*, dialled: bool = True) -> Decision:
    return Decision(Action.UNSTEERED, 0.0, dialled)


def _scaled(action: Action, intensity: float) -> Decision:
    return Decision(action, intensity, dialled=True)


TABLE: list[tuple[str, Any, dict[str, Any], Decision]] = [
    # nothing asked
    ("no profile, no dial", None, {"active": MANUAL, "live": LIVE, "circuits": [CIRCUIT]}, FOLLOW),
    # a named profile
    ("named, stored intensity 1", None, {"named": MANUAL}, _own(1.0, dialled=False)),
    ("named cluster, stored intensity", None, {"named": CLUSTER}, _own(0.75, dialled=False)),
    ("named, stored 0", None, {"named": STORED_OFF, "live": LIVE}, _off(dialled=False)),
    ("named, stored 0, dialled", 0.5, {"named": STORED_OFF}, _own(0.5, dialled=True)),
    ("named, the dial replaces", 0.5, {"named": CLUSTER}, _own(0.5, dialled=True)),
    ("named manual profile, up to 2", 2.0, {"named": MANUAL}, _own(2.0, dialled=True)),
    ("named cluster without a range, up to 1.5", 2.0, {"named": CLUSTER}, _own(1.5, dialled=True)),
    ("named cluster, up to its range", 2.0, {"named": RANGED}, _own(1.75, dialled=True)),
    ("named cluster, below its range", 0.1, {"named": RANGED}, _own(0.1, dialled=True)),
    ("named cluster, min of its range", MIN, {"named": RANGED}, _own(0.25, dialled=True)),
    ("named cluster, max of its range", MAX, {"named": RANGED}, _own(1.75, dialled=True)),
    ("named cluster without a range, min", MIN, {"named": CLUSTER}, _own(0.5, dialled=True)),
    ("named cluster without a range, max", MAX, {"named": CLUSTER}, _own(1.5, dialled=True)),
    ("named manual profile, max", MAX, {"named": MANUAL}, _own(2.0, dialled=True)),
    ("named cluster, min that is 0", MIN, {"named": FROM_ZERO}, _off()),
    ("named, off", OFF, {"named": MANUAL, "live": LIVE}, _off()),
    ("named, 0", 0.0, {"named": MANUAL, "live": LIVE}, _off()),
    ("named without values", None, {"named": EMPTY, "live": LIVE}, Decision(Action.UNSTEERED)),
    ("named without values, dialled", 1.0, {"named": EMPTY, "live": LIVE}, Decision(Action.UNSTEERED)),
    ("named without values, off", OFF, {"named": EMPTY, "live": LIVE}, _off()),
    ("named, though steering is switched off", None, {"named": SWITCHED_OFF}, _own(1.0, dialled=False)),
    ("named, though a circuit serves", 0.5, {"named": MANUAL, "circuits": [CIRCUIT]}, _own(0.5, dialled=True)),
    (
        "named, though several circuits serve",
        0.5,
        {"named": MANUAL, "circuits": [CIRCUIT] * 2},
        _own(0.5, dialled=True),
    ),
    # a dial over a circuit
    ("circuit", 0.5, {"circuits": [CIRCUIT], "active": CLUSTER, "live": LIVE}, _scaled(Action.CIRCUIT, 0.5)),
    ("circuit, below its floor", 0.1, {"circuits": [RANGED_CIRCUIT]}, _scaled(Action.CIRCUIT, 0.5)),
    ("circuit, above its ceiling", 1.9, {"circuits": [RANGED_CIRCUIT]}, _scaled(Action.CIRCUIT, 1.5)),
    ("circuit, 0 below its floor", 0.0, {"circuits": [RANGED_CIRCUIT]}, _off()),
    ("circuit, off", OFF, {"circuits": [RANGED_CIRCUIT]}, _off()),
    ("circuit, min", MIN, {"circuits": [RANGED_CIRCUIT]}, _scaled(Action.CIRCUIT, 0.5)),
    ("circuit, max", MAX, {"circuits": [RANGED_CIRCUIT]}, _scaled(Action.CIRCUIT, 1.5)),
    ("circuit without a range, min is off", MIN, {"circuits": [CIRCUIT]}, _off()),
    ("circuit without a range, max", MAX, {"circuits": [CIRCUIT]}, _scaled(Action.CIRCUIT, 2.0)),
    ("circuit that holds no live values", 1.0, {"circuits": [SILENT_CIRCUIT], "live": LIVE}, FOLLOW),
    ("several circuits silence a number", 1.0, {"circuits": [CIRCUIT] * 2, "active": MANUAL, "live": LIVE}, FOLLOW),
    ("several circuits silence min", MIN, {"circuits": [CIRCUIT] * 2}, FOLLOW),
    ("several circuits, off", OFF, {"circuits": [CIRCUIT] * 2}, _off()),
    # a dial over the active profile
    ("active", 0.5, {"active": MANUAL, "live": LIVE}, _scaled(Action.ACTIVE_PROFILE, 0.5)),
    ("active manual profile, up to 2", 2.0, {"active": MANUAL}, _scaled(Action.ACTIVE_PROFILE, 2.0)),
    ("active cluster, up to 1.5", 2.0, {"active": CLUSTER}, _scaled(Action.ACTIVE_PROFILE, 1.5)),
    ("active cluster, its range", MAX, {"active": RANGED}, _scaled(Action.ACTIVE_PROFILE, 1.75)),
    ("active cluster, below its range", 0.1, {"active": RANGED}, _scaled(Action.ACTIVE_PROFILE, 0.1)),
    ("active, stored 0 and steering off", 1.0, {"active": ProfileBase(True, stored=0.0, enabled=False)}, FOLLOW),
    ("active, steering switched off", 1.0, {"active": SWITCHED_OFF, "live": LIVE_OFF}, FOLLOW),
    ("active, steering switched off, dial off", OFF, {"active": SWITCHED_OFF, "live": LIVE_OFF}, _off()),
    ("active without values", 1.0, {"active": EMPTY, "live": LIVE}, FOLLOW),
    ("active, 0", 0.0, {"active": MANUAL}, _off()),
    ("active cluster, min that is 0", MIN, {"active": FROM_ZERO}, _off()),
    # a dial over live values
    ("live", 0.5, {"live": LIVE}, _scaled(Action.LIVE_VALUES, 0.5)),
    ("live, up to 2", 2.0, {"live": LIVE}, _scaled(Action.LIVE_VALUES, 2.0)),
    ("live, min", MIN, {"live": LIVE}, _scaled(Action.LIVE_VALUES, 0.5)),
    ("live, switched off", 1.0, {"live": LIVE_OFF}, FOLLOW),
    ("live, no values", 1.0, {"live": LiveBase(False, True)}, FOLLOW),
    ("live, off", OFF, {"live": LIVE}, _off()),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_decision_table(row: tuple[str, Any, dict[str, Any], Decision]) -> None:
    _, dial, bases, expected = row
    assert decide(dial, **{"live": NO_LIVE, **bases}, bounds=BOUNDS) == expected


def test_the_table_is_decided_by_the_configured_bounds() -> None:
    bounds = DialBounds(Envelope(0.3, 0.9), Envelope(0.2, 1.1))
    assert decide(2.0, active=CLUSTER, live=LIVE, bounds=bounds).intensity == 0.9
    assert decide(MIN, live=LIVE, bounds=bounds).intensity == 0.3
    assert decide(MIN, circuits=[CIRCUIT], live=LIVE, bounds=bounds).intensity == 0.2
    assert decide(2.0, circuits=[CIRCUIT], live=LIVE, bounds=bounds).intensity == 1.1


# --- echo and settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "changed", "expected"),
    [
        (_off(), True, "0"),
        (_off(), False, None),
        (_off(dialled=False), True, None),
        (_own(1.0, dialled=True), True, "1.0"),
        (_own(1.0, dialled=False), True, None),
        (_scaled(Action.CIRCUIT, 0.4375), True, "0.4375"),
        (_scaled(Action.CIRCUIT, 0.4375), False, None),
        (Decision(Action.UNSTEERED), True, None),
        (FOLLOW, True, None),
    ],
)
def test_echo(decision: Decision, changed: bool, expected: str | None) -> None:
    assert dial_echo(decision, plan_changed=changed) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1.0"),
        (0.4375, "0.4375"),
        (0.1, "0.1"),
        (2.0, "2.0"),
        (1e-05, "0.00001"),
        (0.30000000000000004, "0.30000000000000004"),
    ],
)
def test_shortest_decimal(value: float, expected: str) -> None:
    assert shortest_decimal(value) == expected
    assert float(shortest_decimal(value)) == value


@pytest.mark.parametrize("value", [0, 0.1, 1, 1.75])
def test_a_cluster_may_be_set_from_0_to_its_ceiling(value: float) -> None:
    assert cluster_setting(value, Envelope(0.5, 1.75)) == value


@pytest.mark.parametrize("value", [-0.1, 1.76, True, "1", None, float("nan"), [1]])
def test_a_cluster_set_elsewhere_is_refused(value: Any) -> None:
    with pytest.raises(SteeringInvalid) as caught:
        cluster_setting(value, Envelope(0.5, 1.75))
    assert caught.value.param == "intensity" and "0 to 1.75" in caught.value.message


def test_a_circuit_may_be_set_from_0_to_2_and_is_held_in_the_configured_envelope() -> None:
    assert circuit_setting(1.9, BOUNDS) == 1.9
    assert circuit_setting(0, BOUNDS) == 0.0
    narrow = DialBounds(circuit=Envelope(0.5, 1.0))
    assert circuit_setting(1.9, narrow) == 1.0
    assert circuit_setting(0.1, narrow) == 0.5
    assert circuit_setting(0, narrow) == 0.0
    for value in (2.1, True, "1"):
        with pytest.raises(SteeringInvalid):
            circuit_setting(value, BOUNDS)
