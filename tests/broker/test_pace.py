"""A thread of the background is held back, and let go when the broker stops."""

import threading
from collections.abc import Callable
from time import thread_time

import pytest

from waystation.broker.pace import Pace, StoppedError
from waystation.runtime.clock import SystemClock

CLOCK = SystemClock()


def seconds(work: Callable[[], None]) -> float:
    began = CLOCK.monotonic()
    work()
    return CLOCK.monotonic() - began


def test_so_many_bytes_take_their_time() -> None:
    limit = 10_000_000
    pace = Pace(CLOCK, lambda: limit, 1.0)
    pace.begin()

    def spend() -> None:
        for _ in range(10):
            pace.spent(200_000)

    assert 0.19 < seconds(spend) < 2
    limit = 1 << 40
    assert seconds(spend) < 0.19


def test_computing_takes_its_time_too() -> None:
    pace = Pace(CLOCK, lambda: 1 << 40, 0.1)
    pace.begin()

    def compute() -> None:
        sum(range(500_000))
        pace.spent(1)

    before_s = thread_time()
    took_s = seconds(compute)
    assert took_s > 5 * (thread_time() - before_s)


def test_time_that_passed_otherwise_is_not_made_up_for() -> None:
    pace = Pace(CLOCK, lambda: 1_000_000, 1.0)
    pace.begin()
    pace._due_s -= 60

    assert seconds(lambda: pace.spent(200_000)) < 0.19
    assert seconds(lambda: pace.spent(200_000)) > 0.05


def test_nobody_waits_when_the_broker_stops() -> None:
    pace = Pace(CLOCK, lambda: 1, 1.0)
    pace.begin()
    threading.Timer(0.05, pace.stop).start()

    with pytest.raises(StoppedError):
        pace.spent(1_000)
    with pytest.raises(StoppedError):
        pace.spent(0)
