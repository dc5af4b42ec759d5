"""What a model had: kept while it changes, left alone when the model goes, put back without steering anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.actions.standing import KeptState
from engine.engine import Engine
from engine.events import SteeringUpdated
from engine.library.database import Library
from tests.conftest import CheckpointMaker, EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae

PLACE = {"mistudio_sae_id": "one", "layer": 1, "n_features": 64}


@pytest.fixture
def engine(make_engine: EngineMaker, tmp_path: Path) -> Engine:
    """The tiny model with two SAEs on the shelf."""
    made = make_engine()
    for layer, name in ((1, "one"), (0, "nought")):
        made.saes.import_local(make_sae(tmp_path / name, layer=layer), sae_id=name)
    return made


def reload(engine: Engine) -> None:
    assert engine.shelf.resident is not None
    number = engine.shelf.resident.record.id
    engine.loader.unload().result(60)
    engine.loader.load(number).result(60)


def steer(engine: Engine) -> str:
    """A cluster at λ 0.8 on layer 1, and a value by hand on layer 0; the cluster's id."""
    engine.attachments.attach_set([("one", 1), ("nought", 0)])
    document = raw(cluster("Harbour", member(3, 8.0), sae=PLACE))
    (item,) = engine.clusters.import_document(document).results
    assert item.profile_id is not None
    engine.profiles.set_intensity(item.profile_id, 0.8, reapply=False)
    engine.profiles.activate(item.profile_id)
    engine.hand_steering.set_value(5, 2.5, sae_id="nought", layer=0)
    return item.profile_id


def test_it_comes_back_set_and_switched_off(engine: Engine) -> None:
    profile = steer(engine)
    plan = engine.desk.live_plan
    assert not plan.is_empty
    reload(engine)
    assert engine.desk.state.attachments == ()
    plans: list[bool] = []
    engine.events.subscribe(lambda _event: plans.append(engine.desk.live_plan.is_empty), SteeringUpdated)
    outcome = engine.standing.put_back()
    assert outcome.attached == (("one", 1), ("nought", 0))
    assert outcome.in_words() == (
        "The SAEs of last time are attached again, on layers 0, 1. What steered is set and switched off."
    )
    state = engine.desk.state
    assert engine.desk.live_plan.is_empty and all(plans), "nothing steers, not for a moment"
    assert state.profile is not None
    assert (state.profile.profile_id, state.profile.intensity) == (profile, 0.8)
    assert dict(state.entry(("one", 1)).values) == {3: 6.4}
    assert dict(state.entry(("nought", 0)).values) == {5: 2.5}
    active = engine.library.profiles.active()
    assert active is not None and active.id == profile
    for sae_id, layer in (("one", 1), ("nought", 0)):
        engine.hand_steering.set_enabled(True, sae_id=sae_id, layer=layer)
    assert engine.desk.live_plan.report == plan.report
    # Asked again it does nothing: a person may have changed things since.
    assert engine.standing.put_back().in_words() == ""


def test_each_model_has_its_own_and_the_next_start_knows_it(
    engine: Engine, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    from engine.actions.models.importing import import_local_model

    steer(engine)
    assert engine.shelf.resident is not None
    first = engine.shelf.resident.record
    other = import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    engine.loader.load(other.id).result(60)
    assert engine.standing.to_put_back() == KeptState()
    engine.standing.stop()
    with Library.open(engine.library.path) as read_again:
        kept = KeptState.from_json(read_again.state.get(f"standing:{first.id}"), first.name)
        assert read_again.state.get(f"standing:{other.id}") is None
    assert kept.saes == (("one", 1), ("nought", 0))
    assert kept.values == ((("nought", 0), {5: 2.5}),)
    assert kept.profile is not None
    # A row that took over the number of another model has nothing of that one's.
    assert KeptState.from_json(kept.to_json("another"), first.name) == KeptState()


def test_what_a_person_detached_stays_away(engine: Engine) -> None:
    engine.attachments.attach_set([("one", 1), ("nought", 0)])
    engine.attachments.detach("one")
    reload(engine)
    assert engine.standing.put_back().attached == (("nought", 0),)


def test_what_is_gone_is_said_and_keeps_nothing_else_away(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profile = steer(engine)
    assert engine.shelf.resident is not None
    number = engine.shelf.resident.record.id
    engine.loader.unload().result(60)
    (tmp_path / "nought" / "sae_weights.safetensors").unlink()
    engine.profiles.delete(profile)
    engine.loader.load(number).result(60)
    outcome = engine.standing.put_back()
    assert outcome.attached == (("one", 1),)
    assert len(outcome.problems) == 2
    assert outcome.problems[0].startswith("The SAE 'nought' could not be attached again: ")
    assert outcome.problems[1].startswith("What steered could not be set again: ")
    assert engine.desk.live_plan.is_empty
    assert "could not be attached again" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("value", [None, 3, {}, {"model": "m"}, {"model": "m", "saes": 3, "values": [], "profile": 1}])
def test_what_cannot_be_read_is_nothing(value: object) -> None:
    assert KeptState.from_json(value, "m") == KeptState()
