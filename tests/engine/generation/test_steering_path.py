"""What steered an answer from its first token to its last is kept with it, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import RequestCancelled
from engine.generation.request import ChoiceFinished, RequestFailed
from engine.library.database import Library
from engine.sampling import Sampling
from engine.steering import transitions
from engine.steering.live import ServingProfile
from engine.steering.path import MOST_STEPS, NO_PATH, SteeringPath, SteeringStep
from engine.steering.report import CircuitItem, SteeringReport
from engine.wire import wire
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach, inline


def sea(intensity: float) -> ServingProfile:
    return ServingProfile("prf_1", "Sea", True, ("sae-1", 1), {3: 4.0}, intensity)


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    made = Driver(tiny_checkpoint, library)
    attach(made, 1)
    return made


def told(path: SteeringPath) -> list[tuple[int, str]]:
    """Token and λ of each step."""
    found = []
    for step in wire(path.told()):
        item = step["items"][0]
        found.append((step["token"], item.get("intensity", item["kind"])))
    return found


def ends(answer: Answer) -> dict[int, SteeringPath]:
    return {delta.index: delta.path for delta in answer.deltas if isinstance(delta, ChoiceFinished)}


def test_a_dial_that_is_turned_twice(driver: Driver) -> None:
    driver.desk.apply(transitions.activate_profile(sea(1.0)))
    answer = driver.send("the sea was calm", max_tokens=12)
    while len(answer.ids()) < 4:
        driver.tick()
    driver.desk.apply(transitions.activate_profile(sea(2.0)))
    driver.tick(3)
    assert len(answer.ids()) == 7
    # Asked meanwhile, it says what it knows.
    assert told(answer.handle.paths[0]) == [(0, "1.0"), (5, "2.0")]
    driver.desk.apply(transitions.activate_profile(sea(0.0)))
    driver.finish()
    assert told(ends(answer)[0]) == [(0, "1.0"), (5, "2.0"), (8, "none")]
    assert answer.finished is not None
    assert answer.finished.steering.text() == "none;changed"
    assert answer.finished.rung is None


@pytest.mark.parametrize("seed", [None, 7])
def test_one_that_is_left_alone_has_one_step(driver: Driver, seed: int | None) -> None:
    driver.desk.apply(transitions.activate_profile(sea(1.0)))
    follows = driver.send("the sea", sampling=Sampling(temperature=0.0, seed=seed))
    own = driver.send("the sea", steering=inline("sae-1", f3=9.0), sampling=Sampling(temperature=0.0, seed=seed))
    driver.finish()
    assert told(ends(follows)[0]) == [(0, "1.0")]
    (step,) = wire(ends(own)[0].told())
    assert (step["token"], step["items"][0]["kind"]) == (0, "inline")


def test_a_request_with_a_steering_of_its_own_does_not_follow(driver: Driver) -> None:
    own = driver.send("the sea", steering=inline("sae-1", f3=9.0), max_tokens=12)
    driver.tick(4)
    driver.desk.apply(transitions.activate_profile(sea(2.0)))
    driver.finish()
    assert [step.token for step in ends(own)[0].steps] == [0]


def test_stopped_it_carries_its_path(driver: Driver) -> None:
    driver.desk.apply(transitions.activate_profile(sea(1.0)))
    answer = driver.send("the sea was calm", max_tokens=200)
    while len(answer.ids()) < 3:
        driver.tick()
    driver.desk.apply(transitions.activate_profile(sea(0.5)))
    driver.tick(2)
    answer.handle.cancel()
    driver.tick()
    failed = answer.deltas[-1]
    assert isinstance(failed, RequestFailed) and isinstance(failed.error, RequestCancelled)
    assert told(failed.paths[0]) == [(0, "1.0"), (4, "0.5")]
    assert failed.rung is None


def test_stopped_before_it_began_it_has_none(driver: Driver) -> None:
    queued = driver.send("the sea")
    queued.handle.cancel()
    driver.tick()
    failed = queued.deltas[-1]
    assert isinstance(failed, RequestFailed)
    assert dict(failed.paths) == {}


@pytest.mark.parametrize("seed", [None, 7])
def test_each_choice_has_its_own(driver: Driver, seed: int | None) -> None:
    driver.desk.apply(transitions.activate_profile(sea(1.0)))
    # The likeliest token each time: one drawn by chance may show nothing, and the place would be another.
    sampling = Sampling(temperature=0.0, seed=seed, ignore_eos=True)
    answer = driver.send("the sea was calm", max_tokens=6, n=2, sampling=sampling)
    while sum(delta.completion_tokens for delta in answer.deltas if isinstance(delta, ChoiceFinished)) == 0:
        driver.tick()
        if seed is None and len(answer.ids()) >= 2:
            break
    driver.desk.apply(transitions.activate_profile(sea(2.0)))
    driver.finish()
    paths = ends(answer)
    if seed is None:
        # Written side by side; the second joined a pass later and is one token behind.
        assert told(paths[0]) == [(0, "1.0"), (3, "2.0")]
        assert told(paths[1]) == [(0, "1.0"), (2, "2.0")]
    else:
        # One after the other: the first was ready by then, the second went on from a prompt that was read before.
        assert told(paths[0]) == [(0, "1.0")]
        assert [value for _token, value in told(paths[1])] == ["1.0", "2.0"]
        assert told(paths[1])[1][0] == 2


def test_a_change_while_the_prompt_is_read(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=4)
    attach(driver, 1)
    driver.desk.apply(transitions.activate_profile(sea(1.0)))
    answer = driver.send("the quick brown fox jumps over the lazy dog and the sea was calm", max_tokens=4)
    driver.tick()
    driver.desk.apply(transitions.activate_profile(sea(2.0)))
    driver.finish()
    assert told(ends(answer)[0]) == [(0, "1.0"), (0, "2.0")]


def test_a_write_without_a_difference_is_no_step(driver: Driver) -> None:
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 9.0}))
    answer = driver.send("the sea was calm", max_tokens=8)
    driver.tick(4)
    with driver.desk.changes():
        driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 8.0}))
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 9.0}))
    driver.finish()
    assert [step.token for step in ends(answer)[0].steps] == [0]
    assert answer.finished is not None
    # Somebody wrote to it, which is what the protocol's word says.
    assert answer.finished.steering.changed


def step(token: int, intensity: float) -> SteeringStep:
    return SteeringStep(token, SteeringReport(circuits=(CircuitItem("c", intensity),)), str(intensity))


def test_a_pass_that_is_tried_again_under_another_steering_counts_once() -> None:
    path = NO_PATH.then(step(0, 1.0)).then(step(5, 2.0)).then(step(5, 0.5))
    assert [(each.token, each.digest) for each in path.steps] == [(0, "1.0"), (5, "0.5")]
    assert [(each.token, each.digest) for each in path.then(step(5, 1.0)).steps] == [(0, "1.0")]
    assert [each.token for each in path.until(4).steps] == [0]


def test_a_dial_that_is_never_still_keeps_its_first_steps_and_the_last() -> None:
    path = NO_PATH
    for token in range(MOST_STEPS + 10):
        path = path.then(step(token, token / 1000))
    assert len(path.steps) == MOST_STEPS
    assert path.left_out == 10
    assert path.steps[-1].token == MOST_STEPS + 9
    assert path.steps[-2].token == MOST_STEPS - 2
