from __future__ import annotations

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.steering.report import (
    NO_STEERING,
    CircuitItem,
    CircuitLabel,
    InlineItem,
    ManualItem,
    ProfileItem,
    ProfileLabel,
    ProfileSource,
    RequestLabel,
    SteeringReport,
    UnknownReason,
    describe,
)
from engine.steering.strengths import SteeredSet
from engine.wire import wire

LFM = "LiquidAI--LFM2.5-1.2B-Instruct-sae--layer_11"
LFM_HASH = "sha256:a4eae730e5105f422b93abeece7e03bda3c29b096c07aa9cee6f247e12844105"
DEMO_HASH = "sha256:df8c15a130a30d4ac5eccbd59c56e9ed5c00ad7c966c57f00489c446aed9811d"

STEERED = SteeredSet.of(LFM, 11, {1234: 8.0})
DEMO = SteeredSet.of("demo--sae--layer_4", 4, {7: 1.5, 42: -3.0})


def _profile(name: str, *, steered: SteeredSet = STEERED, intensity: float = 1.0) -> ProfileItem:
    return ProfileItem(steered, name, ProfileSource.REQUEST, intensity)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (NO_STEERING, "none"),
        (SteeringReport(changed=True), "none;changed"),
        (SteeringReport(unknown=UnknownReason.CLAIMS_UNREADABLE), "unknown;reason=claims_unreadable"),
        (SteeringReport(unknown=UnknownReason.READ_FAILED, changed=True), "unknown;reason=read_failed;changed"),
        (
            SteeringReport(items=(_profile("calm"),)),
            f'profile;name="calm";source=request;intensity="1.0";sae="{LFM}";layer=11;features=1;hash="{LFM_HASH}"',
        ),
        (
            SteeringReport(items=(ProfileItem(DEMO, "x", ProfileSource.ACTIVE, 0.4375),), changed=True),
            'profile;name="x";source=active;intensity="0.4375";sae="demo--sae--layer_4";layer=4;features=2;'
            f'hash="{DEMO_HASH}";changed',
        ),
        (
            SteeringReport(items=(InlineItem(STEERED),)),
            f'inline;sae="{LFM}";layer=11;features=1;hash="{LFM_HASH}"',
        ),
        (
            SteeringReport(items=(ManualItem(DEMO),)),
            f'manual;sae="demo--sae--layer_4";layer=4;features=2;hash="{DEMO_HASH}"',
        ),
        (SteeringReport(circuits=(CircuitItem("circ_a", 0.8),)), 'circuit;id="circ_a";intensity="0.8"'),
        (
            SteeringReport(circuits=(CircuitItem("circ_a", 1.0, composed=True),), changed=True),
            'circuit;id="circ_a";intensity="1.0";composed;changed',
        ),
    ],
)
def test_the_text_of_each_kind(report: SteeringReport, text: str) -> None:
    assert report.text() == text


def test_clamped_strengths_are_counted_but_not_of_manual_sets() -> None:
    jbloom = "jbloom--gemma-2-2b-res-jb--layer_20--width_16k--average_l0_71"
    clamped = SteeredSet.of(jbloom, 20, {3: 500.0})
    tail = 'features=1;hash="sha256:3f51779e6e33ee248acf6f520cb9475b4ef62f68275060bb69d2e228033b78df"'
    assert SteeringReport(items=(InlineItem(clamped),)).text() == f'inline;sae="{jbloom}";layer=20;{tail};clamped=1'
    assert SteeringReport(items=(ManualItem(clamped),)).text() == f'manual;sae="{jbloom}";layer=20;{tail}'
    assert SteeringReport(items=(_profile("x", steered=clamped),), changed=True).text().endswith(";clamped=1;changed")


