"""What passes have left is encoded by whoever asks first, on their thread: races with passes and detaching, in steps."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from engine.engine import Engine
from engine.events import EventBus
from engine.generation.request import Delta, GenerationRequest, RequestFinished, TextInput
from engine.monitor.live import LiveMonitor
from engine.monitor.records import ActivationRecord
from engine.saes.sae import Sae
from engine.sampling import Sampling
from tests.engine.monitor.made import attached, plain_sae, residual, row, show
from tests.made_saes import make_mirror_sae
from tests.waiting import wait_until

T = TypeVar("T")


class Held:
    """Encoding on a thread called ``reader`` stops half-way, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.threads: set[str] = set()
        encode = Sae.encode

        def encoded(sae: Sae, x: Tensor) -> Tensor:
            name = threading.current_thread().name
            self.threads.add(name)
            found = encode(sae, x)
            if name == "reader":
                self.inside.set()
                assert self.go_on.wait(60)
                # The same weights still give the same.
                assert torch.equal(encode(sae, x), found)
            return found

        monkeypatch.setattr(Sae, "encode", encoded)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.go_on.set()


def on_thread(name: str, work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def standing_clock() -> LiveMonitor:
    """A monitor for which no event is due after the first: passes wait to be encoded."""
    return LiveMonitor(EventBus(), clock=lambda: 0.0)


def read(monitor: LiveMonitor, position: int, value: float) -> None:
    show(monitor.observers([row("a", position, 7)]), 2, residual([[value, 0.0, 0.0]]))


def positions(records: list[ActivationRecord]) -> list[int]:
    return [each.token_position for each in records]


def test_a_pass_that_ends_while_another_thread_encodes_is_neither_lost_nor_doubled(held: Held) -> None:
    monitor = standing_clock()
    monitor.set_attachments((attached(plain_sae()),))
    monitor.configure()
    for position in (1, 2, 3):
        read(monitor, position, float(position))
    assert positions(list(monitor._history)) == [1]
    reading = on_thread("reader", monitor.history)
    assert held.inside.wait(60)
    # It ends without waiting for whoever encodes, and is there for the next who asks; meanwhile the count has all of it.
    on_thread("engine", lambda: read(monitor, 4, 4.0)).result(60)
    assert monitor.state().history_count == 4
    held.go_on.set()
    assert positions(reading.result(60)) == [3, 2, 1]
    assert positions(monitor.history()) == [4, 3, 2, 1]
    (figures,) = monitor.statistics([0]).features
    assert (figures.count, figures.mean, figures.max) == (4, 2.5, 4.0)


def test_an_sae_is_let_go_once_the_thread_that_encodes_has_ended(held: Held) -> None:
    sae = plain_sae()
    gone = weakref.ref(sae)
    monitor = standing_clock()
    monitor.set_attachments((attached(sae),))
    monitor.configure()
    for position in (1, 2, 3):
        read(monitor, position, float(position))
    del sae
    reading = on_thread("reader", monitor.history)
    assert held.inside.wait(60)
    leaving = on_thread("engine", lambda: monitor.set_attachments(()))
    gc.collect()
    assert gone() is not None
    assert not leaving.done()
    held.go_on.set()
    assert positions(reading.result(60)) == [3, 2, 1]
    leaving.result(60)
    assert monitor.state().saes == ()
    # Threads let go of what they ran when they are over.
    wait_until(lambda: gc.collect() is not None and gone() is None, "the weights to be freed")
    assert positions(monitor.history()) == [3, 2, 1]


def test_an_sae_leaves_also_when_what_it_read_can_no_longer_be_encoded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever detaches for want of memory must not be refused for want of memory."""
    sae = plain_sae()
    gone = weakref.ref(sae)
    monitor = standing_clock()
    monitor.set_attachments((attached(sae),))
    monitor.configure()
    read(monitor, 1, 1.0)
    read(monitor, 2, 2.0)

    def exhausted(*_: object) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Sae, "encode", exhausted)
    with pytest.raises(torch.OutOfMemoryError):
        monitor.history()
    read(monitor, 3, 3.0)
    with caplog.at_level(logging.ERROR, "engine.monitor"):
        monitor.set_attachments(())
    assert "could not be taken in: OutOfMemoryError" in caplog.text
    del sae
    gc.collect()
    assert gone() is None
    assert monitor.state().sae_attached is False
    assert positions(monitor.history()) == [1]


def test_detaching_while_a_reader_encodes_on_a_running_engine(
    make_engine: Callable[..., Engine], tmp_path: Path, held: Held
) -> None:
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    engine.attachments.attach("mirror")
    engine.monitor.configure()
    sae = weakref.ref(engine.desk.state.attachments[0].sae)
    # As if an event had been sent a moment ago: nothing makes the engine thread encode.
    engine.monitor._last_event = float("inf")
    held.threads.clear()
    answered(engine, 6)
    assert held.threads == set()
    reading = on_thread("reader", engine.monitor.history)
    assert held.inside.wait(60)
    leaving = on_thread("detacher", lambda: engine.attachments.detach("mirror"))
    wait_until(lambda: engine.desk.state.attachments == (), "the engine thread to take it away")
    # The desk has let go; the engine thread waits for the reader, who holds the weights.
    assert sae() is not None
    assert not leaving.done()
    held.go_on.set()
    # The prompt's last position, and each token but the last, which is never fed back.
    assert len(reading.result(60)) == 6
    assert leaving.result(60).status == "detached"
    wait_until(lambda: gc.collect() is not None and sae() is None, "the weights to be freed")
    answered(engine, 6)
    assert len(engine.monitor.history()) == 6
    assert held.threads == {"reader"}


def answered(engine: Engine, tokens: int) -> None:
    request = GenerationRequest(
        "tiny-llama", TextInput(("the sea",)), sampling=Sampling(temperature=0.0, ignore_eos=True), max_tokens=tokens
    )
    heard: list[Delta] = []
    handle = engine.generation.submit(engine.generation.prepare(request), heard.append)
    assert handle.wait(60)
    assert isinstance(heard[-1], RequestFinished)
