from __future__ import annotations

from typing import Any

from engine.documents.binding import AttachedSae
from engine.documents.circuit import read_circuit
from engine.documents.cluster import read_cluster
from engine.documents.ranges import DialBounds
from engine.documents.verdicts import ImportStatus, judge_circuit, judge_cluster
from engine.wire import wire
from tests.engine.documents.samples import circuit, cluster

BOUNDS = DialBounds()
HOME = AttachedSae("sae_77aa", 9, 16384, 2048)
SIX = AttachedSae("sae_a", 6, 8192, 2048)
ELEVEN = AttachedSae("sae_b", 11, 8192, 2048)


def _strong(**budget: Any) -> dict[str, Any]:
    members = [
        {"feature_idx": 1, "strength": 150},
        {"feature_idx": 2, "strength": -130},
        {"feature_idx": 3, "strength": 100},
    ]
    return cluster(members=members, budget=budget or None)


def test_a_cluster_at_home() -> None:
    verdict = judge_cluster(read_cluster(cluster()), [HOME], BOUNDS)
    assert verdict.status is ImportStatus.IMPORTED
    assert verdict.binding.sae == HOME
    assert verdict.warnings == ()


def test_a_cluster_with_nothing_attached() -> None:
    verdict = judge_cluster(read_cluster(cluster()), [], BOUNDS)
    assert verdict.status == "imported_unbound"
    assert verdict.warnings == ("Not bound: no SAE is attached. Attach one, then activate the cluster.",)


def test_a_cluster_of_another_feature_space() -> None:
    verdict = judge_cluster(read_cluster(cluster()), [AttachedSae("sae_77aa", 9, 4096, 2048)], BOUNDS)
    assert verdict.status == "imported_unbound"
    assert verdict.warnings == (
        "Not bound: it was made for an SAE with 16384 features and 'sae_77aa' at layer 9 has 4096.",
    )


def test_a_cluster_of_another_layer() -> None:
    verdict = judge_cluster(read_cluster(cluster()), [AttachedSae("sae_77aa", 12, 16384, 2048)], BOUNDS)
    assert verdict.status == "imported_unbound"
    assert verdict.warnings == ("Not bound: no SAE is attached at layer 9.",)


def test_a_substituted_cluster_with_features_outside() -> None:
    document = read_cluster(cluster(sae={"sae_id": "x", "layer": 9}))
    verdict = judge_cluster(document, [AttachedSae("y", 9, 400, 2048)], BOUNDS)
    assert verdict.status == "imported"
    assert verdict.warnings == (
        "Bound with a remark: substituted: made with 'x', runs on 'y' at layer 9.",
        "'y' at layer 9 has features 0 to 399; outside are #911.",
    )


def test_strengths_that_would_be_clamped_at_the_top_of_the_dial() -> None:
    def warnings(**budget: Any) -> tuple[str, ...]:
        return judge_cluster(read_cluster(_strong(**budget)), [HOME], BOUNDS).warnings

    at_three_halves = "At intensity 1.5 these strengths are clamped to ±200: #1 (150)."
    assert warnings() == (at_three_halves,)
    assert warnings(intensity_range=[0, 1]) == ()
    assert warnings(intensity_range=[2, 0]) == (
        "At intensity 2 these strengths are clamped to ±200: #1 (150), #2 (-130).",
    )
    garbage = "/budget/intensity_range is not a pair of numbers and is ignored."
    assert warnings(intensity_range="x") == (garbage, at_three_halves)


def test_a_circuit_at_home() -> None:
    verdict = judge_circuit(read_circuit(circuit()), [SIX, ELEVEN], BOUNDS)
    assert verdict.serveable
    assert verdict.warnings == ()
    assert wire(verdict.layers) == [
        {"layer": 6, "sae_id": "sae_a", "verdict": "bind"},
        {"layer": 11, "sae_id": "sae_b", "verdict": "bind"},
    ]


def test_every_verdict_of_a_circuits_layers() -> None:
    raw = circuit(saes=[{"layer": layer, "mistudio_sae_id": "s", "n_features": 8} for layer in (1, 2, 3, 4, 5)])
    raw["members"] = [{"layer": layer, "feature": {"feature_idx": 3, "strength": 1}} for layer in (1, 2, 3, 4, 5)]
    raw["edges"] = []
    attached = [
        AttachedSae("s", 1, 8, 4),
        AttachedSae("t", 2, 8, 4),
        AttachedSae("s", 3, 9, 4),
        AttachedSae("t", 4, 8, 4),
        AttachedSae("u", 4, 8, 4),
    ]
    verdict = judge_circuit(read_circuit(raw), attached, BOUNDS)
    assert not verdict.serveable
    assert wire(verdict.layers) == [
        {"layer": 1, "sae_id": "s", "verdict": "bind"},
        {"layer": 2, "sae_id": "t", "verdict": "warn", "reason": "substituted: made with 's', runs on 't' at layer 2"},
        {
            "layer": 3,
            "sae_id": "s",
            "verdict": "block",
            "reason": "it was made for an SAE with 8 features and 's' at layer 3 has 9",
        },
        {"layer": 4, "sae_id": None, "verdict": "unbound", "reason": "several SAEs are attached at layer 4"},
        {"layer": 5, "sae_id": None, "verdict": "unbound", "reason": "no SAE is attached at layer 5"},
    ]
    assert verdict.warnings[0] == "Layer 2: substituted: made with 's', runs on 't' at layer 2."
    assert len(verdict.warnings) == 4


def test_a_substitution_still_serves() -> None:
    assert judge_circuit(read_circuit(circuit()), [SIX, AttachedSae("other", 11, 8192, 2048)], BOUNDS).serveable


def test_a_layer_without_features_is_judged_and_needs_no_sae() -> None:
    raw = circuit()
    raw["saes"].append({"layer": 20, "mistudio_sae_id": "sae_c"})
    verdict = judge_circuit(read_circuit(raw), [SIX, ELEVEN], BOUNDS)
    assert verdict.serveable
    assert wire(verdict.layers[2])["verdict"] == "unbound"


def test_a_circuit_of_clusters_that_were_not_expanded_cannot_serve() -> None:
    raw = circuit(members=[{"layer": 6, "member_kind": "cluster_ref", "cluster_name": "x"}], edges=[])
    assert not judge_circuit(read_circuit(raw), [SIX, ELEVEN], BOUNDS).serveable


def test_warnings_of_a_circuit() -> None:
    raw = circuit()
    raw["members"][0]["feature"] |= {"feature_idx": 9000, "strength": 180}
    raw["edges"][0]["rung"] = "high"
    verdict = judge_circuit(read_circuit(raw), [SIX, ELEVEN], BOUNDS)
    assert verdict.warnings == (
        "/edges/0/rung is not an evidence rung and counts as 0.",
        "'sae_a' at layer 6 has features 0 to 8191; outside are #9000.",
        "At intensity 1.4 these strengths are clamped to ±200: #9000 (180).",
    )
