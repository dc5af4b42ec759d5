"""Flattening a circuit, serving it, slicing it, and the evidence gate."""

from __future__ import annotations

from typing import Any

import pytest

from engine.documents.binding import AttachedSae
from engine.documents.circuit import CircuitDocument, read_circuit
from engine.documents.cluster import read_cluster
from engine.documents.ranges import DialBounds
from engine.documents.verdicts import judge_circuit
from engine.library.names import candidate_names
from engine.steering.errors import SaeSetIncomplete, SteeringInvalid, UnvalidatedCircuit
from engine.steering.flatten import FlatCircuit, by_place, flatten
from engine.steering.hazards import require_validated
from engine.steering.live import ServingCircuit
from engine.steering.slices import first_bound_layer, slice_document
from engine.steering.strengths import SteeredSet
from tests.engine.documents.samples import circuit

SIX = AttachedSae("sae_a", 6, 8192, 2048)
ELEVEN = AttachedSae("sae_b", 11, 8192, 2048)


def _member(layer: int, *features: tuple[int, float], **changes: Any) -> dict[str, Any]:
    first, *rest = [{"feature_idx": index, "strength": strength} for index, strength in features]
    return {"layer": layer, "feature": first, "expanded_members": rest, **changes}


def _bindings(document: CircuitDocument, *attached: AttachedSae) -> Any:
    return judge_circuit(document, attached, DialBounds()).bindings


def served(flat: FlatCircuit, bindings: Any, intensity: float) -> tuple[SteeredSet, ...]:
    """What a circuit adds that serves in full."""
    return ServingCircuit("circ_1", "Circuit", by_place(flat, bindings), intensity, rung=None).steered()


def test_flatten() -> None:
    assert flatten(read_circuit(circuit())) == FlatCircuit({6: {17: 9.0}, 11: {40: 5.0, 41: -2.0}})


def test_the_first_of_a_feature_counts_and_the_sign_gives_direction() -> None:
    members = [
        _member(11, (3, 7.0), (4, -1.0), (3, 8.0)),
        {"layer": 6, "feature": {"feature_idx": 3, "strength": 2, "sign": -1}},
        _member(11, (4, 9.0), (5, 1.0)),
    ]
    assert flatten(read_circuit(circuit(members=members, edges=[]))) == FlatCircuit(
        {6: {3: -2.0}, 11: {3: 7.0, 4: -1.0, 5: 1.0}}, ((11, 3), (11, 4))
    )


def test_serving_scales_every_layer_from_the_authored_strengths() -> None:
    document = read_circuit(circuit())
    flat, bindings = flatten(document), _bindings(document, SIX, ELEVEN)
    assert served(flat, bindings, 2.0) == (
        SteeredSet("sae_a", 6, ((17, 18.0),)),
        SteeredSet("sae_b", 11, ((40, 10.0), (41, -4.0))),
    )
    assert served(flat, bindings, 0.0) == ()
    with pytest.raises(SteeringInvalid):
        served(flat, bindings, float("nan"))


def test_serving_clamps_and_leaves_out_layers_that_add_nothing() -> None:
    document = read_circuit(circuit(members=[_member(6, (1, 150.0)), _member(11, (2, 0.0))], edges=[]))
    sets = served(flatten(document), _bindings(document, SIX, ELEVEN), 1.5)
    assert sets == (SteeredSet("sae_a", 6, ((1, 200.0),), clamped=1),)


def test_a_substitute_serves_under_its_own_id() -> None:
    document = read_circuit(circuit())
    other = AttachedSae("other", 11, 8192, 2048)
    assert [each.sae_id for each in served(flatten(document), _bindings(document, SIX, other), 1.0)] == [
        "sae_a",
        "other",
    ]


def test_every_member_that_cannot_be_served_is_named() -> None:
    raw = circuit(edges=[])
    raw["saes"] = [{"layer": layer, "mistudio_sae_id": "s", "n_features": 50} for layer in (1, 2, 3)]
    raw["members"] = [_member(3, (60, 1.0), (1, 1.0)), _member(1, (50, 1.0), (49, 1.0)), _member(2, (1, 1.0), (2, 1.0))]
    raw["members"].append(_member(9, (4, 1.0)))
    document = read_circuit(raw)
    attached = [
        AttachedSae("s", 1, 50, 4),
        AttachedSae("s", 2, 51, 4),
        AttachedSae("x", 9, 9, 4),
        AttachedSae("y", 9, 9, 4),
    ]
    with pytest.raises(SaeSetIncomplete) as caught:
        served(flatten(document), _bindings(document, *attached), 0.0)
    assert caught.value.details["offenders"] == [
        {"feature_idx": 50, "layer": 1, "sae_id": "s", "reason": "index_out_of_bounds"},
        {"feature_idx": 1, "layer": 2, "sae_id": "s", "reason": "feature_count_mismatch"},
        {"feature_idx": 2, "layer": 2, "sae_id": "s", "reason": "feature_count_mismatch"},
        {"feature_idx": 60, "layer": 3, "sae_id": "s", "reason": "missing_or_ambiguous_sae"},
        {"feature_idx": 1, "layer": 3, "sae_id": "s", "reason": "missing_or_ambiguous_sae"},
        {"feature_idx": 4, "layer": 9, "reason": "missing_or_ambiguous_sae"},
    ]
    assert caught.value.message == "6 members of the circuit cannot be served (layers 1, 2, 3, 9)."


# --- slices -----------------------------------------------------------------------------------------------------------


