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
from tests.engine.actions.saes.driving import hearing
from tests.made_saes import make_sae

EngineMaker = Callable[..., Engine]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


@pytest.fixture
def saes(engine: Engine, tmp_path: Path) -> SaeActions:
    saes = engine.saes
    for layer, name in ((1, "one"), (2, "two")):
        saes.import_local(make_sae(tmp_path / name, layer=layer, model_name="acme/other"), sae_id=name)
    engine.attachments.attach_set([("one", 1), ("two", 2), ("one", 3)])
    return saes


def test_one_value(engine: Engine, saes: SaeActions) -> None:
    heard = hearing(engine, SteeringUpdated)
    view = engine.hand_steering.set_value(12, -3)
    assert wire(view) == {"enabled": True, "values": {"12": -3.0}, "sae_id": "one", "layer": 1}
    assert engine.hand_steering.set_value(7, 200).values == {"7": 200.0, "12": -3.0}
    assert engine.hand_steering.set_value(12, 0.5).values == {"7": 200.0, "12": 0.5}
    assert [each.active_count for each in heard if isinstance(each, SteeringUpdated)] == [1, 2, 2]


def test_the_one_that_is_named(engine: Engine, saes: SaeActions) -> None:
    engine.hand_steering.set_value(1, 1.0, sae_id="two")
    engine.hand_steering.set_value(2, 2.0, layer=3)
    engine.hand_steering.set_value(3, 3.0, sae_id="one", layer=3)
    assert engine.hand_steering.view().values == {}
    assert engine.hand_steering.view("two").values == {"1": 1.0}
    assert engine.hand_steering.view("one", 3).values == {"2": 2.0, "3": 3.0}
    for where in ({"sae_id": "three"}, {"layer": 0}, {"sae_id": "two", "layer": 1}):
        with pytest.raises(SaeNotAttached):
            engine.hand_steering.set_value(1, 1.0, **where)  # type: ignore[arg-type]
        with pytest.raises(SaeNotAttached):
            engine.hand_steering.view(**where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [200.5, -201, float("nan"), float("inf"), float("-inf"), True, "1", None, 10**400], ids=str
)
def test_typed_values_are_checked(engine: Engine, saes: SaeActions, value: Any) -> None:
    engine.hand_steering.set_value(1, 5.0)
    before = engine.desk.state
    for attempt in (
        lambda: engine.hand_steering.set_value(1, value),
        lambda: engine.hand_steering.set_values({2: 1.0, 3: value}),
    ):
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
        lambda: engine.hand_steering.set_value(index, 1.0),
        lambda: engine.hand_steering.set_values({0: 1.0, index: 1.0}),
        lambda: engine.hand_steering.remove_value(index),
    ):
        with pytest.raises(SteeringInvalid):
            attempt()
    assert engine.desk.state == before


def test_features_that_are_not_there(engine: Engine, saes: SaeActions) -> None:
    before = engine.desk.state
    for attempt in (
        lambda: engine.hand_steering.set_value(64, 1.0),
        lambda: engine.hand_steering.set_values({"0": 1.0, "64": 1.0, "99": 1.0}),
        lambda: engine.hand_steering.remove_value(64),
    ):
        with pytest.raises(InvalidFeatureIndex) as refusal:
            attempt()
        assert (refusal.value.details["feature_idx"], refusal.value.details["d_sae"]) == (64, 64)
    assert engine.desk.state == before


def test_a_batch_merges_at_once(engine: Engine, saes: SaeActions) -> None:
    engine.hand_steering.set_value(1, 1.0)
    version = engine.desk.state.version
    view = engine.hand_steering.set_values({"2": 2.0, "1": -1.0})
    assert view.values == {"1": -1.0, "2": 2.0} and engine.desk.state.version == version + 1
    assert engine.hand_steering.set_values({}) == view and engine.desk.state.version == version + 1


def test_the_size_of_a_batch(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "wide", d_sae=1001, model_name="acme/other"), sae_id="wide")
    engine.attachments.attach("wide")
    assert len(engine.hand_steering.set_values(dict.fromkeys(range(1000), 1.0)).values) == 1000
    engine.hand_steering.clear()
    with pytest.raises(SteeringInvalid, match="at most 1000"):
        engine.hand_steering.set_values(dict.fromkeys(range(1001), 1.0))
    with pytest.raises(SteeringInvalid):
        engine.hand_steering.set_values([1, 2])  # type: ignore[arg-type]
    with pytest.raises(SteeringInvalid, match="twice"):
        engine.hand_steering.set_values({1: 1.0, "1": 2.0})  # type: ignore[dict-item]
    assert engine.hand_steering.view().values == {}


def test_off_keeps_the_values(engine: Engine, saes: SaeActions) -> None:
    engine.hand_steering.set_values({1: 1.0, 2: 2.0})
    off = engine.hand_steering.set_enabled(False)
    assert (off.enabled, off.values) == (False, {"1": 1.0, "2": 2.0}) and engine.desk.live_plan.is_empty
    assert engine.hand_steering.set_enabled().enabled and not engine.desk.live_plan.is_empty


def test_the_last_one_out_switches_off(engine: Engine, saes: SaeActions) -> None:
    engine.hand_steering.set_values({1: 1.0, 2: 2.0})
    assert engine.hand_steering.remove_value(1).enabled
    version = engine.desk.state.version
    assert engine.hand_steering.remove_value(1).values == {"2": 2.0} and engine.desk.state.version == version
    assert wire(engine.hand_steering.remove_value(2)) == {"enabled": False, "values": {}, "sae_id": "one", "layer": 1}
    engine.hand_steering.set_values({1: 1.0, 2: 2.0})
    cleared = engine.hand_steering.clear()
    assert (cleared.enabled, cleared.values) == (False, {}) and engine.desk.live_plan.is_empty


def test_nothing_attached(make_engine: EngineMaker) -> None:
    engine = make_engine(None)
    assert wire(engine.hand_steering.view()) == {"enabled": False, "values": {}, "sae_id": None, "layer": None}
    for attempt in (
        lambda: engine.hand_steering.set_value(1, 1.0),
        lambda: engine.hand_steering.set_values({1: 1.0}),
        lambda: engine.hand_steering.set_values({}),
        lambda: engine.hand_steering.remove_value(1),
        engine.hand_steering.clear,
        engine.hand_steering.set_enabled,
    ):
        with pytest.raises(SaeNotAttached):
            attempt()