def test_members_are_in_order_circuits_first_then_layers_as_numbers() -> None:
    def at(layer: int, sae_id: str = "s") -> ManualItem:
        return ManualItem(SteeredSet.of(sae_id, layer, {1: 1.0}))

    report = SteeringReport(
        circuits=(CircuitItem("circ_b", 1.0), CircuitItem("circ_a", 1.0)),
        items=(at(100), at(10), at(9, "t"), at(9, "s")),
    )
    found = [
        (str(member[0]), member[1].get("id"), member[1].get("layer"), member[1].get("sae"))
        for member in http_sf.parse(report.text().encode(), tltype="list")
    ]
    assert found == [
        ("circuit", "circ_a", None, None),
        ("circuit", "circ_b", None, None),
        ("manual", None, 9, "s"),
        ("manual", None, 9, "t"),
        ("manual", None, 10, "s"),
        ("manual", None, 100, "s"),
    ]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("plain name ~!", "plain name ~!"),
        ("Grüße", "Gr%C3%BC%C3%9Fe"),
        ('a"b\\c%d', "a%22b%5Cc%25d"),
        ("line\nbreak\r\x7f", "line%0Abreak%0D%7F"),
        ("🙂", "%F0%9F%99%82"),
    ],
)
def test_names_are_percent_encoded(name: str, written: str) -> None:
    assert f'name="{written}";' in SteeringReport(items=(_profile(name),)).text()


@given(st.text(min_size=1), st.floats(0, 2), st.dictionaries(st.integers(0, 10**6), st.floats(-300, 300), min_size=1))
def test_every_text_is_a_list_of_the_standard(name: str, intensity: float, authored: dict[int, float]) -> None:
    steered = SteeredSet.of(LFM, 11, authored)
    items = () if steered.is_empty else (_profile(name, steered=steered, intensity=intensity),)
    parsed = http_sf.parse(SteeringReport(items=items, changed=True).text().encode(), tltype="list")
    ((kind, parameters),) = parsed
    assert str(kind) == ("profile" if items else "none")
    assert parameters["changed"] is True
    if items:
        assert float(parameters["intensity"]) == intensity
        assert list(parameters)[:7] == ["name", "source", "intensity", "sae", "layer", "features", "hash"]


def test_as_plain_values() -> None:
    report = SteeringReport(
        circuits=(CircuitItem("circ_a", 0.8, composed=True),),
        items=(_profile("Grüße"), ManualItem(DEMO)),
        changed=True,
    )
    assert wire(report.told()) == {
        "text": report.text(),
        "changed": True,
        "items": [
            {"kind": "circuit", "id": "circ_a", "intensity": "0.8", "composed": True},
            {
                "kind": "manual",
                "sae": "demo--sae--layer_4",
                "layer": 4,
                "features": 2,
                "hash": DEMO_HASH,
                "strengths": {"7": 1.5, "42": -3.0},
            },
            {
                "kind": "profile",
                "name": "Grüße",
                "source": "request",
                "intensity": "1.0",
                "sae": LFM,
                "layer": 11,
                "features": 1,
                "hash": LFM_HASH,
                "strengths": {"1234": 8.0},
            },
        ],
    }
    assert wire(NO_STEERING.told()) == {"text": "none", "changed": False, "items": [{"kind": "none"}]}


def test_impossible_reports_are_refused() -> None:
    with pytest.raises(ValueError):
        SteeringReport(items=(ManualItem(DEMO),), unknown=UnknownReason.READ_FAILED)
    with pytest.raises(ValueError):
        SteeringReport(items=(ManualItem(SteeredSet("a", 1, ())),))


# --- labels are earned ------------------------------------------------------------------------------------------------

A = SteeredSet.of("a", 6, {1: 2.0, 2: -3.0})
B = SteeredSet.of("b", 11, {5: 1.0})


def _kinds(report: SteeringReport) -> list[str]:
    return [item["kind"] for item in wire(report.told())["items"]]


def test_nothing_added_is_none_whatever_was_asked() -> None:
    empty = SteeredSet("a", 6, ())
    assert describe([], requested=RequestLabel((A,))) == NO_STEERING
    assert describe([empty], requested=RequestLabel((empty,))) == NO_STEERING


