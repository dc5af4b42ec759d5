from __future__ import annotations

from typing import Any

import pytest

from engine.documents.circuit import Edge
from engine.steering.hazards import hazards
from engine.wire import wire


def _edge(up: tuple[int, int], down: tuple[int, int], **changes: Any) -> Edge:
    ends = {
        "up": {"layer": up[0], "feature_idx": up[1]},
        "down": {"layer": down[0], "feature_idx": down[1]},
    }
    return Edge.model_validate({**ends, **changes})


def _rows(strengths: dict[int, dict[int, float]], *edges: Edge) -> list[tuple[Any, ...]]:
    return [
        (
            row["kind"],
            row["up"] and tuple(row["up"].values()),
            row["down"] and tuple(row["down"].values()),
            row["label"],
            row["rung"],
            row["quantified_effect"],
        )
        for row in (wire(each) for each in hazards(strengths, edges))
    ]


@pytest.mark.parametrize(
    ("up", "down", "effect", "kind"),
    [
        (9.0, 5.0, 0.33, "compounding"),
        (-9.0, -5.0, 0.33, "compounding"),
        (9.0, -5.0, 0.33, "cancellation"),
        (9.0, 5.0, -0.33, "cancellation"),
        (9.0, -5.0, -0.33, "compounding"),
    ],
)
def test_a_measured_effect(up: float, down: float, effect: float, kind: str) -> None:
    edge = _edge((6, 17), (11, 40), rung=2, effect_size=effect, weight_prior=0.2)
    assert _rows({6: {17: up}, 11: {40: down}}, edge) == [
        (kind, (6, 17), (11, 40), f"validated:ES={effect}", 2, effect)
    ]


@pytest.mark.parametrize(
    ("changes", "label", "rung"),
    [
        ({"rung": 1, "effect_size": 0.5, "weight_prior": 0.2}, "heuristic:weight_prior=0.2", 1),
        ({"rung": 2, "weight_prior": -0.2}, "heuristic:weight_prior=-0.2", 2),
        ({"rung": "2", "effect_size": 0.5}, "heuristic:co-steer-sign", 0),
        ({"rung": 3}, "heuristic:co-steer-sign", 3),
    ],
)
def test_an_edge_without_a_measured_effect(changes: dict[str, Any], label: str, rung: int) -> None:
    assert _rows({6: {17: 1.0}, 11: {40: 1.0}}, _edge((6, 17), (11, 40), **changes)) == [
        ("compounding", (6, 17), (11, 40), label, rung, None)
    ]


def test_a_pair_without_an_edge_has_no_rung() -> None:
    assert _rows({11: {40: -1.0}, 6: {17: 1.0}}) == [
        ("cancellation", (6, 17), (11, 40), "heuristic:co-steer-sign", None, None)
    ]


def test_an_edge_that_runs_downwards_keeps_its_direction() -> None:
    edge = _edge((11, 40), (6, 17), rung=2, effect_size=0.5)
    assert _rows({6: {17: 1.0}, 11: {40: 1.0}}, edge)[0][1:3] == ((11, 40), (6, 17))


def test_features_of_one_layer_and_features_that_add_nothing_are_no_pair() -> None:
    assert _rows({6: {1: 1.0, 2: -1.0}, 11: {3: 0.0}}) == []
    assert _rows({}) == []


def test_of_several_edges_the_best_evidence_counts() -> None:
    edges = [
        _edge((6, 1), (11, 2), rung=2, effect_size=0.1),
        _edge((6, 1), (11, 2), rung=3, effect_size=0.2),
        _edge((6, 1), (11, 2), rung=3, effect_size=-0.3),
        _edge((6, 1), (11, 2), rung=1, effect_size=9.0),
    ]
    assert _rows({6: {1: 1.0}, 11: {2: 1.0}}, *edges) == [
        ("cancellation", (6, 1), (11, 2), "validated:ES=-0.3", 3, -0.3)
    ]


def test_measured_ones_come_first_by_size_then_ten_others_and_a_summary() -> None:
    strengths = {1: dict.fromkeys(range(4), 1.0), 2: dict.fromkeys(range(4), 1.0)}
    edges = [
        _edge((1, 0), (2, 0), rung=2, effect_size=0.1),
        _edge((1, 1), (2, 1), rung=2, effect_size=-0.7),
        _edge((1, 3), (2, 3), rung=0, weight_prior=0.1),
        _edge((1, 2), (2, 2), rung=1, weight_prior=-0.4),
        Edge.model_validate({"up": {"layer": 1, "kind": "cluster"}, "down": {"layer": 2, "feature_idx": 1}, "rung": 3}),
    ]
    rows = _rows(strengths, *edges)
    assert len(rows) == 13
    assert [row[3] for row in rows[:5]] == [
        "validated:ES=-0.7",
        "validated:ES=0.1",
        "heuristic:weight_prior=-0.4",
        "heuristic:weight_prior=0.1",
        "heuristic:co-steer-sign",
    ]
    assert rows[-1] == ("summary", None, None, "heuristic:4 more pairs steered together", None, None)
