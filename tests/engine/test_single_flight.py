"""The same action begun twice is one; different ones, and later ones, are their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.single_flight import SingleFlight
from tests.waiting import wait_until


class Action:
    """Work that waits until it is let go; counts how often it was begun."""

    def __init__(self, *outcomes: object) -> None:
        self.begun = 0
        self.under_way = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self._outcomes = outcomes

    def __call__(self) -> object:
        outcome = self._outcomes[self.begun]
        self.begun += 1
        self.under_way.release()
        assert self.go.acquire(timeout=30)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def test_whoever_asks_while_it_runs_gets_the_same_result() -> None:
    flights, work = SingleFlight(), Action("one", "two")
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(flights.run, "a", work)
        assert work.under_way.acquire(timeout=30)
        assert flights.running("a") and not flights.running("b")
        others = [pool.submit(flights.run, "a", work) for _ in range(3)]
        wait_until(lambda: flights.waiting("a") == 3, "callers that wait")
        work.go.release()
        assert [each.result(30) for each in (first, *others)] == ["one"] * 4
    assert work.begun == 1 and not flights.running("a")
    # What is over is over: asking again begins anew.
    work.go.release()
    assert flights.run("a", work) == "two"


def test_what_it_failed_with_is_shared_too() -> None:
    flights, work = SingleFlight(), Action(OSError("no room"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(flights.run, "a", work)
        assert work.under_way.acquire(timeout=30)
        second = pool.submit(flights.run, "a", work)
        wait_until(lambda: flights.waiting("a") == 1, "callers that wait")
        work.go.release()
        for each in (first, second):
            with pytest.raises(OSError, match="no room"):
                each.result(30)
    assert not flights.running("a")


def test_one_persons_change_of_mind_is_not_the_others() -> None:
    flights, work = SingleFlight(), Action(KeyboardInterrupt(), "one")
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(flights.run, "a", work)
        assert work.under_way.acquire(timeout=30)
        others = [pool.submit(flights.run, "a", work, not_shared=(KeyboardInterrupt,)) for _ in range(2)]
        wait_until(lambda: flights.waiting("a") == 2, "callers that wait")
        work.go.release()
        assert work.under_way.acquire(timeout=30)
        wait_until(lambda: flights.waiting("a") == 1, "the other one")
        work.go.release()
        assert [each.result(30) for each in others] == ["one", "one"]
        with pytest.raises(KeyboardInterrupt):
            first.result(30)
    assert work.begun == 2


def test_who_hears_late_of_the_change_of_mind_shares_the_run_that_followed_all_the_same() -> None:
    flights, work = SingleFlight(), Action(KeyboardInterrupt(), "one", "never")
    told, hear = threading.Event(), threading.Event()

    def late() -> object:
        outcome = flights._under_way["a"].outcome
        result = outcome.result

        def slowly(timeout: float | None = None) -> object:
            if threading.current_thread() is not own:
                return result(timeout)
            told.set()
            try:
                return result(timeout)
            finally:
                assert hear.wait(30)

        own = threading.current_thread()
        outcome.result = slowly  # type: ignore[method-assign]
        return flights.run("a", work, not_shared=(KeyboardInterrupt,))

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(flights.run, "a", work)
        assert work.under_way.acquire(timeout=30)
        last = pool.submit(late)
        assert told.wait(30)
        other = pool.submit(flights.run, "a", work, not_shared=(KeyboardInterrupt,))
        wait_until(lambda: flights.waiting("a") == 2, "callers that wait")
        work.go.release()
        assert work.under_way.acquire(timeout=30)
        work.go.release()
        assert other.result(30) == "one"
        hear.set()
        assert last.result(30) == "one"
        with pytest.raises(KeyboardInterrupt):
            first.result(30)
    assert work.begun == 2


def test_other_keys_run_beside_it() -> None:
    flights, slow = SingleFlight(), Action("slow")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(flights.run, "a", slow)
        assert slow.under_way.acquire(timeout=30)
        assert flights.run("b", lambda: "quick") == "quick"
        slow.go.release()
        assert first.result(30) == "slow"