def test_the_requests_own_set() -> None:
    assert describe([A], requested=RequestLabel((A,))) == SteeringReport(items=(InlineItem(A),))
    named = describe([A], requested=RequestLabel((A,), name="calm", intensity=0.5))
    assert named == SteeringReport(items=(ProfileItem(A, "calm", ProfileSource.REQUEST, 0.5),))


def test_the_count_of_clamps_comes_from_the_request() -> None:
    asked = SteeredSet.of("a", 6, {1: 500.0})
    assert "clamped=1" in describe([SteeredSet("a", 6, ((1, 200.0),))], requested=RequestLabel((asked,))).text()


def test_another_set_than_asked_is_manual() -> None:
    other = SteeredSet.of("a", 6, {1: 2.0000000000000004, 2: -3.0})
    assert _kinds(describe([other], requested=RequestLabel((A,)))) == ["manual"]
    assert _kinds(describe([SteeredSet.of("a", 7, A.values)], requested=RequestLabel((A,)))) == ["manual"]
    assert _kinds(describe([SteeredSet.of("z", 6, A.values)], requested=RequestLabel((A,)))) == ["manual"]


def test_the_active_profile() -> None:
    active = ProfileLabel((A,), "calm", 0.8)
    assert describe([A], active=active) == SteeringReport(items=(ProfileItem(A, "calm", ProfileSource.ACTIVE, 0.8),))
    assert _kinds(describe([SteeredSet.of("a", 6, {1: 2.0})], active=active)) == ["manual"]


def test_a_circuit_is_one_item_for_all_its_layers() -> None:
    report = describe([B, A], circuits=[CircuitLabel((A, B), "circ_1", 0.8)], changed=True)
    assert report == SteeringReport(circuits=(CircuitItem("circ_1", 0.8),), changed=True)


def test_a_circuit_comes_before_the_active_profile() -> None:
    report = describe([A], circuits=[CircuitLabel((A,), "circ_1", 1.0)], active=ProfileLabel((A,), "calm", 1.0))
    assert _kinds(report) == ["circuit"]


def test_persistence_goes_with_the_report_and_not_with_its_text() -> None:
    own = CircuitLabel((A,), "circ_1", 1.0, only_persistence=True)
    report = describe([A], circuits=[own])
    assert report.only_persistence
    assert report.text() == 'circuit;id="circ_1";intensity="1.0"'
    assert [item.get("only_persistence") for item in wire(report.told())["items"]] == [True]
    assert not wire(describe([A, B], circuits=[own]).told())["items"][1].get("only_persistence")
    assert not describe([A, B], circuits=[own, CircuitLabel((B,), "circ_2", 1.0)]).only_persistence
    assert not describe([B]).only_persistence


def test_two_circuits_that_share_a_layer() -> None:
    one = CircuitLabel((SteeredSet.of("a", 6, {1: 2.0}),), "circ_1", 1.0, composed=True)
    two = CircuitLabel((SteeredSet.of("a", 6, {2: -3.0}),), "circ_2", 0.5, composed=True)
    assert describe([A], circuits=[two, one]).text() == (
        'circuit;id="circ_1";intensity="1.0";composed, circuit;id="circ_2";intensity="0.5";composed'
    )


def test_values_beside_a_circuits_are_reported_too() -> None:
    circuit = CircuitLabel((SteeredSet.of("a", 6, {1: 2.0}),), "circ_1", 1.0)
    assert _kinds(describe([A, B], circuits=[circuit])) == ["circuit", "manual", "manual"]


def test_a_circuit_that_is_not_whole_is_not_claimed() -> None:
    circuit = CircuitLabel((A, B), "circ_1", 1.0)
    assert _kinds(describe([A], circuits=[circuit])) == ["manual"]
    assert _kinds(describe([A, SteeredSet.of("b", 11, {5: 1.5})], circuits=[circuit])) == ["manual", "manual"]


def test_a_circuit_that_adds_nothing_is_not_claimed() -> None:
    assert _kinds(describe([A], circuits=[CircuitLabel((), "circ_1", 0.0)])) == ["manual"]
