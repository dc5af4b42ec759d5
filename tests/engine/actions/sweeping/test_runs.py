"""The sweeps of a session: one at a time, told of by events, ended with the program."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.actions.sweeping.runs import MOST_KEPT, OnCell, SweepBook, SweepRunning, SweepState
from engine.actions.sweeping.settings import BaseKind, CellResult, SweepBase, SweepOutcome, SweepSettings
from engine.engine import Engine
from engine.errors import ModelBusy, NotFound, NothingToCancel
from engine.events import Event, EventBus, SweepComplete, SweepProgress, SweepsChanged
from engine.sampling import Sampling
from tests.made_saes import make_mirror_sae

SETTINGS = SweepSettings(("a", "b"), (0.0, 1.0))
BASE = SweepBase(BaseKind.LIVE, "by hand", {("sae", 1): {3: 1.0}})
PATIENCE_S = 60.0


class Written:
    """A sweep whose cells the test writes: a cell, None for its end, or what it fails with."""

    def __init__(self, on_cell: OnCell, stop: threading.Event) -> None:
        self.facts: Mapping[str, str] = {"Model": "tiny"}
        self.steps: queue.Queue[CellResult | Exception | None] = queue.Queue()
        self.stop = stop
        self._on_cell = on_cell

    def outcome(self) -> SweepOutcome:
        cells = []
        while not self.stop.is_set():
            try:
                step = self.steps.get(timeout=0.05)
            except queue.Empty:
                continue
            if step is None:
                break
            if isinstance(step, Exception):
                raise step
            cells.append(step)
            self._on_cell(step)
        return SweepOutcome(SETTINGS, BASE, tuple(cells), self.facts, not self.stop.is_set())


class Session:
    """A book and what was heard of it."""

    def __init__(self) -> None:
        self.bus = EventBus()
        self.heard: queue.Queue[Event] = queue.Queue()
        self.bus.subscribe(self.heard.put)
        self.book = SweepBook(self.bus)

    def start(self) -> tuple[str, Written]:
        made: list[Written] = []

        def prepare(on_cell: OnCell, stop: threading.Event) -> Written:
            made.append(Written(on_cell, stop))
            return made[0]

        return self.book.start(SETTINGS, BASE, prepare).id, made[0]

    def next(self) -> Event:
        return self.heard.get(timeout=PATIENCE_S)

    def end(self) -> SweepComplete:
        while not isinstance(event := self.next(), SweepComplete):
            pass
        return event


@pytest.fixture
def session() -> Session:
    return Session()


def test_a_sweep_is_followed(session: Session) -> None:
    sweep_id, written = session.start()
    assert session.next() == SweepsChanged()
    assert session.next() == SweepProgress(sweep_id, "by hand", 0, 4)
    written.steps.put(CellResult(0, 0.0, "text", 3, "stop"))
    assert session.next() == SweepProgress(sweep_id, "by hand", 1, 4)
    run = session.book.get(sweep_id)
    assert (run.state, len(run.cells), run.ended_at, run.facts) == (SweepState.RUNNING, 1, None, {"Model": "tiny"})
    assert not run.outcome().complete
    written.steps.put(CellResult(1, 0.0, error="it broke"))
    written.steps.put(None)
    assert session.end() == SweepComplete(sweep_id, "by hand", "complete", 2, 4)
    run = session.book.get(sweep_id)
    assert (run.state, run.failed, run.error) == (SweepState.COMPLETE, 1, None)
    assert run.outcome().complete and [mean.answers for mean in run.means()] == [1]
    with pytest.raises(NothingToCancel):
        session.book.cancel(sweep_id)


def test_one_at_a_time(session: Session) -> None:
    sweep_id, _ = session.start()
    with pytest.raises(SweepRunning) as refused:
        session.start()
    assert refused.value.details == {"sweep_id": sweep_id, "done": 0, "total": 4}
    session.book.cancel(sweep_id)
    # Begun at once, it waits until the other has let go.
    other, written = session.start()
    assert session.book.get(sweep_id).state is SweepState.CANCELLED
    written.steps.put(None)
    assert session.book.wait(PATIENCE_S)
    assert [run.id for run in session.book.list()] == [other, sweep_id]
    assert session.book.remove(other).id == other
    with pytest.raises(NotFound):
        session.book.get(other)


@pytest.mark.parametrize(
    ("failure", "words"),
    [(ModelBusy("The model is going."), "The model is going."), (ValueError("oops"), "The sweep failed.")],
)
def test_one_that_fails_says_why(
    session: Session, failure: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    sweep_id, written = session.start()
    written.steps.put(CellResult(0, 0.0, "text"))
    written.steps.put(failure)
    ended = session.end()
    assert (ended.state, ended.done) == ("failed", 1) and (ended.error or "").startswith(words)
    run = session.book.get(sweep_id)
    assert run.error is not None and run.error.message.startswith(words) and len(run.cells) == 1
    assert ("oops" in caplog.text) == isinstance(failure, ValueError)


def test_one_that_cannot_begin_is_not_kept(session: Session) -> None:
    def prepare(_on_cell: OnCell, _stop: threading.Event) -> Any:
        raise ModelBusy("It is going.")

    with pytest.raises(ModelBusy):
        session.book.start(SETTINGS, BASE, prepare)
    assert session.book.list() == () and session.heard.empty()


def test_only_the_last_are_kept(session: Session) -> None:
    ids = []
    for _ in range(MOST_KEPT + 2):
        sweep_id, written = session.start()
        written.steps.put(None)
        session.end()
        ids.append(sweep_id)
    assert [run.id for run in session.book.list()] == ids[:1:-1]


def test_the_end_of_the_program_ends_it(make_engine: Callable[..., Engine], tmp_path: Path) -> None:
    engine = make_engine()
    engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    engine.attachments.attach("mirror")
    heard: queue.Queue[Event] = queue.Queue()
    engine.events.subscribe(heard.put, SweepComplete)
    base = SweepBase(BaseKind.LIVE, "by hand", {("mirror", 1): {3: 4.0}})
    engine.sweeps.start(
        SweepSettings(tuple("abcdef"), (0.0, 1.0, 2.0), max_tokens=1024, sampling=Sampling(temperature=1.5, seed=0)),
        base,
    )
    assert engine.stop(30)
    assert engine.sweeps.runs.wait(PATIENCE_S)
    ended = heard.get(timeout=PATIENCE_S)
    assert isinstance(ended, SweepComplete) and ended.state in ("cancelled", "failed")
