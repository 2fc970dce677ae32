"""Clocks agree with what they stand for."""

import time

from waystation.runtime.clock import ManualClock, SystemClock


def test_the_system_clock_tells_wall_time_in_milliseconds() -> None:
    before = time.time()
    now = SystemClock().now()

    assert before * 1_000 - 1 <= now <= time.time() * 1_000


def test_the_system_clock_never_runs_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1_000)]

    assert readings == sorted(readings)


def test_a_manual_clock_moves_only_when_moved() -> None:
    clock = ManualClock()
    start = clock.now()

    assert (clock.now(), clock.monotonic()) == (start, 0.0)

    clock.advance(1.5)

    assert (clock.now(), clock.monotonic()) == (start + 1_500, 1.5)
