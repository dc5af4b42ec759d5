"""The circuit breaker: when it opens, when it lets one call try, and what that call decides."""

from __future__ import annotations

import pytest

from engine.models.hub.breaker import BreakerState, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("hub", threshold=3, recovery_s=60.0, clock=clock)


def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        assert breaker.allow()
        breaker.failed()


def test_it_opens_after_failures_in_a_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert breaker.figures().state is BreakerState.CLOSED
    assert breaker.allow()
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.allow()
    breaker.failed()
    now = breaker.figures()
    assert (now.state, now.failures, now.remaining_seconds, now.times_opened) == (BreakerState.OPEN, 3, 60.0, 1)
    assert not breaker.allow()


def test_it_says_when_to_come_back(breaker: CircuitBreaker, clock: Clock) -> None:
    assert breaker.retry_after() == 1
    fail(breaker, 3)
    clock.now += 12.5
    assert breaker.retry_after() == 48
    clock.now += 47.4
    assert breaker.retry_after() == 1


@pytest.mark.parametrize("good", [True, False])
def test_one_call_tries_after_the_pause(breaker: CircuitBreaker, clock: Clock, good: bool) -> None:
    fail(breaker, 3)
    clock.now += 60
    assert breaker.figures().state is BreakerState.HALF_OPEN
    assert breaker.figures().remaining_seconds is None
    assert breaker.allow()
    assert not breaker.allow()
    if good:
        breaker.succeeded()
        assert breaker.figures().state is BreakerState.CLOSED
        assert breaker.figures().failures == 0
    else:
        breaker.failed()
        assert breaker.figures().state is BreakerState.OPEN
        assert breaker.figures().times_opened == 2


def test_a_call_that_was_given_up_lets_the_next_one_try(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 60
    assert breaker.allow()
    breaker.given_up()
    assert breaker.allow()


def test_a_late_failure_does_not_keep_it_open_longer(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30
    breaker.failed()
    assert breaker.figures().remaining_seconds == 30.0


def test_a_person_may_reset_it(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    breaker.reset()
    assert breaker.allow()
    assert breaker.figures().state is BreakerState.CLOSED
