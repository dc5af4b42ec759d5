"""Taking SAEs away: who is waited for, what goes with them, and what the next request runs with."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.models.importing import import_local_model
from engine.actions.saes import SaeActions, attachments
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.engine import Engine
from engine.errors import LibraryUnusable, SaeNotAttached
from engine.events import SaeDetached
from engine.generation.consume import collect
from engine.generation.prepared import RequestHandle
from engine.generation.request import Delta, GenerationRequest, RequestFinished, TextDelta, TextInput
from engine.library.errors import SaeNotFound
from engine.monitor.activation_spec import ActivationSpec, PositionChoice
from engine.sampling import Sampling
from engine.steering import transitions
from engine.steering.inline import InlineSteering
from engine.steering.live import ServingProfile
from engine.steering.request import FOLLOW_LIVE, SteeringRequest
from engine.wire import wire
from tests.engine.actions.saes.driving import attached, attachments_on, hearing, hooked, locked
from tests.made_saes import make_mirror_sae, make_sae
from tests.waiting import wait_until

EngineMaker = Callable[..., Engine]
CheckpointMaker = Callable[..., Path]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


@pytest.fixture
def saes(engine: Engine) -> SaeActions:
    return engine.saes


def mirror(saes: SaeActions, folder: Path, name: str = "mirror", layer: int = 1) -> str:
    record, _ = saes.import_local(make_mirror_sae(folder / name, layer=layer), sae_id=name)
    return record.id


def another(saes: SaeActions, folder: Path, name: str, layer: int = 2) -> str:
    record, _ = saes.import_local(make_sae(folder / name, layer=layer, model_name="acme/other"), sae_id=name)
    return record.id


def request(steering: SteeringRequest = FOLLOW_LIVE, *, tokens: int = 8, **more: Any) -> GenerationRequest:
    return GenerationRequest(
        "tiny-llama",
        TextInput(("the sea",)),
        Sampling(temperature=0.0, ignore_eos=True),
        max_tokens=tokens,
        steering=steering,
        **more,
    )


def text_of(engine: Engine, steering: SteeringRequest = FOLLOW_LIVE) -> str:
    deltas = collect(engine.generation, engine.generation.prepare(request(steering)))
    return "".join(each.content for each in deltas if isinstance(each, TextDelta))


class Running:
    """A request under way, seen from the sink."""

    def __init__(self, engine: Engine, wanted: GenerationRequest) -> None:
        self.deltas: list[Delta] = []
        prepared = engine.generation.prepare(wanted)
        self.handle: RequestHandle = engine.generation.submit(prepared, self.deltas.append)
        wait_until(lambda: any(isinstance(each, TextDelta) for each in self.deltas), "the first token")

    def end(self) -> None:
        self.handle.cancel()
        assert self.handle.wait(60)


INLINE = SteeringRequest(inline=InlineSteering(None, ((4, 60.0),)))


# --- what goes -------------------------------------------------------------------------------------------------------


def test_an_sae_leaves_every_layer_it_is_on(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea, other = mirror(saes, tmp_path), another(saes, tmp_path, "other")
    engine.attachments.attach_set([(sea, 1), (other, 2), (sea, 3)])
    engine.hand_steering.set_value(4, 60.0, sae_id=sea, layer=3)
    engine.hand_steering.set_value(5, 1.0, sae_id=other)
    engine.monitor.configure(sae_id=sea)
    heard = hearing(engine, SaeDetached)
    result = engine.attachments.detach(sea)
    assert wire(result) == {
        "status": "detached",
        "sae_id": "mirror",
        "memory_freed_mb": 0.02,
        "layers": [1, 3],
        "unused": True,
    }
    assert attached(engine) == [("other", 2)] and hooked(engine) == {2}
    assert list(engine.desk.state.entries) == [("other", 2)]
    assert not engine.monitor.state().enabled and engine.monitor.state().saes == (("other", 2),)
    assert heard == [SaeDetached("mirror")]
    assert saes.get(sea).status.value == "cached" and saes.get(other).status.value == "attached"
    assert locked(engine) == ["tiny-llama"], "another SAE is still attached"
    engine.attachments.detach(other)
    assert locked(engine) == [] and hooked(engine) == set() and engine.desk.live_plan.is_empty


def test_refusals(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea, other = mirror(saes, tmp_path), another(saes, tmp_path, "other")
    with pytest.raises(SaeNotFound):
        engine.attachments.detach("unknown")
    engine.attachments.attach(other)
    with pytest.raises(SaeNotAttached) as refusal:
        engine.attachments.detach(sea)
    assert refusal.value.details == {"attached_sae_ids": ["other"]}
    with pytest.raises(SaeAlreadyAttached) as kept:
        saes.delete(other)
    assert kept.value.details == {"sae_id": "other", "layers": [2]}
    assert attached(engine) == [("other", 2)]


def test_the_weights_are_gone_from_memory(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    engine.hand_steering.set_value(4, 60.0)
    engine.monitor.configure()
    spec = ActivationSpec(top_k=2, positions=PositionChoice.ALL)
    collect(engine.generation, engine.generation.prepare(request(INLINE, activations=spec)))
    engine.attachments.attach(sea, 3)
    tensors = [weakref.ref(tensor) for tensor in engine.desk.state.attachments[0].sae.tensors.values()]
    engine.attachments.detach(sea)
    gc.collect()
    assert len(tensors) == 4 and [each for each in tensors if each() is not None] == []


def test_the_stale_lock_of_another_model_is_cleared(
    engine: Engine, saes: SaeActions, tmp_path: Path, checkpoint: CheckpointMaker
) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    other = import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    resident = engine.shelf.resident
    assert resident is not None
    engine.library.models.update(resident.record.id, locked=False)
    engine.library.models.update(other.id, locked=True)
    engine.attachments.detach(sea)
    assert locked(engine) == []


def test_who_steered_through_it_is_told(engine: Engine, tmp_path: Path) -> None:
    told: list[tuple[str, bool]] = []
    attachments = attachments_on(engine, lambda sae_id: told.append((sae_id, bool(engine.desk.state.attachments))))
    sea = mirror(engine.saes, tmp_path)
    attachments.attach(sea)
    engine.desk.apply(transitions.activate_profile(ServingProfile("prof_1", "calm", False, (sea, 1), {4: 2.0}, 1.0)))
    attachments.detach(sea)
    assert told == [("mirror", False)]
    assert engine.desk.state.profile is not None and engine.desk.state.profile.place is None


def test_a_failing_listener_does_not_undo_a_detach(engine: Engine, tmp_path: Path) -> None:
    def fail(sae_id: str) -> None:
        raise LibraryUnusable("The disk is full.")

    attachments = attachments_on(engine, fail)
    sea = mirror(engine.saes, tmp_path)
    attachments.attach(sea)
    assert attachments.detach(sea).status == "detached"
    assert attached(engine) == []


def test_rows_that_cannot_be_written_leave_it_attached(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)

    def full(*_: object, **__: object) -> None:
        raise LibraryUnusable("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(engine.library.models, "update", full)
        with pytest.raises(LibraryUnusable):
            engine.attachments.detach(sea)
    assert attached(engine) == [("mirror", 1)] and hooked(engine) == {1}
    assert saes.get(sea).status.value == "attached" and locked(engine) == ["tiny-llama"]


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_detach_waits_for_a_request_that_runs_with_it(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    running = Running(engine, request(INLINE, tokens=2000))
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(engine.attachments.detach(sea)))
    thread.start()
    seen = len(running.deltas)
    wait_until(lambda: len(running.deltas) > seen + 20, "tokens written while the detach waits")
    assert results == [] and attached(engine) == [("mirror", 1)]
    running.end()
    thread.join(60)
    assert [each.unused for each in results] == [True] and attached(engine) == []


def test_a_detach_does_not_wait_for_ever(
    engine: Engine,
    saes: SaeActions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(attachments, "DETACH_WAIT_SECONDS", 0.0)
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    running = Running(engine, request(INLINE, tokens=2000))
    assert engine.attachments.detach(sea).unused is False
    assert "requests still run with the SAE mirror" in caplog.text
    seen = len(running.deltas)
    wait_until(lambda: len(running.deltas) > seen + 5, "the request going on with the plan it was admitted with")
    running.end()


def test_a_request_that_follows_the_live_steering_goes_on_without_it(
    engine: Engine, saes: SaeActions, tmp_path: Path
) -> None:
    plain = text_of(engine)
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    engine.hand_steering.set_value(4, 60.0)
    steered = text_of(engine)
    assert steered != plain
    running = Running(engine, request(tokens=2000))
    assert engine.attachments.detach(sea).unused is True
    seen = len(running.deltas)
    wait_until(lambda: len(running.deltas) > seen + 5, "the answer going on")
    running.end()
    assert text_of(engine) == plain


def test_a_request_after_a_detach_is_refused_its_steering(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    steered = text_of(engine, INLINE)
    engine.attachments.detach(sea)
    with pytest.raises(SaeNotAttached):
        engine.generation.prepare(request(INLINE))
    engine.attachments.attach(sea)
    assert text_of(engine, INLINE) == steered


# --- the model goes --------------------------------------------------------------------------------------------------


def test_the_model_going_takes_everything_along(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea, other = mirror(saes, tmp_path), another(saes, tmp_path, "other")
    engine.attachments.attach_set([(sea, 1), (other, 2)])
    engine.hand_steering.set_value(4, 60.0)
    engine.monitor.configure()
    tensors = [weakref.ref(each.sae.W_dec) for each in engine.desk.state.attachments]
    heard = hearing(engine, SaeDetached)
    engine.loader.unload().result(60)
    engine.attachments.release_all()
    assert {each.status.value for each in saes.list()} == {"cached"} and locked(engine) == []
    assert not engine.monitor.state().sae_attached and not engine.monitor.state().enabled
    assert sorted(each.sae_id for each in heard if isinstance(each, SaeDetached)) == ["mirror", "other"]
    gc.collect()
    assert [each for each in tensors if each() is not None] == []
    engine.loader.load(1).result(60)
    engine.attachments.attach(sea)
    assert engine.hand_steering.view().values == {}, "values do not come back with another attachment"


def test_releasing_twice_and_with_a_closed_library(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = mirror(saes, tmp_path)
    engine.attachments.attach(sea)
    engine.loader.unload().result(60)
    engine.attachments.release_all()
    heard = hearing(engine, SaeDetached)
    engine.attachments.release_all()
    assert heard == []
    engine.library.close()
    engine.attachments.release_all()


def test_finished_requests_report_what_steered(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    engine.attachments.attach(mirror(saes, tmp_path))
    engine.hand_steering.set_value(4, 60.0)
    deltas = collect(engine.generation, engine.generation.prepare(request()))
    last = deltas[-1]
    assert isinstance(last, RequestFinished)
    assert last.steering.text().startswith('manual;sae="mirror";layer=1;features=1;hash="sha256:')
