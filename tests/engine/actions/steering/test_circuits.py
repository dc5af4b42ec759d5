"""Circuits in the library: import, lists, what is said of them, export, removal."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from engine.documents.errors import DocumentInvalid, DocumentTooLarge, UnknownKind
from engine.errors import InvalidParameter, MillmError
from engine.library.database import Library
from engine.library.errors import CircuitAlreadyExists, CircuitNotFound
from engine.steering import transitions
from engine.steering.errors import SteeringInvalid
from engine.wire import wire
from tests.engine.actions.steering.stage import ELEVEN, SIX, Stage, circuit, cluster, make_stage, one_layer, raw
from tests.engine.steering.made import deltas


@pytest.fixture
def stage(library: Library) -> Stage:
    return make_stage(library, SIX, ELEVEN)


def imported(stage: Stage, document: dict[str, Any] | None = None, **options: Any) -> str:
    return stage.circuits.import_document(raw(document or circuit()), **options).id


def test_an_imported_circuit_as_it_travels(stage: Stage) -> None:
    before = stage.desk.now
    found = stage.circuits.import_document(raw(circuit()), origin="file")
    travelling = wire(found)
    assert len(travelling["id"]) == 17 and travelling.pop("id").startswith("circ_")
    assert travelling.pop("created_at") == travelling.pop("updated_at")
    assert travelling == {
        "name": "question → hedge",
        "description": "Questions make the answer careful.",
        "rung": 2,
        "rung_language": "causally validated (edge)",
        "rung_next_step": "run circuit-level faithfulness",
        "only_persistence": False,
        "validated": True,
        "edge_count": 1,
        "layers": [6, 11],
        "serveable": True,
        "is_active": False,
        "serving_mode": None,
        "intensity": 0.5,
        "per_sae_warnings": [
            {"layer": 6, "sae_id": "sae_a", "verdict": "bind"},
            {"layer": 11, "sae_id": "sae_b", "verdict": "bind"},
        ],
        "steering": False,
        "warnings": [],
    }
    assert found.record.provenance["origin"] == "file"
    assert stage.desk.now is before
    assert stage.names() == ["circuits:changed"]


@pytest.mark.parametrize(
    ("rung", "language", "validated"),
    [
        (0, "associated", False),
        (1, "suggested (attribution-supported)", False),
        (2, "causally validated (edge)", True),
        (3, "faithfulness-tested (circuit)", True),
        ("three", "associated", False),
        (4, "associated", False),
    ],
)
def test_rungs_are_spelt_by_the_server(stage: Stage, rung: Any, language: str, validated: bool) -> None:
    found = wire(stage.circuits.import_document(raw(circuit(rung=rung, narrative=None))))
    assert (found["rung_language"], found["validated"]) == (language, validated)
    if not validated:
        assert "caus" not in json.dumps(found)


def test_verdicts_by_layer(library: Library) -> None:
    stage = make_stage(library, ("other", 6), ("x", 11), ("y", 11))
    found = wire(stage.circuits.import_document(raw(circuit())))
    assert found["serveable"] is False
    assert found["per_sae_warnings"] == [
        {
            "layer": 6,
            "sae_id": "other",
            "verdict": "warn",
            "reason": "substituted: made with 'sae_a', runs on 'other' at layer 6",
        },
        {"layer": 11, "sae_id": None, "verdict": "unbound", "reason": "several SAEs are attached at layer 11"},
    ]
    assert found["warnings"][0] == "Layer 6: substituted: made with 'sae_a', runs on 'other' at layer 6."


@pytest.mark.parametrize(
    ("body", "error", "pointer"),
    [
        (raw(cluster()), UnknownKind, "/kind"),
        (raw(circuit(members=[])), DocumentInvalid, "/members"),
        (
            raw(circuit(edges=[{"up": {"layer": 6, "feature_idx": 1}, "down": {"layer": 9, "feature_idx": 2}}])),
            DocumentInvalid,
            "/edges/0/down/layer",
        ),
        (
            raw(circuit(members=[{"layer": 6, "feature": {"feature_idx": 1, "strength": float("nan")}}])),
            DocumentInvalid,
            "/members/0/feature/strength",
        ),
        (b'{"kind":' + b"[" * 9000 + b"]" * 9000 + b"}", DocumentInvalid, ""),
        (raw(circuit(narrative="x" * 2_000_000)), DocumentTooLarge, ""),
    ],
)
def test_a_bad_document_is_refused(stage: Stage, body: bytes, error: type[MillmError], pointer: str) -> None:
    before = stage.everything()
    with pytest.raises(error) as caught:
        stage.circuits.import_document(body)
    assert caught.value.details["errors"][0]["pointer"] == pointer
    assert stage.everything() == before and stage.names() == []


def test_the_document_comes_back_as_it_was(stage: Stage) -> None:
    document = circuit(x_numbers=[1, 1.0, -0.0, 1e300, 10**30], calibration={"onset": 0.1, "sweet_spot": 1, "cliff": 2})
    assert json.dumps(stage.circuits.export(imported(stage, document))) == json.dumps(document)


def test_taken_names(stage: Stage) -> None:
    imported(stage)
    with pytest.raises(CircuitAlreadyExists):
        imported(stage, on_conflict="fail")
    assert stage.circuits.get(imported(stage)).record.name == "question → hedge (2)"
    with pytest.raises(InvalidParameter):
        imported(stage, on_conflict="replace")


def test_lists(stage: Stage) -> None:
    low = imported(stage, circuit("low", rung=0))
    wide = imported(stage, circuit("wide", rung=1, saes=[{"layer": 6}, {"layer": 11, "n_features": 9}]))
    top = imported(stage, circuit("top", rung=3))
    assert [each.record.id for each in stage.circuits.list().circuits] == [top, wide, low]
    found = wire(stage.circuits.list(min_rung=1, limit=1, offset=1))
    assert [each["id"] for each in found["circuits"]] == [wide]
    assert (found["total"], found["active_circuit_id"], found["circuits"][0]["steering"]) == (2, None, None)
    assert [each.record.id for each in stage.circuits.list(serveable=False).circuits] == [wide]
    stage.circuits.activate(top)
    assert stage.circuits.list(limit=1, offset=2).active_circuit_id == top


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"min_rung": 4}, "min_rung"),
        ({"min_rung": -1}, "min_rung"),
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
        ({"offset": -1}, "offset"),
        ({"limit": True}, "limit"),
    ],
)
def test_figures_of_a_list_have_bounds(stage: Stage, options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        stage.circuits.list(**options)
    assert caught.value.param == param


def test_active_circuits_say_whether_they_steer(stage: Stage) -> None:
    assert stage.circuits.active() == () and stage.circuits.active_single() is None
    first, second = imported(stage, one_layer("a", 6, 1)), imported(stage, one_layer("b", 11, 1))
    stage.circuits.activate(first)
    stage.circuits.activate(second, intensity=0)
    said = {each.record.name: each.steering for each in stage.circuits.active()}
    assert said == {"a": True, "b": False}
    assert [wire(each)["is_active"] for each in stage.circuits.active()] == [True, True]
    single = stage.circuits.active_single()
    assert single is not None and single.record.id == min(first, second)
    stage.desk.apply(transitions.set_enabled(SIX, False))
    assert stage.circuits.get(first).steering is False
    stage.desk.apply(transitions.set_enabled(SIX, True))
    assert stage.circuits.get(first).steering is True
    stage.desk.apply(transitions.detach("sae_a"))
    assert wire(stage.circuits.get(first))["steering"] is False


def test_a_circuit_that_is_not_there(stage: Stage) -> None:
    for call in (
        stage.circuits.get,
        stage.circuits.export,
        stage.circuits.activate,
        stage.circuits.deactivate,
        stage.circuits.delete,
        stage.circuits.release_claims,
    ):
        with pytest.raises(CircuitNotFound):
            call("circ_000000000000")


def test_deactivating_takes_out_what_it_added(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.desk.apply(transitions.set_values(SIX, {9: 1.0}))
    stage.circuits.activate(circuit_id)
    version = stage.desk.state.version
    stage.names()
    done = wire(stage.circuits.deactivate(circuit_id))
    assert (done["id"], done["is_active"], done["serving_mode"], done["steering"]) == (circuit_id, False, None, False)
    assert done["cleared_steering"] is True
    assert deltas(stage.desk) == {6: [0.0, 3.0, 0.0, 0.0]}
    assert stage.desk.state.version == version + 1
    assert stage.library.claims.live() == []
    assert stage.names() == ["steering:update", "circuits:changed"]
    stage.agrees()
    assert stage.circuits.deactivate(circuit_id).cleared_steering is False
    assert stage.desk.state.version == version + 1 and stage.names() == []


def test_cleared_steering_says_what_happened(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id, intensity=0)
    assert stage.circuits.deactivate(circuit_id).cleared_steering is False
    stage.circuits.activate(circuit_id)
    stage.desk.apply(transitions.detach("sae_a"))
    stage.desk.apply(transitions.detach("sae_b"))
    assert stage.circuits.deactivate(circuit_id).cleared_steering is False
    stage.agrees()


def test_deleting_deactivates_first(stage: Stage) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id)
    assert wire(stage.circuits.delete(circuit_id)) == {
        "circuit_id": circuit_id,
        "deleted": True,
        "cleared_steering": True,
    }
    assert stage.desk.live_plan.is_empty
    assert stage.circuits.list().total == 0 and stage.library.claims.live() == []
    stage.agrees()


def test_a_damaged_document_is_an_error_and_never_silence(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    circuit_id = imported(stage)
    stage.circuits.activate(circuit_id)
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("UPDATE circuits SET definition = '{\"members\": 7}'")
    assert stage.circuits.active()[0].steering is True
    before = stage.everything()
    with caplog.at_level(logging.ERROR), pytest.raises(SteeringInvalid) as caught:
        stage.circuits.activate(circuit_id)
    assert caught.value.code == "validation_error"
    assert caught.value.details["errors"][0]["pointer"] == "/name"
    assert circuit_id in caplog.text
    with pytest.raises(SteeringInvalid):
        stage.circuits.set_intensity(1.0)
    assert stage.everything() == before
    assert stage.circuits.export(circuit_id) == {"members": 7}
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("UPDATE circuits SET definition = '{'")
    with pytest.raises(DocumentInvalid):
        stage.circuits.export(circuit_id)
    with pytest.raises(SteeringInvalid):
        stage.circuits.activate(circuit_id)
    assert stage.circuits.deactivate(circuit_id).cleared_steering is True


def test_release_all_makes_nothing_active(stage: Stage) -> None:
    stage.circuits.activate(imported(stage))
    stage.desk.apply(transitions.close())
    assert stage.circuits.release_all() == ()
    assert stage.circuits.active() == () and stage.library.claims.live() == []
    stage.agrees()


def test_each_part_of_a_release_stands_alone(stage: Stage) -> None:
    stage.circuits.activate(imported(stage))
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE circuits RENAME TO elsewhere")
    assert stage.circuits.release_all() == ("the circuits",)
    assert stage.desk.live_plan.is_empty and stage.desk.state.circuits == ()
    with stage.library._sessions.write() as session:
        session.connection().exec_driver_sql("ALTER TABLE elsewhere RENAME TO circuits")
    assert stage.library.claims.live() == []
