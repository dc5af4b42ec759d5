"""Which circuit holds which layer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert
from sqlalchemy.exc import IntegrityError

from engine.errors import InvalidParameter
from engine.library.circuits import ClaimRow
from engine.library.database import Library
from engine.library.errors import ClaimConflict
from engine.library.records import CircuitRecord, ServingMode
from engine.library.rows import utc_now
from tests.engine.library.test_durability import together

MakeCircuit = Callable[[str], str]


@pytest.fixture
def circuit(library: Library) -> MakeCircuit:
    """A function from a name to the id of a new circuit."""
    return lambda name: library.circuits.add(CircuitRecord(name, "{}")).id


def held(library: Library) -> list[tuple[int, str, bool, tuple[int, ...]]]:
    return [(claim.layer, claim.circuit_name, claim.composed, claim.steering_keys) for claim in library.claims.live()]


def test_a_circuit_holds_its_layers(library: Library, circuit: MakeCircuit) -> None:
    a = circuit("a")
    claims = library.claims.claim(a, {11: [40, 41, 40], 6: {17}, 8: ()})
    assert [(claim.layer, claim.steering_keys, claim.composed) for claim in claims] == [
        (6, (17,), False),
        (8, (), False),
        (11, (40, 41), False),
    ]
    assert {claim.circuit_id for claim in claims} == {a}
    assert library.claims.live() == claims
    assert library.claims.release(a) == (6, 8, 11)
    assert library.claims.release(a) == ()
    assert held(library) == []
    b = circuit("b")
    library.claims.claim(b, {6: [17]})
    assert held(library) == [(6, "b", False, (17,))]


def test_a_held_layer_is_refused_and_everyone_in_the_way_is_named(library: Library, circuit: MakeCircuit) -> None:
    a, b, c = circuit("a"), circuit("b"), circuit("c")
    library.claims.claim(a, {6: [1], 7: [1]})
    library.claims.claim(b, {11: [40]})
    before = library.claims.live()
    with pytest.raises(ClaimConflict) as caught:
        library.claims.claim(c, {5: [3], 6: [2], 11: [41]})
    assert caught.value.code == "circuit_layer_contention"
    assert caught.value.message == "The circuit 'c' needs layers 6, 11, held by 'a' and 'b'."
    assert caught.value.details == {
        "contended_layers": [6, 11],
        "incumbent": {"id": a, "name": "a"},
        "all_incumbents": [{"id": a, "name": "a"}, {"id": b, "name": "b"}],
        "requested": {"id": c, "name": "c"},
        "colliding_keys": [],
        "overridable": True,
    }
    assert library.claims.live() == before


def test_the_same_feature_is_never_shared(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    library.claims.claim(a, {6: [1, 2, 3], 7: [9]})
    for composed in (False, True):
        with pytest.raises(ClaimConflict) as caught:
            library.claims.claim(b, {6: [3, 4, 2], 7: [8]}, composed=composed)
        assert caught.value.details["overridable"] is False
        assert caught.value.details["contended_layers"] == [6, 7]
        assert caught.value.details["colliding_keys"] == [
            {"layer": 6, "feature_idx": 2, "incumbent": a},
            {"layer": 6, "feature_idx": 3, "incumbent": a},
        ]
    assert held(library) == [(6, "a", False, (1, 2, 3)), (7, "a", False, (9,))]


def test_a_layer_is_shared_when_asked_and_others_stay_exclusive(library: Library, circuit: MakeCircuit) -> None:
    a, b, c = circuit("a"), circuit("b"), circuit("c")
    library.claims.claim(a, {6: [1], 7: [1]})
    claims = library.claims.claim(b, {6: [2], 8: [2]}, composed=True)
    assert [(claim.layer, claim.composed) for claim in claims] == [(6, True), (8, False)]
    shared = [(6, "a", True, (1,)), (6, "b", True, (2,)), (7, "a", False, (1,)), (8, "b", False, (2,))]
    assert held(library) == shared
    # A layer with two holders that share it still refuses a third that wants it for itself.
    for layer in (6, 7, 8):
        with pytest.raises(ClaimConflict):
            library.claims.claim(c, {layer: [5]})
    assert held(library) == shared
    with pytest.raises(ClaimConflict) as caught:
        library.claims.claim(c, {6: [5]})
    assert [incumbent["name"] for incumbent in caught.value.details["all_incumbents"]] == ["a", "b"]


def test_one_remaining_holder_has_the_layer_for_itself_again(library: Library, circuit: MakeCircuit) -> None:
    a, b, c = circuit("a"), circuit("b"), circuit("c")
    library.claims.claim(a, {6: [1], 7: [1]})
    library.claims.claim(b, {6: [2], 7: [2]}, composed=True)
    library.claims.claim(c, {6: [3]}, composed=True)
    assert library.claims.release(a) == (6, 7)
    assert held(library) == [(6, "b", True, (2,)), (6, "c", True, (3,)), (7, "b", False, (2,))]
    assert library.claims.release(c, [6, 7, 99]) == (6,)
    assert held(library) == [(6, "b", False, (2,)), (7, "b", False, (2,))]
    with pytest.raises(ClaimConflict):
        library.claims.claim(a, {6: [1]})
    assert library.claims.release(b, []) == ()
    assert library.claims.release(b, [7]) == (7,)
    assert held(library) == [(6, "b", False, (2,))]


def test_claiming_again_changes_what_is_held(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    first = library.claims.claim(a, {6: [1], 7: [1]})
    library.claims.claim(b, {7: [2]}, composed=True)
    again = library.claims.claim(a, {6: [4, 5], 8: [6]})
    assert held(library) == [(6, "a", False, (4, 5)), (7, "b", False, (2,)), (8, "a", False, (6,))]
    assert again[0].claimed_at == first[0].claimed_at
    assert library.claims.claim(a, {}) == []
    assert held(library) == [(7, "b", False, (2,))]


def test_a_claim_that_loses_keeps_what_was_held_before(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    library.claims.claim(a, {6: [1]})
    library.claims.claim(b, {7: [2], 8: [2]})
    before = library.claims.live()
    with pytest.raises(ClaimConflict):
        library.claims.claim(b, {6: [2], 9: [2]})
    with pytest.raises(ClaimConflict):
        library.claims.claim(b, {6: [1], 9: [2]}, composed=True)
    assert library.claims.live() == before


def test_claiming_a_shared_layer_again_needs_the_permission_again(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    library.claims.claim(a, {6: [1]})
    library.claims.claim(b, {6: [2]}, composed=True)
    before = held(library)
    with pytest.raises(ClaimConflict):
        library.claims.claim(a, {6: [1]})
    assert held(library) == before
    library.claims.claim(a, {6: [1]}, composed=True)
    assert held(library) == before


def test_deactivating_releases_in_the_same_step(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    library.claims.claim(a, {6: [1], 7: [1]})
    library.circuits.set_active(a, ServingMode.FULL)
    library.claims.claim(b, {6: [2]}, composed=True)
    library.circuits.set_active(b, ServingMode.FULL)
    assert library.circuits.deactivate(a) == (6, 7)
    assert held(library) == [(6, "b", False, (2,))]
    assert [record.name for record in library.circuits.active()] == ["b"]


def test_removing_a_circuit_releases_its_layers(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    library.claims.claim(a, {6: [1], 7: [1]})
    library.circuits.set_active(a, ServingMode.FULL)
    library.claims.claim(b, {6: [2]}, composed=True)
    removed = library.circuits.remove(a)
    assert (removed.id, removed.is_active) == (a, True)
    assert held(library) == [(6, "b", False, (2,))]
    assert library.circuits.get(a) is None


@pytest.mark.parametrize(
    ("keys", "param"), [({-1: [1]}, "layer"), ({6: [-1]}, "steering_keys"), ({2**63: [1]}, "layer")]
)
def test_claims_that_make_no_sense(
    library: Library, circuit: MakeCircuit, keys: dict[int, list[int]], param: str
) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.claims.claim(circuit("a"), keys)
    assert caught.value.param == param


def test_the_database_itself_lets_one_circuit_hold_a_layer(library: Library, circuit: MakeCircuit) -> None:
    a, b = circuit("a"), circuit("b")
    claim = {"layer": 6, "steering_keys": [], "claimed_at": utc_now()}
    library.claims.claim(a, {6: [1]})
    for circuit_id, composed in ((b, False), (a, True)):
        with pytest.raises(IntegrityError, match="UNIQUE"):
            with library._sessions.write() as session:
                session.execute(insert(ClaimRow).values(circuit_id=circuit_id, composed=composed, **claim))
    library.claims.release(a)
    with library._sessions.write() as session:
        session.execute(insert(ClaimRow).values(circuit_id=b, composed=False, **claim))
    assert held(library) == [(6, "b", False, ())]


def test_of_two_activations_at_once_the_first_in_the_database_wins(tmp_path: Path) -> None:
    """Two connections that share no lock of ours: one stands before its insert while the other asks for the file."""
    path = tmp_path / "millm.db"
    with Library.open(path) as one, Library.open(path) as two:
        a, b = (one.circuits.add(CircuitRecord(name, "{}")).id for name in ("a", "b"))
        two.claims.claim(b, {8: [2]})
        inserting, asking = threading.Event(), threading.Event()

        def before_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if statement.startswith("INSERT INTO circuit_claims"):
                inserting.set()
                assert asking.wait(30)

        def before_asking(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if statement == "BEGIN IMMEDIATE":
                asking.set()

        event.listen(one._sessions._engine, "before_cursor_execute", before_statement)
        event.listen(two._sessions._engine, "before_cursor_execute", before_asking)

        def second() -> None:
            assert inserting.wait(30)
            two.claims.claim(b, {6: [2], 8: [3]})

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(one.claims.claim, a, {6: [1], 7: [1]})
            loser = pool.submit(second).exception(60)
            first.result(60)
        assert isinstance(loser, ClaimConflict)
        assert loser.details["all_incumbents"] == [{"id": a, "name": "a"}]
        assert held(two) == [(6, "a", False, (1,)), (7, "a", False, (1,)), (8, "b", False, (2,))]


def test_of_many_activations_at_once_one_wins_and_the_others_keep_nothing(
    library: Library, circuit: MakeCircuit
) -> None:
    ids = [circuit(f"c{number}") for number in range(8)]
    for _ in range(5):
        raised = together(8, lambda number: library.claims.claim(ids[number], {6: [number], 10 + number: [0]}))
        assert raised.count(None) == 1
        winner = raised.index(None)
        for error in raised:
            if error is not None:
                assert isinstance(error, ClaimConflict)
                assert error.details["all_incumbents"] == [{"id": ids[winner], "name": f"c{winner}"}]
        assert held(library) == [(6, f"c{winner}", False, (winner,)), (10 + winner, f"c{winner}", False, (0,))]
        library.claims.release(ids[winner])


def test_sharing_and_leaving_at_once_ends_consistent(library: Library, circuit: MakeCircuit) -> None:
    ids = [circuit(f"c{number}") for number in range(6)]

    def work(number: int) -> None:
        for _ in range(5):
            library.claims.claim(ids[number], {6: [number]}, composed=True)
            library.claims.release(ids[number])
        library.claims.claim(ids[number], {6: [number]}, composed=True)

    assert together(6, work) == [None] * 6
    assert sorted(held(library), key=lambda claim: claim[1]) == [(6, f"c{n}", True, (n,)) for n in range(6)]
    for number in range(5):
        library.claims.release(ids[number])
    assert held(library) == [(6, "c5", False, (5,))]
