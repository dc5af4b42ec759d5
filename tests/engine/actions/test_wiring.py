"""The engine's rooms together: what a detached SAE or a model that leaves ends, and what a load brings up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.library.records import SaeStatus
from engine.steering import transitions
from engine.wire import wire
from tests.conftest import EngineMaker
from tests.made_saes import make_sae
from tests.waiting import wait_until

CIRCUIT = {
    "kind": "mistudio.circuit-definition",
    "schema_version": "1",
    "name": "two layers",
    "saes": [{"mistudio_sae_id": "low", "layer": 1}, {"mistudio_sae_id": "high", "layer": 2}],
    "members": [
        {"layer": 1, "feature": {"feature_idx": 3, "strength": 9.0}},
        {"layer": 2, "feature": {"feature_idx": 4, "strength": 9.0}},
    ],
    "edges": [{"up": {"layer": 1, "feature_idx": 3}, "down": {"layer": 2, "feature_idx": 4}, "rung": 2}],
    "budget": {"intensity": 1.0},
}


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    """The tiny model with an SAE on layer 1 and one on layer 2."""
    made = make_engine()
    for name, layer in (("low", 1), ("high", 2)):
        made.saes.import_local(make_sae(tmp_path / name, layer=layer, seed=layer), sae_id=name)
    made.attachments.attach_set([("low", 1), ("high", 2)])
    return made


def activate_circuit(engine: Engine) -> str:
    outcome = engine.circuits.import_document(json.dumps(CIRCUIT).encode())
    circuit_id = wire(outcome)["id"]
    engine.circuits.activate(circuit_id)
    assert len(engine.desk.live_plan.sets) == 2
    assert engine.desk.live_plan.rung == 2
    return str(circuit_id)


def test_detaching_one_layer_of_a_circuit_ends_it_whole(engine: Engine) -> None:
    """What is left of a circuit has not the whole one's evidence, so it may not go on under its name."""
    circuit_id = activate_circuit(engine)
    engine.attachments.detach("high")
    assert engine.desk.live_plan.is_empty
    assert engine.desk.live_plan.rung is None
    record = engine.library.circuits.get(circuit_id)
    assert record is not None
    assert not record.is_active
    assert not engine.library.claims.live()


def test_detaching_the_place_of_a_profile_ends_it(engine: Engine) -> None:
    profile = engine.profiles.create("calm", steering={"3": 5.0}, sae_id="low", layer=1)
    engine.profiles.activate(profile.record.id)
    assert not engine.desk.live_plan.is_empty
    engine.attachments.detach("high")
    assert engine.library.profiles.active() is not None
    engine.attachments.detach("low")
    assert engine.desk.live_plan.is_empty
    assert engine.library.profiles.active() is None


def test_unloading_the_model_ends_everything_that_steered_it(engine: Engine) -> None:
    activate_circuit(engine)
    engine.monitor.configure(enabled=True)
    engine.loader.unload().result(60)
    assert engine.desk.state.attachments == ()
    assert engine.desk.live_plan.is_empty
    assert [r.status for r in engine.saes.list()] == [SaeStatus.CACHED, SaeStatus.CACHED]
    assert not engine.library.circuits.active()
    assert not engine.library.claims.live()
    assert not engine.monitor.state().enabled
    assert not any(record.locked for record in engine.shelf.list())


def test_saes_imported_without_a_model_are_measured_when_it_comes(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(load=False)
    row, created = engine.saes.import_local(make_sae(tmp_path / "sae", layer=1), sae_id="early")
    assert created
    assert row.measured_l0 is None
    (record,) = engine.shelf.list()
    engine.loader.load(record.id).result(60)
    wait_until(lambda: engine.saes.get("early").measured_l0 is not None, "the SAE to be measured", timeout=60)


def test_the_hooks_are_counted(engine: Engine) -> None:
    from engine.generation.consume import collect
    from engine.generation.request import GenerationRequest, TextInput
    from engine.sampling import Sampling

    engine.desk.apply(transitions.set_values(("low", 1), {3: 5.0}))
    request = GenerationRequest("tiny-llama", TextInput(("the sea",)), Sampling(ignore_eos=True), max_tokens=4)
    collect(engine.generation, engine.generation.prepare(request))
    # One pass reads the prompt, three feed the first three tokens back; layer 2 is never added to.
    view = wire(engine.attachments.all())
    assert [entry["steering_apply_count"] for entry in view["entries"]] == [4, 0]
