"""From a request's steering fields to its plan; the live state stays as it is whatever a request asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.documents.binding import SaeReference
from engine.documents.ranges import DialBounds, Range
from engine.errors import InvalidParameter, MillmError, SaeNotAttached
from engine.library.errors import ProfileNotFound
from engine.saes.errors import InvalidFeatureIndex
from engine.steering import transitions
from engine.steering.desk import SteeringDesk
from engine.steering.dial import DialWord, parse_dial
from engine.steering.inline import parse_inline
from engine.steering.plan import SteeringPlan
from engine.steering.request import FOLLOW_LIVE, SteeringRequest
from engine.steering.resolve import ResolvedSteering, resolve
from tests.engine.steering.made import deltas, make_desk, serving_circuit, serving_profile, values

A, B = ("a", 2), ("b", 5)
OFF = DialWord.OFF


@dataclass(frozen=True)
class Named:
    """A stored profile, as far as a request cares."""

    name: str = "calm"
    is_cluster: bool = False
    strengths: Mapping[int, float] = field(default_factory=lambda: {0: 3.0})
    intensity: float = 1.0
    declared: Range | None = None
    reference: SaeReference = field(default_factory=SaeReference)


def ask(desk: SteeringDesk, *stored: Named, **fields: Any) -> ResolvedSteering:
    wire = {
        "inline": parse_inline(fields.pop("steering", None)),
        "dial": parse_dial(fields.pop("dial", None)),
        "profile": fields.pop("profile", None),
    }
    assert not fields
    before = desk.now
    known = {each.name: each for each in stored}
    try:
        return resolve(SteeringRequest(**wire), before.state, before.plan, known.get, DialBounds())
    finally:
        assert desk.now is before


def plan(resolved: ResolvedSteering) -> SteeringPlan:
    assert resolved.plan is not None
    return resolved.plan


def rung(resolved: ResolvedSteering) -> int | None:
    return (resolved.plan or resolved.admitted).rung


def added(resolved: ResolvedSteering) -> dict[int, list[float]]:
    return {layer: delta.tolist() for layer, delta in plan(resolved).deltas.items()}


def item(resolved: ResolvedSteering) -> str:
    """The report without its hashes."""
    text = plan(resolved).report.text()
    return ";".join(part for part in text.split(";") if not part.startswith("hash="))


# --- a request without steering of its own ----------------------------------------------------------------------------


def test_without_fields_a_request_follows_the_live_plan() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    resolved = ask(desk)
    assert resolved.plan is None and resolved.admitted is desk.live_plan and resolved.echo is None
    assert FOLLOW_LIVE.is_empty


# --- inline -----------------------------------------------------------------------------------------------------------


def features(*pairs: tuple[int, float], **more: Any) -> dict[str, Any]:
    return {"features": [{"index": index, "strength": strength} for index, strength in pairs], **more}


def test_inline_is_the_whole_set() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 3.0}})))
    resolved = ask(desk, steering=features((1, 2.0), (2, 900.0), sae_id="a"))
    assert added(resolved) == {2: [0.0, 2.0, 200.0, 0.0]}
    assert item(resolved) == 'inline;sae="a";layer=2;features=2;clamped=1'
    assert (rung(resolved), resolved.echo) == (None, None)


def test_no_features_are_no_steering_with_and_without_saes() -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    assert plan(ask(desk, steering=features())).is_empty
    assert plan(ask(make_desk(), steering=features())).is_empty


@pytest.mark.parametrize(
    ("places", "steering", "error", "param"),
    [
        ([A, B], features((1, 2.0)), InvalidParameter, "steering.sae_id"),
        ([A], features((1, 2.0), sae_id="b"), SaeNotAttached, "steering.sae_id"),
        ([], features((1, 2.0)), SaeNotAttached, "steering"),
        ([A], features((48, 2.0)), InvalidFeatureIndex, "steering.features"),
    ],
)
def test_inline_refusals(
    places: list[tuple[str, int]], steering: dict[str, Any], error: type[MillmError], param: str
) -> None:
    with pytest.raises(error) as caught:
        ask(make_desk(*places), steering=steering)
    assert caught.value.param == param


def test_inline_beside_the_others_is_refused() -> None:
    for other in ({"profile": "calm"}, {"dial": 1.0}):
        with pytest.raises(InvalidParameter):
            ask(make_desk(A), Named(), steering=features((1, 2.0)), **other)


# --- a named profile --------------------------------------------------------------------------------------------------


def test_a_named_profile_replaces_the_whole_plan() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {B: {1: 3.0}})))
    resolved = ask(desk, Named(reference=SaeReference("b", 5), intensity=0.5), profile="calm")
    assert added(resolved) == {5: [1.5, 0.0, 0.0, 0.0]}
    assert item(resolved) == 'profile;name="calm";source=request;intensity="0.5";sae="b";layer=5;features=1'
    assert (rung(resolved), resolved.echo) == (None, None)


def test_a_dial_over_a_named_profile_is_absolute() -> None:
    resolved = ask(make_desk(A), Named(intensity=0.5), profile="calm", dial=2)
    assert added(resolved) == {2: [6.0, 0.0, 0.0, 0.0]}
    assert resolved.echo == "2.0"


@pytest.mark.parametrize(
    ("declared", "dial", "factor", "echo"),
    [
        ((0.25, 1.75), 2, 1.75, "1.75"),
        ((0.25, 1.75), 0.1, 0.1, "0.1"),
        ((0.25, 1.75), "min", 0.25, "0.25"),
        (None, 2, 1.5, "1.5"),
        (None, "min", 0.5, "0.5"),
        (None, 1, 1.0, None),
    ],
)
def test_a_clusters_dial_is_capped_at_the_top_only(
    declared: Range | None, dial: object, factor: float, echo: str | None
) -> None:
    cluster = Named(is_cluster=True, declared=declared, strengths={0: 4.0})
    resolved = ask(make_desk(A), cluster, profile="calm", dial=dial)
    assert added(resolved) == {2: [pytest.approx(4.0 * factor), 0.0, 0.0, 0.0]}
    assert resolved.echo == echo


@pytest.mark.parametrize("fields", [{"dial": 0}, {"dial": OFF}, {"dial": "off"}, {"dial": "0.0"}])
def test_off_is_an_empty_plan_and_looks_at_no_index(fields: dict[str, Any]) -> None:
    broken = Named(strengths={9999: 1.0})
    assert plan(ask(make_desk(A), broken, profile="calm", **fields)).is_empty
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    resolved = ask(desk, **fields)
    assert plan(resolved).is_empty and resolved.echo == "0"
    empty = ask(make_desk(A), **fields)
    assert plan(empty).is_empty and empty.echo is None


@pytest.mark.parametrize("dial", [None, 2, "max"])
def test_a_named_profile_without_values_is_unsteered(dial: object) -> None:
    desk = make_desk(A)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    resolved = ask(desk, Named(strengths={}), profile="calm", dial=dial)
    assert plan(resolved).is_empty and resolved.echo is None
    assert plan(resolved).report.text() == "none"


def test_a_stored_intensity_of_0_is_unsteered() -> None:
    assert plan(ask(make_desk(A), Named(intensity=0.0), profile="calm")).is_empty


def test_a_profile_with_nothing_attached_is_unsteered() -> None:
    resolved = ask(make_desk(), Named(reference=SaeReference("a", 2)), profile="calm")
    assert plan(resolved).is_empty and plan(resolved).report.text() == "none"


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ProfileNotFound) as caught:
        ask(make_desk(A), Named(), profile="Calm")
    assert caught.value.param == "profile"


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        (SaeReference("b", 5), B),
        (SaeReference("other", 5), B),
        (SaeReference(None, 2), A),
    ],
)
def test_a_profile_runs_where_it_belongs(reference: SaeReference, place: tuple[str, int]) -> None:
    resolved = ask(make_desk(A, B), Named(reference=reference), profile="calm")
    assert list(added(resolved)) == [place[1]]
    assert f'sae="{place[0]}"' in item(resolved)


@pytest.mark.parametrize(
    ("reference", "strengths", "error"),
    [
        (SaeReference("a", 3), {0: 1.0}, SaeNotAttached),
        (SaeReference("c", None), {0: 1.0}, SaeNotAttached),
        (SaeReference(), {0: 1.0}, InvalidParameter),
        (SaeReference("a", 2, n_features=47), {0: 1.0}, InvalidFeatureIndex),
        (SaeReference("other", 2, n_features=47), {0: 1.0}, InvalidFeatureIndex),
        (SaeReference("a", 2), {48: 1.0}, InvalidFeatureIndex),
    ],
)
def test_a_profile_that_cannot_run_is_refused(
    reference: SaeReference, strengths: dict[int, float], error: type[MillmError]
) -> None:
    with pytest.raises(error) as caught:
        ask(make_desk(A, B), Named(reference=reference, strengths=strengths), profile="calm")
    assert caught.value.param == "profile"
    json.dumps(caught.value.details)


# --- a dial alone -----------------------------------------------------------------------------------------------------


def test_a_dial_over_the_one_circuit_leaves_the_rest_as_live() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 1.0}))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}, B: {1: 4.0}}, declared=(0.5, 1.25))))
    resolved = ask(desk, dial=2)
    assert added(resolved) == {2: [1.0, 3.75, 0.0, 0.0], 5: [0.0, 5.0, 0.0, 0.0]}
    assert item(resolved).startswith('circuit;id="circ_1";intensity="1.25", manual;sae="a";layer=2;')
    assert (resolved.echo, rung(resolved)) == ("1.25", 2)
    low = ask(desk, dial=0.1)
    assert added(low) == {2: [1.0, 1.5, 0.0, 0.0], 5: [0.0, 2.0, 0.0, 0.0]}
    assert low.echo == "0.5"
    assert deltas(desk) == {2: [1.0, 3.0, 0.0, 0.0], 5: [0.0, 4.0, 0.0, 0.0]}


def test_a_dial_that_changes_nothing_is_not_echoed() -> None:
    desk = make_desk(A)
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}})))
    resolved = ask(desk, dial=1)
    assert (resolved.echo, rung(resolved)) == (None, 2)
    assert plan(resolved).digest == desk.live_plan.digest


def test_a_circuit_is_dialled_from_what_its_author_wrote() -> None:
    desk = make_desk(A)
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 150.0}}, intensity=2.0)))
    assert added(ask(desk, dial=1)) == {2: [0.0, 150.0, 0.0, 0.0]}


@pytest.mark.parametrize("dial", [1.5, "max"])
def test_two_circuits_silence_the_dial(dial: object) -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}})))
    desk.apply(transitions.serve_circuit(serving_circuit("circ_2", {B: {1: 3.0}})))
    resolved = ask(desk, dial=dial)
    assert resolved.plan is None and resolved.echo is None
    assert plan(ask(desk, dial="off")).is_empty


def test_a_circuit_that_is_off_is_not_turned_up_by_a_request() -> None:
    desk = make_desk(A)
    desk.apply(transitions.serve_circuit(serving_circuit("circ_1", {A: {1: 3.0}}, intensity=0.0)))
    assert ask(desk, dial=1.5).plan is None


def test_a_dial_over_the_active_profile_says_so() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(B, {0: 1.0}))
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 150.0}, intensity=2.0)))
    assert values(desk, A) == {0: 200.0}
    resolved = ask(desk, dial=1)
    assert added(resolved) == {2: [150.0, 0.0, 0.0, 0.0], 5: [1.0, 0.0, 0.0, 0.0]}
    assert item(resolved).startswith('profile;name="calm";source=active;intensity="1.0";sae="a";layer=2;features=1;')
    assert resolved.echo == "1.0"


def test_a_dial_never_switches_on() -> None:
    desk = make_desk(A)
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0})))
    desk.apply(transitions.set_enabled(A, False))
    assert ask(desk, dial=2).plan is None
    desk.apply(transitions.activate_profile(serving_profile(A, {0: 1.0}, intensity=0.0)))
    assert ask(desk, dial=2).plan is None
    live = make_desk(A)
    live.apply(transitions.set_values(A, {0: 1.0}))
    live.apply(transitions.set_enabled(A, False))
    assert ask(live, dial=2).plan is None
    assert ask(make_desk(A), dial=2).plan is None


def test_a_dial_over_live_values_scales_them_all() -> None:
    desk = make_desk(A, B)
    desk.apply(transitions.set_values(A, {0: 150.0}))
    desk.apply(transitions.set_values(B, {1: -2.0}))
    resolved = ask(desk, dial=2)
    assert added(resolved) == {2: [200.0, 0.0, 0.0, 0.0], 5: [0.0, -4.0, 0.0, 0.0]}
    assert item(resolved).startswith("manual;")
    assert resolved.echo == "2.0"
    assert added(ask(desk, dial="min")) == {2: [75.0, 0.0, 0.0, 0.0], 5: [0.0, -1.0, 0.0, 0.0]}
