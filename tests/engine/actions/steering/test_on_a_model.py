"""Actions while a real model writes: what is activated changes the text, what is refused does not, nothing stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.actions.lock import SteeringLock
from engine.actions.steering.circuits import CircuitActions
from engine.actions.steering.clusters import ClusterActions
from engine.actions.steering.profiles import ProfileActions
from engine.errors import MillmError
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.request import SteeringRequest
from tests.engine.actions.steering.stage import circuit, cluster, member, raw
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach

PROMPT = "the sea was calm"


class Managed(Driver):
    """A driver with the steering actions on its desk; SAEs ``sae-1`` and ``sae-3`` are attached."""

    def __init__(self, folder: Path, library: Library, **settings: object) -> None:
        super().__init__(folder, library, **settings)
        attach(self, 1, 3)
        shared = self.settings, library, self.desk, self.events, SteeringLock()
        self.profiles = ProfileActions(*shared)
        self.clusters = ClusterActions(*shared, self.profiles)
        self.circuits = CircuitActions(*shared)

    def text(self, **fields: object) -> list[int]:
        return self.alone(PROMPT, **fields).ids()


@pytest.fixture
def model(tiny_checkpoint: Path, library: Library) -> Managed:
    return Managed(tiny_checkpoint, library)


def circuit_of(model: Managed, name: str = "c", strength: float = 40.0, rung: int = 2) -> str:
    document = circuit(
        name,
        rung=rung,
        saes=[{"mistudio_sae_id": "sae-1", "layer": 1}, {"mistudio_sae_id": "sae-3", "layer": 3}],
        members=[{"layer": layer, "feature": member(3, strength)} for layer in (1, 3)],
        edges=[{"up": {"layer": 1, "feature_idx": 3}, "down": {"layer": 3, "feature_idx": 3}, "rung": rung}],
        budget={"intensity": 1.0},
    )
    return model.circuits.import_document(raw(document)).id


def report(answer: Answer) -> str:
    assert answer.finished is not None
    return answer.finished.steering.text()


def test_a_circuit_steers_while_it_serves_and_not_after(model: Managed) -> None:
    plain = model.text()
    circuit_id = circuit_of(model)
    assert model.text() == plain
    model.circuits.activate(circuit_id)
    steered = model.alone(PROMPT)
    assert steered.ids() != plain
    assert report(steered) == f'circuit;id="{circuit_id}";intensity="1.0"'
    model.circuits.set_intensity(0)
    assert model.text() == plain
    model.circuits.set_intensity(1)
    assert model.text() == steered.ids()
    model.circuits.deactivate(circuit_id)
    assert model.text() == plain


def test_a_profile_named_by_a_request_gives_what_it_gives_when_active(model: Managed) -> None:
    profile = model.profiles.create("calm", steering={3: 60.0}, sae_id="sae-1", layer=1).record.id
    before = model.desk.now
    named = model.alone(PROMPT, steering=SteeringRequest(profile="calm"))
    assert model.desk.now is before
    model.profiles.activate(profile)
    active = model.alone(PROMPT)
    assert active.ids() == named.ids()
    assert "source=request" in report(named) and "source=active" in report(active)
    model.profiles.deactivate(profile)


def test_turning_a_clusters_dial_moves_text_that_is_being_written(model: Managed) -> None:
    document = cluster("Harbour", member(3, 40.0), sae={"mistudio_sae_id": "sae-1", "layer": 1})
    model.clusters.import_document(raw(document), activate=True)
    quiet = model.text(max_tokens=20)
    answer = model.send(PROMPT, max_tokens=20)
    model.tick(8)
    written = len(answer.ids())
    assert 0 < written < 20
    model.clusters.set_active_intensity(1.75)
    model.finish()
    assert answer.ids()[:written] == quiet[:written]
    assert answer.ids() != quiet
    assert report(answer).endswith(";changed") and 'intensity="1.75"' in report(answer)


def test_a_refused_activation_is_not_felt_by_an_answer_under_way(model: Managed) -> None:
    plain = model.text(max_tokens=20)
    below = circuit_of(model, "below", rung=1)
    outside = model.profiles.create("outside", steering={999: 1.0}, sae_id="sae-1", layer=1).record.id
    answer = model.send(PROMPT, max_tokens=20)
    model.tick(8)
    for refused in (lambda: model.circuits.activate(below), lambda: model.profiles.activate(outside)):
        with pytest.raises(MillmError):
            refused()
    model.finish()
    assert answer.ids() == plain
    assert report(answer) == "none"


def test_everything_active_leaves_with_the_model(model: Managed) -> None:
    model.circuits.activate(circuit_of(model))
    model.profiles.activate(model.profiles.create("empty").record.id, apply_steering=False)
    model.desk.apply(transitions.close())
    assert model.profiles.release_all() == () and model.circuits.release_all() == ()
    assert model.profiles.active() is None and model.circuits.active() == () and model.circuits.claims() == ()
    assert model.desk.live_plan.is_empty
