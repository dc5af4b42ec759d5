"""Hand-set values: what is typed is checked, merges, and acts on the first attached SAE or the one named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.saes import SaeActions
from engine.engine import Engine
from engine.errors import SaeNotAttached
from engine.events import SteeringUpdated
from engine.saes.errors import InvalidFeatureIndex
from engine.steering.errors import SteeringInvalid
from engine.wire import wire
from tests.engine.actions.saes.driving import actions_on, hearing
from tests.made_saes import make_sae

EngineMaker = Callable[..., Engine]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


@pytest.fixture
def saes(engine: Engine, tmp_path: Path) -> SaeActions:
    saes = actions_on(engine)
    for layer, name in ((1, "one"), (2, "two")):
        saes.import_local(make_sae(tmp_path / name, layer=layer, model_name="acme/other"), sae_id=name)
    saes.attach_set([("one", 1), ("two", 2), ("one", 3)])
    return saes


def test_one_value(engine: Engine, saes: SaeActions) -> None:
    heard = hearing(engine, SteeringUpdated)
    view = saes.set_steering(12, -3)
    assert wire(view) == {"enabled": True, "values": {"12": -3.0}, "sae_id": "one", "layer": 1}
    assert saes.set_steering(7, 200).values == {"7": 200.0, "12": -3.0}
    assert saes.set_steering(12, 0.5).values == {"7": 200.0, "12": 0.5}
    assert [each.active_count for each in heard if isinstance(each, SteeringUpdated)] == [1, 2, 2]


def test_the_one_that_is_named(saes: SaeActions) -> None:
    saes.set_steering(1, 1.0, sae_id="two")
    saes.set_steering(2, 2.0, layer=3)
    saes.set_steering(3, 3.0, sae_id="one", layer=3)
    assert saes.steering_view().values == {}
    assert saes.steering_view("two").values == {"1": 1.0}
    assert saes.steering_view("one", 3).values == {"2": 2.0, "3": 3.0}
    for where in ({"sae_id": "three"}, {"layer": 0}, {"sae_id": "two", "layer": 1}):
        with pytest.raises(SaeNotAttached):
            saes.set_steering(1, 1.0, **where)  # type: ignore[arg-type]
        with pytest.raises(SaeNotAttached):
            saes.steering_view(**where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [200.5, -201, float("nan"), float("inf"), float("-inf"), True, "1", None, 10**400], ids=str
)
def test_typed_values_are_checked(engine: Engine, saes: SaeActions, value: Any) -> None:
    saes.set_steering(1, 5.0)
    before = engine.desk.state
    for attempt in (lambda: saes.set_steering(1, value), lambda: saes.set_steering_batch({2: 1.0, 3: value})):
        with pytest.raises(SteeringInvalid) as refusal:
            attempt()
        assert refusal.value.code == "validation_error"
    assert engine.desk.state == before


@pytest.mark.parametrize(
    "index", [-1, True, 1.0, None, "01", "1.0", "-1", "½", "9" * 5000], ids=lambda each: str(each)[:8]
)
def test_indices_are_checked(engine: Engine, saes: SaeActions, index: Any) -> None:
    before = engine.desk.state
    for attempt in (
        lambda: saes.set_steering(index, 1.0),
        lambda: saes.set_steering_batch({0: 1.0, index: 1.0}),
        lambda: saes.remove_steering(index),
    ):
        with pytest.raises(SteeringInvalid):
            attempt()
    assert engine.desk.state == before


def test_features_that_are_not_there(engine: Engine, saes: SaeActions) -> None:
    before = engine.desk.state
    for attempt in (
        lambda: saes.set_steering(64, 1.0),
        lambda: saes.set_steering_batch({"0": 1.0, "64": 1.0, "99": 1.0}),
        lambda: saes.remove_steering(64),
    ):
        with pytest.raises(InvalidFeatureIndex) as refusal:
            attempt()
        assert (refusal.value.details["feature_idx"], refusal.value.details["d_sae"]) == (64, 64)
    assert engine.desk.state == before


def test_a_batch_merges_at_once(engine: Engine, saes: SaeActions) -> None:
    saes.set_steering(1, 1.0)
    version = engine.desk.state.version
    view = saes.set_steering_batch({"2": 2.0, "1": -1.0})
    assert view.values == {"1": -1.0, "2": 2.0} and engine.desk.state.version == version + 1
    assert saes.set_steering_batch({}) == view and engine.desk.state.version == version + 1


def test_the_size_of_a_batch(make_engine: EngineMaker, tmp_path: Path) -> None:
    saes = actions_on(make_engine())
    saes.import_local(make_sae(tmp_path / "wide", d_sae=1001, model_name="acme/other"), sae_id="wide")
    saes.attach("wide")
    assert len(saes.set_steering_batch(dict.fromkeys(range(1000), 1.0)).values) == 1000
    saes.clear_steering()
    with pytest.raises(SteeringInvalid, match="at most 1000"):
        saes.set_steering_batch(dict.fromkeys(range(1001), 1.0))
    with pytest.raises(SteeringInvalid):
        saes.set_steering_batch([1, 2])  # type: ignore[arg-type]
    with pytest.raises(SteeringInvalid, match="twice"):
        saes.set_steering_batch({1: 1.0, "1": 2.0})  # type: ignore[dict-item]
    assert saes.steering_view().values == {}


def test_off_keeps_the_values(engine: Engine, saes: SaeActions) -> None:
    saes.set_steering_batch({1: 1.0, 2: 2.0})
    off = saes.enable_steering(False)
    assert (off.enabled, off.values) == (False, {"1": 1.0, "2": 2.0}) and engine.desk.live_plan.is_empty
    assert saes.enable_steering().enabled and not engine.desk.live_plan.is_empty


def test_the_last_one_out_switches_off(engine: Engine, saes: SaeActions) -> None:
    saes.set_steering_batch({1: 1.0, 2: 2.0})
    assert saes.remove_steering(1).enabled
    version = engine.desk.state.version
    assert saes.remove_steering(1).values == {"2": 2.0} and engine.desk.state.version == version
    assert wire(saes.remove_steering(2)) == {"enabled": False, "values": {}, "sae_id": "one", "layer": 1}
    saes.set_steering_batch({1: 1.0, 2: 2.0})
    cleared = saes.clear_steering()
    assert (cleared.enabled, cleared.values) == (False, {}) and engine.desk.live_plan.is_empty


def test_nothing_attached(make_engine: EngineMaker) -> None:
    saes = actions_on(make_engine(None))
    assert wire(saes.steering_view()) == {"enabled": False, "values": {}, "sae_id": None, "layer": None}
    for attempt in (
        lambda: saes.set_steering(1, 1.0),
        lambda: saes.set_steering_batch({1: 1.0}),
        lambda: saes.set_steering_batch({}),
        lambda: saes.remove_steering(1),
        saes.clear_steering,
        saes.enable_steering,
    ):
        with pytest.raises(SaeNotAttached):
            attempt()