def test_a_slice_is_a_cluster_document() -> None:
    document = read_circuit(circuit())
    sliced = slice_document(document, 11, circuit_id="circ_1", intensity=0.6)
    assert sliced == {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": "question → hedge [L11 slice]",
        "narrative": "Questions make the answer careful.",
        "model": {"hf_id": "acme/tiny-1b"},
        "sae": {"mistudio_sae_id": "sae_b", "layer": 11, "n_features": 8192, "d_model": 2048},
        "members": [
            {"feature_idx": 40, "strength": 5.0, "sign": 1},
            {"feature_idx": 41, "strength": -2.0, "sign": -1},
        ],
        "budget": {"B_dir": 5.0, "constants": {"a": 1}, "intensity": 0.6, "intensity_range": [0.2, 1.4]},
        "provenance": {
            "source_note": (
                "Partial slice of 'question → hedge': layer 11 of a circuit over layers 6, 11. The whole circuit's "
                "evidence is at rung 2 (causally validated (edge)); this part was not tested by itself."
            ),
            "partial": True,
            "parent_circuit_id": "circ_1",
            "parent_circuit_name": "question → hedge",
            "parent_rung": 2,
            "parent_rung_language": "causally validated (edge)",
            "parent_layer": 11,
        },
    }
    cluster = read_cluster(sliced)
    assert cluster.strengths == {40: 5.0, 41: -2.0}
    assert cluster.intensity == 0.6 and cluster.intensity_range == (0.2, 1.4)


def test_members_of_a_slice_are_the_authors_own() -> None:
    members = [
        {
            "layer": 6,
            "feature": {"feature_idx": 17, "strength": 9, "x": {"y": [1]}},
            "expanded_members": [
                {"feature_idx": 18, "strength": 1, "sign": -1, "label": "b"},
                {"feature_idx": 17, "strength": 2},
            ],
        },
        {"layer": 11, "feature": {"feature_idx": 1, "strength": 1}},
        {
            "layer": 6,
            "feature": None,
            "member_kind": "cluster_ref",
            "expanded_members": [{"feature_idx": 3, "strength": 4}],
        },
        {"layer": 6, "feature": {"feature_idx": 5, "strength": 5}, "expanded_members": None},
    ]
    sliced = slice_document(read_circuit(circuit(members=members)), 6, circuit_id="c", intensity=1.0)
    assert sliced["members"] == [
        {"feature_idx": 17, "strength": 9, "x": {"y": [1]}},
        {"feature_idx": 18, "strength": 1, "sign": -1, "label": "b"},
        {"feature_idx": 3, "strength": 4},
        {"feature_idx": 5, "strength": 5},
    ]
    assert sliced["sae"]["x_sae"] == "six"


def test_a_slice_without_budget_model_or_sae() -> None:
    raw = circuit(budget=None, saes=[{"layer": 20}], edges=[])
    del raw["model"]
    sliced = slice_document(read_circuit(raw), 6, circuit_id="c", intensity=0.4)
    assert sliced["budget"] == {"intensity": 0.4}
    assert sliced["sae"] == {"layer": 6}
    assert "model" not in sliced
    assert read_cluster(sliced).intensity_range is None


def test_a_range_that_cannot_be_read_is_copied_and_ignored_as_before() -> None:
    sliced = slice_document(read_circuit(circuit(budget={"intensity_range": "x"})), 6, circuit_id="c", intensity=1.0)
    assert sliced["budget"]["intensity_range"] == "x"
    assert read_cluster(sliced).intensity_range is None


def test_a_long_name_leaves_room_for_its_own_end_and_for_a_number() -> None:
    sliced = slice_document(read_circuit(circuit(name="n" * 200)), 11, circuit_id="c", intensity=1.0)
    assert sliced["name"] == "n" * 103 + " [L11 slice]"
    assert candidate_names(sliced["name"], limit=120)[-1] == "n" * 103 + " [L11 slice] (51)"
    assert len(sliced["provenance"]["source_note"]) <= 500
    assert read_cluster(sliced)


def test_the_first_layer_that_has_its_sae_is_sliced() -> None:
    document = read_circuit(circuit())
    bounds = DialBounds()
    assert first_bound_layer(document, judge_circuit(document, [SIX, ELEVEN], bounds)) == 6
    assert first_bound_layer(document, judge_circuit(document, [ELEVEN], bounds)) == 11
    assert first_bound_layer(document, judge_circuit(document, [AttachedSae("x", 7, 8192, 2048)], bounds)) is None


# --- the evidence gate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rung", "acknowledged"), [(2, False), (3, False), (0, True), (1, True), (2, True)])
def test_validated_or_acknowledged_circuits_pass(rung: int, acknowledged: bool) -> None:
    require_validated("circ_1", rung, acknowledged=acknowledged)


@pytest.mark.parametrize(
    ("rung", "language", "next_step"),
    [
        (0, "associated", "run an attribution pass"),
        (1, "suggested (attribution-supported)", "run intervention validation"),
    ],
)
def test_an_unvalidated_circuit_needs_an_acknowledgement(rung: int, language: str, next_step: str) -> None:
    with pytest.raises(UnvalidatedCircuit) as caught:
        require_validated("circ_1", rung, acknowledged=False)
    assert caught.value.code == "unvalidated_circuit"
    assert caught.value.details == {
        "circuit_id": "circ_1",
        "rung": rung,
        "rung_language": language,
        "next_step": next_step,
    }
