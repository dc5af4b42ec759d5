from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from engine.steering.claims import Claim, Granted, grant, is_composed, require_single_slice
from engine.steering.errors import CircuitLayerContention
from engine.wire import wire


def _claim(circuit: str, layer: int, *keys: int, composed: bool = False) -> Claim:
    return Claim(layer, circuit, circuit.upper(), composed, frozenset(keys))


def _grant(
    live: list[Claim],
    keys: Mapping[int, Iterable[int]],
    *,
    concurrent: bool = False,
    overlap: bool = False,
    circuit: str = "a",
) -> Granted:
    return grant(
        live,
        circuit_id=circuit,
        circuit_name=circuit.upper(),
        keys=keys,
        allow_concurrent=concurrent,
        allow_layer_overlap=overlap,
    )


def _refused(*arguments: Any, **options: Any) -> CircuitLayerContention:
    with pytest.raises(CircuitLayerContention) as caught:
        _grant(*arguments, **options)
    return caught.value


def test_free_layers_are_granted() -> None:
    assert _grant([], {11: [40, 41], 6: [17]}) == Granted((_claim("a", 6, 17), _claim("a", 11, 40, 41)))
    assert _grant([_claim("b", 9, 17)], {6: [17]}) == Granted((_claim("a", 6, 17),))
    assert _grant([], {6: [17]}).composed_layers == ()


def test_a_circuits_own_claims_are_in_nobodys_way() -> None:
    assert _grant([_claim("a", 6, 17), _claim("a", 9, 1)], {6: [17, 18]}) == Granted((_claim("a", 6, 17, 18),))


def test_a_held_layer_is_contended() -> None:
    error = _refused([_claim("b", 6, 1), _claim("c", 11, 2), _claim("d", 20, 3)], {6: [17], 11: [40]}, concurrent=True)
    assert error.code == "circuit_layer_contention"
    assert error.message == "'A' needs layers 6, 11, which is claimed by 'B' and 'C'."
    hazard = error.details.pop("measured_hazard")
    assert set(hazard) == {"source", "one_layer_at_strength_5", "two_layers_at_strength_5", "note"}
    assert error.details == {
        "contended_layers": [6, 11],
        "incumbent": {"id": "b", "name": "B"},
        "all_incumbents": [{"id": "b", "name": "B"}, {"id": "c", "name": "C"}],
        "requested": {"id": "a", "name": "A"},
        "colliding_keys": [],
        "overridable": True,
        "override_param": "allow_layer_overlap",
        "rung_header_suppressed_if_overridden": True,
    }


@pytest.mark.parametrize("overlap", [False, True])
def test_where_circuits_may_not_share_contention_cannot_be_overridden(overlap: bool) -> None:
    error = _refused([_claim("b", 6, 1)], {6: [17]}, overlap=overlap)
    assert error.details["overridable"] is False
    assert "override_param" not in error.details
    assert error.remedy is not None and "CIRCUIT_ALLOW_CONCURRENT" in error.remedy


@pytest.mark.parametrize("overlap", [False, True])
def test_one_feature_cannot_be_steered_twice(overlap: bool) -> None:
    live = [_claim("b", 6, 1), _claim("c", 11, 41, 40)]
    error = _refused(live, {6: [17], 11: [40, 41, 42]}, concurrent=True, overlap=overlap)
    assert error.details["overridable"] is False
    assert "override_param" not in error.details
    assert error.details["colliding_keys"] == [
        {"layer": 11, "feature_idx": 40, "incumbent": "c"},
        {"layer": 11, "feature_idx": 41, "incumbent": "c"},
    ]
    assert error.details["incumbent"] == {"id": "c", "name": "C"}
    assert error.details["all_incumbents"] == [{"id": "c", "name": "C"}, {"id": "b", "name": "B"}]
    assert error.details["contended_layers"] == [6, 11]


def test_sharing_a_layer_composes_both() -> None:
    live = [_claim("b", 6, 1), _claim("b", 9, 1)]
    granted = _grant(live, {6: [17], 11: [40]}, concurrent=True, overlap=True)
    assert granted == Granted(
        (_claim("a", 6, 17, composed=True), _claim("a", 11, 40)), (_claim("b", 6, 1, composed=True),)
    )
    assert granted.composed_layers == (6,)


def test_a_third_circuit_on_a_shared_layer() -> None:
    live = [_claim("b", 6, 1, composed=True), _claim("c", 6, 2, composed=True)]
    assert _grant(live, {6: [17]}, concurrent=True, overlap=True) == Granted((_claim("a", 6, 17, composed=True),))


def test_a_circuit_is_composed_if_any_layer_is() -> None:
    live = [_claim("a", 6, 1), _claim("a", 11, 2, composed=True), _claim("b", 9, 3)]
    assert is_composed(live, "a") and not is_composed(live, "b") and not is_composed(live, "x")


def test_a_claim_as_it_travels() -> None:
    assert wire(_claim("a", 6, 41, 9)) == {
        "layer": 6,
        "circuit_id": "a",
        "circuit_name": "A",
        "composed": False,
        "steering_keys": [9, 41],
    }


def test_one_slice_serves_at_a_time() -> None:
    require_single_slice(None, circuit_id="a", circuit_name="A")
    require_single_slice(("a", "A"), circuit_id="a", circuit_name="A")
    with pytest.raises(CircuitLayerContention) as caught:
        require_single_slice(("b", "B"), circuit_id="a", circuit_name="A")
    assert caught.value.details["reason"] == "slice_fallback_is_single_active"
    assert caught.value.details["overridable"] is False
    assert caught.value.details["incumbent"] == {"id": "b", "name": "B"}
