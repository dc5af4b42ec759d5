"""The engine thread: jobs in order between ticks, errors through futures, and an end that leaves nobody waiting."""

from __future__ import annotations

import threading

import pytest

from engine.generation.worker import EngineThread


def test_jobs_run_in_order_on_the_one_thread() -> None:
    thread = EngineThread(lambda: False)
    thread.start()
    names = [thread.run(lambda n=n: (n, threading.current_thread().name)) for n in range(3)]  # type: ignore[misc]
    assert [f.result(30) for f in names] == [(0, "engine"), (1, "engine"), (2, "engine")]
    assert thread.stop(30)


def test_an_error_of_a_job_comes_through_its_future_and_ends_nothing() -> None:
    thread = EngineThread(lambda: False)
    thread.start()
    with pytest.raises(ZeroDivisionError):
        thread.run(lambda: 1 // 0).result(30)
    assert thread.run(lambda: 7).result(30) == 7
    assert thread.stop(30)


def test_a_failing_tick_is_survived() -> None:
    ticks = 0

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        raise RuntimeError("a bug")

    thread = EngineThread(tick)
    thread.start()
    thread.wake()
    assert thread.run(lambda: ticks).result(30) >= 0
    assert thread.run(lambda: 7).result(30) == 7
    assert thread.stop(30)


def test_jobs_that_were_waiting_when_it_stopped_are_cancelled() -> None:
    thread = EngineThread(lambda: False)
    thread.start()
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go_on.wait(30)

    held = thread.run(hold)
    assert begun.wait(30)
    waiting = thread.run(lambda: 7)
    assert not thread.stop(0)
    late = thread.run(lambda: 8)
    go_on.set()
    assert thread.stop(30)
    held.result(30)
    assert waiting.cancelled()
    assert late.cancelled()


def test_it_rests_once_after_work() -> None:
    rests: list[str] = []
    rested = threading.Event()

    def rest() -> None:
        rests.append(threading.current_thread().name)
        rested.set()

    thread = EngineThread(lambda: False, rest, 0.0)
    thread.start()

    def rests_before_work() -> int:
        """Gives it work, and waits for the rest behind that."""
        rested.clear()
        before = thread.run(lambda: len(rests)).result(30)
        assert rested.wait(30)
        return before

    # None before the first work, and one behind each, however long nothing follows.
    assert [rests_before_work() for _ in range(4)] == [0, 1, 2, 3]
    assert set(rests) == {"engine"}
    assert thread.stop(30)


def test_a_rest_that_fails_is_survived_and_a_negative_time_is_never() -> None:
    def rest() -> None:
        raise RuntimeError("a bug")

    thread = EngineThread(lambda: False, rest, 0.0)
    thread.start()
    assert thread.run(lambda: 7).result(30) == 7
    assert thread.run(lambda: 8).result(30) == 8
    assert thread.stop(30)
    never = EngineThread(lambda: False, rest, -1.0)
    never.start()
    assert never.run(lambda: 7).result(30) == 7
    assert never.stop(30)
