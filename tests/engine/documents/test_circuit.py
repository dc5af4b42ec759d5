from __future__ import annotations

from typing import Any

import pytest

from engine.documents.binding import SaeReference
from engine.documents.circuit import read_circuit
from engine.documents.imports import import_circuit
from tests.engine.documents.samples import circuit, encoded


def test_a_circuit_is_read() -> None:
    document = import_circuit(encoded(circuit()))
    assert document.rung == 2
    assert document.layers == (6, 11)
    assert document.references == {
        6: SaeReference("sae_a", 6, 8192, 2048),
        11: SaeReference("sae_b", 11, 8192, 2048),
    }
    assert document.intensity == 0.8
    assert document.intensity_range == (0.2, 1.4)
    assert document.notes == ()


def test_the_document_comes_back_exactly_as_it_came() -> None:
    original = circuit(warnings=["an author's own key"], saes=[{"layer": 11}, {"layer": 6, "x": [[]]}])
    document = import_circuit(encoded(original))
    assert document.exported() == original
    document.exported()["members"].clear()
    assert document.exported() == original


def _edge(rung: Any) -> dict[str, Any]:
    return {"up": {"layer": 6, "feature_idx": 17}, "down": {"layer": 11, "feature_idx": 40}, "rung": rung}


@pytest.mark.parametrize(
    ("rungs", "expected", "noted"),
    [
        ([2], 2, []),
        ([3, 2, 3], 2, []),
        ([3, 0], 0, []),
        ([3], 3, []),
        ([], 0, []),
        ([2.0], 2, []),
        (["2"], 0, ["/edges/0/rung"]),
        ([3, 7, True, None, -1, 1.5], 0, [f"/edges/{i}/rung" for i in range(1, 6)]),
    ],
)
def test_the_rung_is_the_weakest_edge_and_degrades_where_it_cannot_be_read(
    rungs: list[Any], expected: int, noted: list[str]
) -> None:
    document = read_circuit(circuit(edges=[_edge(rung) for rung in rungs]))
    assert document.rung == expected
    assert [note.pointer for note in document.notes] == noted
    assert {note.message for note in document.notes} <= {"is not an evidence rung and counts as 0"}


def test_an_edge_without_a_rung_is_at_rung_0() -> None:
    edge = _edge(2)
    del edge["rung"]
    assert read_circuit(circuit(edges=[edge])).rung == 0


def test_a_circuit_without_edges_is_at_rung_0() -> None:
    raw = circuit()
    del raw["edges"]
    document = read_circuit(raw)
    assert document.rung == 0 and document.definition.edges == []


def test_without_a_budget_there_is_no_authored_dial() -> None:
    document = read_circuit(circuit(budget=None))
    assert document.intensity is None and document.intensity_range is None
    assert read_circuit(circuit(budget={})).intensity == 1.0


def test_a_member_may_have_a_feature_and_expanded_ones() -> None:
    feature = {"feature_idx": 1, "strength": 1}
    member = {"layer": 6, "feature": feature, "expanded_members": [{"feature_idx": 2, "strength": 2}, feature]}
    (read,) = read_circuit(circuit(members=[member], edges=[])).definition.members
    assert [each.feature_idx for each in read.features] == [1, 2, 1]


def test_twenty_distinct_features_on_a_layer_are_read_however_often_they_are_named() -> None:
    expanded = [{"feature_idx": index, "strength": 1} for index in range(20)]
    members = [{"layer": 6, "member_kind": "cluster_ref", "expanded_members": expanded}] * 3
    assert read_circuit(circuit(members=members, edges=[])).layers == (6,)


def test_a_member_on_a_layer_without_an_sae_and_an_sae_without_members_are_read() -> None:
    document = read_circuit(circuit(saes=[{"layer": 20, "mistudio_sae_id": "s"}], edges=[]))
    assert document.layers == (6, 11)
    assert document.references == {6: SaeReference(layer=6), 11: SaeReference(layer=11), 20: SaeReference("s", 20)}


def test_everything_optional_at_once() -> None:
    original = circuit(
        calibration={
            "onset": 0.2,
            "sweet_spot": 0.8,
            "cliff": 1.4,
            "probe_set": [{"prompt": "a", "expected": "b"}],
            "step_budget": 5,
            "manifest_ref": {"any": "thing"},
        },
        discovery={"mode": "open", "granularity": "cluster", "corpus_ref": "c", "thresholds": {"pmi": 1}, "split": "x"},
        faithfulness={"necessity": 0.4, "sufficiency": None, "sufficiency_k": 5, "metric_id": "m"},
        sensing={"max_token_lag": 900},
        edges=[
            {
                "up": {"layer": 6, "kind": "cluster", "cluster_profile_id": "c1"},
                "down": {"layer": 11, "feature_idx": 40},
                "type": "attention_mediated",
                "rung": 1,
                "tested_and_failed": [2, "x"],
                "coactivation": {"pmi": 1.5, "support": 12, "replicated_heldout": True},
                "attribution": {"method": "raw", "score": -0.4, "sign_consistency": 1},
                "position": {"mediating_heads": [[3, 1]], "roles": ["a"], "source_role": "s"},
            }
        ],
    )
    assert read_circuit(original).exported() == original
