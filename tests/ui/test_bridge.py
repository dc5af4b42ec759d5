"""The two doors of the GUI thread."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future

import pytest
import shiboken6
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.errors import ModelNotFound
from engine.events import Event, EventBus, ModelsChanged
from ui.bridge import Bridge, Inbox

SECONDS_30 = 30_000


class Receiver(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.got: list[object] = []
        self.threads: list[threading.Thread] = []

    def take(self, value: object) -> None:
        self.got.append(value)
        self.threads.append(threading.current_thread())


def test_a_result_comes_back_on_the_gui_thread(qtbot: QtBot, bridge: Bridge) -> None:
    receiver = Receiver()
    ran_on: list[threading.Thread] = []

    def task() -> int:
        ran_on.append(threading.current_thread())
        return 42

    bridge.run_in_background(task, receiver.take)
    qtbot.waitUntil(lambda: receiver.got == [42], timeout=SECONDS_30)
    assert receiver.threads == [threading.main_thread()]
    assert ran_on != [threading.main_thread()]


def test_an_error_comes_back_as_itself(qtbot: QtBot, bridge: Bridge) -> None:
    receiver = Receiver()

    def task() -> None:
        raise ModelNotFound("No model has that name.")

    bridge.run_in_background(task, None, receiver.take)
    qtbot.waitUntil(lambda: bool(receiver.got), timeout=SECONDS_30)
    assert isinstance(receiver.got[0], ModelNotFound)
    assert receiver.threads == [threading.main_thread()]


def test_an_error_nobody_asked_for_is_still_told(
    qtbot: QtBot, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    def task() -> None:
        raise ValueError("no such number")

    with qtbot.waitSignal(bridge.failed, timeout=SECONDS_30) as told:
        bridge.run_in_background(task)
    assert str(told.args[0]) == "no such number"
    assert "background work failed" in caplog.text


def test_nothing_is_delivered_to_a_receiver_that_is_gone(qtbot: QtBot, bridge: Bridge) -> None:
    receiver, still_there = Receiver(), Receiver()
    go = threading.Event()
    bridge.run_in_background(lambda: go.wait(30), receiver.take)
    shiboken6.delete(receiver)
    go.set()
    bridge.run_in_background(lambda: "later", still_there.take)
    qtbot.waitUntil(lambda: still_there.got == ["later"], timeout=SECONDS_30)
    assert receiver.got == []


def test_the_owner_of_a_closure_counts_as_its_receiver(qtbot: QtBot, bridge: Bridge) -> None:
    owner, still_there = QObject(), Receiver()
    called: list[int] = []
    shiboken6.delete(owner)
    bridge.run_in_background(lambda: 1, lambda value: called.append(value), owner=owner)
    bridge.run_in_background(lambda: "later", still_there.take)
    qtbot.waitUntil(lambda: still_there.got == ["later"], timeout=SECONDS_30)
    assert called == []


def test_more_tasks_than_threads_all_run(qtbot: QtBot, bridge: Bridge) -> None:
    receiver = Receiver()
    for number in range(50):
        bridge.run_in_background(lambda number=number: number, receiver.take)
    qtbot.waitUntil(lambda: len(receiver.got) == 50, timeout=SECONDS_30)
    assert sorted(receiver.got) == list(range(50))  # type: ignore[type-var]


def test_a_future_is_awaited_without_a_thread(qtbot: QtBot, bridge: Bridge) -> None:
    receiver = Receiver()
    future: Future[str] = Future()
    failing: Future[str] = Future()
    bridge.when_done(future, receiver.take)
    bridge.when_done(failing, None, receiver.take)
    future.set_result("loaded")
    failing.set_exception(ModelNotFound("gone"))
    qtbot.waitUntil(lambda: len(receiver.got) == 2, timeout=SECONDS_30)
    assert receiver.got[0] == "loaded"
    assert isinstance(receiver.got[1], ModelNotFound)


def test_events_of_any_thread_arrive_on_the_gui_thread(qtbot: QtBot, bridge: Bridge, events: EventBus) -> None:
    receiver = Receiver()
    bridge.event_arrived.connect(receiver.take)
    sender = threading.Thread(target=lambda: events.publish(ModelsChanged()))
    sender.start()
    sender.join(30)
    assert receiver.got == [], "the event must be queued, not delivered on the sender's thread"
    qtbot.waitUntil(lambda: bool(receiver.got), timeout=SECONDS_30)
    assert receiver.threads == [threading.main_thread()]


def test_after_shutdown_nothing_arrives_any_more(qtbot: QtBot, events: EventBus) -> None:
    bridge = Bridge(events)
    seen: list[Event] = []
    bridge.event_arrived.connect(seen.append)
    receiver = Receiver()
    bridge.run_in_background(lambda: 1, receiver.take)
    assert bridge.shutdown(30)
    events.publish(ModelsChanged())
    bridge.run_in_background(lambda: 2, receiver.take)
    bridge.post(receiver.take, 3)
    again = Bridge()
    with qtbot.waitCallback(timeout=SECONDS_30) as reached:
        again.post(reached)
    assert (seen, receiver.got) == ([], [])
    assert again.shutdown(30)


def test_shutdown_says_when_something_still_runs(events: EventBus) -> None:
    bridge = Bridge(events)
    go, running = threading.Event(), threading.Event()

    def task() -> None:
        running.set()
        go.wait(30)

    bridge.run_in_background(task)
    assert running.wait(30)
    assert bridge.shutdown(0.0) is False
    go.set()
    assert bridge.shutdown(30)


def test_an_inbox_keeps_order_and_hands_over_in_batches(qtbot: QtBot) -> None:
    inbox = Inbox(interval_ms=20)
    batches: list[list[int]] = []
    threads: set[threading.Thread] = set()

    def take(batch: list[int]) -> None:
        batches.append(batch)
        threads.add(threading.current_thread())

    inbox.arrived.connect(take)
    sender = threading.Thread(target=lambda: [inbox.put(number) for number in range(2000)])
    sender.start()
    sender.join(30)
    qtbot.waitUntil(lambda: sum(map(len, batches)) == 2000, timeout=SECONDS_30)
    assert [number for batch in batches for number in batch] == list(range(2000))
    assert len(batches) < 100
    assert threads == {threading.main_thread()}


def test_a_closed_inbox_is_silent(qtbot: QtBot, bridge: Bridge) -> None:
    inbox = Inbox(interval_ms=0)
    batches: list[list[int]] = []
    inbox.arrived.connect(batches.append)
    inbox.put(1)
    inbox.close()
    inbox.put(2)
    with qtbot.waitCallback(timeout=SECONDS_30) as reached:
        bridge.post(reached)
    assert batches == []


def test_qt_calls_leave_none_alone(qtbot: QtBot) -> None:
    """PySide6 6.12.0 takes one reference from None with each call below Python 3.12, until the process is ended."""
    receiver = Receiver()
    before = sys.getrefcount(None)
    for _ in range(1000):
        receiver.blockSignals(False)
        receiver.setObjectName("x")
    assert sys.getrefcount(None) > before - 500
