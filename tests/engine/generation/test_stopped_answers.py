"""An answer that is stopped or fails says what it was written under until then."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import GenerationFailed, MillmError, RequestCancelled
from engine.generation.request import RequestFailed
from engine.library.database import Library
from engine.steering import transitions
from engine.steering.live import ServingCircuit
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach, inline


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    made = Driver(tiny_checkpoint, library)
    attach(made, 1)
    return made


def last(answer: Answer, error: type[MillmError]) -> RequestFailed:
    failed = answer.deltas[-1]
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, error)
    return failed


def test_stopped_while_it_is_written(driver: Driver) -> None:
    whole = driver.alone("the sea", steering=inline("sae-1", f3=9.0))
    stopped = driver.send("the sea", steering=inline("sae-1", f3=9.0), max_tokens=200)
    driver.tick(6)
    assert stopped.text()
    stopped.handle.cancel()
    driver.tick()
    assert whole.finished is not None
    report = last(stopped, RequestCancelled).steering.text()
    assert report.startswith('inline;sae="sae-1";layer=1;features=1;hash="sha256:')
    assert report == whole.finished.steering.text()


def test_stopped_before_it_began(driver: Driver) -> None:
    queued = driver.send("the sea", steering=inline("sae-1", f3=9.0))
    queued.handle.cancel()
    driver.tick()
    # Nothing was read, so nothing was added.
    assert last(queued, RequestCancelled).steering.text() == "none"


def test_the_live_steering_that_moved_under_it(driver: Driver) -> None:
    circuit = ServingCircuit("circ_1", "c", {("sae-1", 1): {3: 9.0}}, 1.0, 2)
    under_it = driver.send("the sea", max_tokens=200)
    driver.tick(3)
    driver.desk.apply(transitions.serve_circuit(circuit))
    driver.tick(3)
    claimed = driver.send("the ship", max_tokens=200)
    driver.tick(3)
    for answer in (under_it, claimed):
        answer.handle.cancel()
    driver.tick()
    moved = last(under_it, RequestCancelled)
    assert moved.steering.text().startswith('circuit;id="circ_1"')
    assert moved.steering.text().endswith(";changed")
    assert moved.rung is None
    kept = last(claimed, RequestCancelled)
    assert kept.steering.text() == 'circuit;id="circ_1";intensity="1.0"'
    assert kept.rung == 2


def test_a_failure_on_the_way(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = driver.send("the sea", steering=inline("sae-1", f3=9.0), max_tokens=200)
    driver.tick(4)

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a kernel failed")

    monkeypatch.setattr(driver.backend._model, "forward", fail)
    driver.tick()
    assert last(answer, GenerationFailed).steering.text().startswith('inline;sae="sae-1"')
