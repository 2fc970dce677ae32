"""Holds a thread of the background back, so that those who serve clients get their share.

Two things are scarce: the disk, measured in bytes per second, and the interpreter, which only one
thread can use at a time.  Small batches cost much of the second for little of the first, so both
are counted.
"""

from collections.abc import Callable
from threading import Event
from time import thread_time

from waystation.runtime.clock import Clock

# What a thread that was held up by something else may make up for, at most.
_CREDIT_S = 0.1
_LEAST_PAUSE_S = 0.001


class StoppedError(Exception):
    """The broker stops: there is no time for the background."""


class Pace:
    """The budget of one thread; only ``stop`` is for others."""

    __slots__ = ("_clock", "_cpu_before_s", "_cpu_share", "_due_s", "_limit", "_stopping")

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], int], cpu_share: float) -> None:
        """``cpu_share`` is of one core."""
        self._clock = clock
        self._limit = bytes_per_second
        self._cpu_share = cpu_share
        self._stopping = Event()
        self._due_s = 0.0
        self._cpu_before_s = 0.0

    def begin(self) -> None:
        """A piece of work begins; what was not used before it does not count."""
        self._due_s, self._cpu_before_s = self._clock.monotonic(), thread_time()

    def spent(self, nbytes: int) -> None:
        """Wait until ``nbytes`` and the computing time for them fit the budget."""
        cpu_s = thread_time()
        used_s = max(nbytes / self._limit(), (cpu_s - self._cpu_before_s) / self._cpu_share)
        now_s = self._clock.monotonic()
        self._cpu_before_s = cpu_s
        self._due_s = max(self._due_s + used_s, now_s - _CREDIT_S)
        pause_s = self._due_s - now_s
        if self._stopping.is_set() or (pause_s >= _LEAST_PAUSE_S and self._stopping.wait(pause_s)):
            raise StoppedError

    def stop(self) -> None:
        """End the present wait and refuse every later one."""
        self._stopping.set()
