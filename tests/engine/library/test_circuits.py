"""Circuits, apart from the layers they claim."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from engine.errors import InvalidParameter
from engine.library.circuits import CircuitRow
from engine.library.database import Library
from engine.library.errors import CircuitAlreadyExists, CircuitNotFound
from engine.library.records import CircuitRecord, ProfileRecord, ServingMode

DOCUMENT = '{"kind":"mistudio.circuit-definition", "x": 1e400, "dup": 1, "dup": 2,\t"\\u00e4": [1.0, 1]}\n'


def new(name: str, **fields: object) -> CircuitRecord:
    return CircuitRecord(name, "{}", **fields)  # type: ignore[arg-type]


def test_a_circuit_comes_back_as_it_was_stored(library: Library) -> None:
    stored = library.circuits.add(
        CircuitRecord(
            name="question → hedge",
            definition=DOCUMENT,
            description="n" * 10_000,
            rung=2,
            edge_count=4,
            layers=(6, 11),
            per_sae_warnings=({"layer": 6, "sae_id": None, "verdict": "unbound", "reason": "nobody there"},),
            serveable=True,
            intensity=0.8,
            provenance={"imported_at": "2026-05-01T09:00:00Z", "origin": "api"},
        )
    )
    assert re.fullmatch(r"circ_[0-9a-f]{12}", stored.id)
    found = library.circuits.get(stored.id)
    assert found == stored == library.circuits.by_name("question → hedge")
    assert found.definition == DOCUMENT
    assert (found.rung, found.edge_count, found.layers, found.serveable) == (2, 4, (6, 11), True)
    assert found.per_sae_warnings == ({"layer": 6, "sae_id": None, "verdict": "unbound", "reason": "nobody there"},)
    assert (found.is_active, found.serving_mode, found.intensity, found.slice_profile_id) == (False, None, 0.8, None)
    assert found.provenance == {"imported_at": "2026-05-01T09:00:00Z", "origin": "api"}
    assert library.circuits.add(new("plain")).intensity is None


def test_pages_have_the_newest_first_and_count_all_that_fit(library: Library) -> None:
    for number in range(5):
        library.circuits.add(new(f"c{number}", rung=number % 4, serveable=number % 2 == 0))

    def names(**question: object) -> tuple[list[str], int]:
        page = library.circuits.list(**question)  # type: ignore[arg-type]
        return [circuit.name for circuit in page.circuits], page.total

    assert names() == (["c4", "c3", "c2", "c1", "c0"], 5)
    assert names(limit=2) == (["c4", "c3"], 5)
    assert names(limit=2, offset=4) == (["c0"], 5)
    assert names(offset=5) == ([], 5)
    assert names(offset=2**70) == ([], 5)
    assert names(limit=0) == ([], 5)
    assert names(min_rung=2) == (["c3", "c2"], 2)
    assert names(serveable=True) == (["c4", "c2", "c0"], 3)
    assert names(serveable=False, min_rung=1, limit=1) == (["c3"], 2)


def test_more_than_a_page(library: Library) -> None:
    for number in range(60):
        library.circuits.add(new(f"c{number:02}"))
    page = library.circuits.list()
    assert (len(page.circuits), page.total) == (50, 60)
    rest = library.circuits.list(offset=50)
    assert [circuit.name for circuit in rest.circuits] == [f"c{number:02}" for number in range(9, -1, -1)]


def test_names(library: Library) -> None:
    first = library.circuits.add(new("a"))
    with pytest.raises(CircuitAlreadyExists) as caught:
        library.circuits.add(new("a"))
    assert caught.value.code == "circuit_already_exists"
    assert caught.value.details == {"existing_circuit_id": first.id, "existing_name": "a"}
    assert library.circuits.add(new("a"), rename=True).name == "a (2)"
    library.circuits.add(new("x" * 200))
    assert library.circuits.add(new("x" * 200), rename=True).name == "x" * 196 + " (2)"
    with pytest.raises(CircuitAlreadyExists):
        library.circuits.update(first.id, name="a (2)", rung=3)
    assert library.circuits.get(first.id) == first
    assert library.circuits.update(first.id, name="a").name == "a"
    for number in range(3, 52):
        assert library.circuits.add(new("a"), rename=True).name == f"a ({number})"
    with pytest.raises(CircuitAlreadyExists, match="50 names made from it"):
        library.circuits.add(new("a"), rename=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"description": "x" * 10_001}, "description"),
        ({"rung": 4}, "rung"),
        ({"rung": -1}, "rung"),
        ({"rung": True}, "rung"),
        ({"edge_count": 2**63}, "edge_count"),
        ({"layers": (3, -1)}, "layers"),
        ({"intensity": float("nan")}, "intensity"),
    ],
)
def test_values_no_circuit_can_have(library: Library, fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.circuits.add(CircuitRecord(**{"name": "a", "definition": "{}", **fields}))  # type: ignore[arg-type]
    assert caught.value.param == param
    stored = library.circuits.add(new("a"))
    with pytest.raises(InvalidParameter):
        library.circuits.update(stored.id, **fields)
    assert library.circuits.list().circuits == (stored,)


def test_a_document_that_cannot_be_kept_to_the_letter_is_refused(library: Library) -> None:
    with pytest.raises(InvalidParameter) as caught:
        library.circuits.add(CircuitRecord("a", '"\udfff"'))
    assert caught.value.param == "definition"


def test_updating_keeps_what_is_not_named(library: Library) -> None:
    stored = library.circuits.add(new("a", rung=1, layers=(6,)))
    changed = library.circuits.update(stored.id, intensity=1, per_sae_warnings=({"layer": 6},), serveable=True)
    assert (changed.intensity, changed.per_sae_warnings, changed.serveable) == (1.0, ({"layer": 6},), True)
    assert (changed.rung, changed.layers, changed.created_at) == (1, (6,), stored.created_at)
    assert library.circuits.get(stored.id) == changed
    with pytest.raises(TypeError, match="called definition, is_active, serving_mode"):
        library.circuits.update(stored.id, definition="{}", is_active=True, serving_mode=None)


def test_several_may_be_active(library: Library) -> None:
    a, b = library.circuits.add(new("a")), library.circuits.add(new("b"))
    active = library.circuits.set_active(a.id, ServingMode.FULL, intensity=0.5, serveable=True)
    assert (active.is_active, active.serving_mode, active.intensity) == (True, ServingMode.FULL, 0.5)
    library.circuits.set_active(b.id, ServingMode.SLICE_FALLBACK)
    assert {circuit.name for circuit in library.circuits.active()} == {"a", "b"}
    library.circuits.deactivate(a.id)
    (left,) = library.circuits.active()
    assert (left.name, left.serving_mode, left.updated_at) == ("b", ServingMode.SLICE_FALLBACK, b.updated_at)
    assert library.circuits.get(a.id).serving_mode is None  # type: ignore[union-attr]
    assert library.circuits.deactivate(a.id) == ()
    assert library.circuits.get(a.id).intensity == 0.5  # type: ignore[union-attr]


def test_the_database_itself_knows_no_active_circuit_without_a_mode(library: Library) -> None:
    library.circuits.add(new("a"))
    for values in ({"is_active": True}, {"serving_mode": ServingMode.FULL}):
        with pytest.raises(IntegrityError, match="ck_circuits_serving"):
            with library._sessions.write() as session:
                session.execute(update(CircuitRow).values(**values))


def test_the_profile_of_a_slice_may_go(library: Library) -> None:
    profile = library.profiles.add(ProfileRecord("a [L6 slice]"))
    circuit = library.circuits.add(new("a"))
    active = library.circuits.set_active(circuit.id, ServingMode.SLICE_FALLBACK, slice_profile_id=profile.id)
    assert active.slice_profile_id == profile.id
    library.circuits.deactivate(circuit.id)
    assert library.circuits.get(circuit.id).slice_profile_id == profile.id  # type: ignore[union-attr]
    library.profiles.remove(profile.id)
    assert library.circuits.get(circuit.id).slice_profile_id is None  # type: ignore[union-attr]
    with pytest.raises(InvalidParameter) as caught:
        library.circuits.update(circuit.id, slice_profile_id=profile.id)
    assert caught.value.param == "slice_profile_id"


@pytest.mark.parametrize("circuit_id", ["", "circ_000000000000", "\ud800"])
def test_circuits_that_are_not_there(library: Library, circuit_id: str) -> None:
    assert library.circuits.get(circuit_id) is None
    assert library.circuits.by_name(circuit_id) is None
    for change in (
        lambda: library.circuits.remove(circuit_id),
        lambda: library.circuits.deactivate(circuit_id),
        lambda: library.circuits.set_active(circuit_id, ServingMode.FULL),
        lambda: library.circuits.update(circuit_id, name="x"),
        lambda: library.claims.claim(circuit_id, {6: [1]}),
        lambda: library.claims.release(circuit_id),
    ):
        with pytest.raises(CircuitNotFound) as caught:
            change()
        assert caught.value.code == "circuit_not_found"
    assert library.claims.live() == []
