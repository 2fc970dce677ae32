"""A broker's threads as turns of its loop, so that a whole node lives in a simulation.

Within ``simulated_threads`` whatever makes threads gets something that makes turns instead: each
piece of work is done whole, some time later, in the order in which a thread would do it.  A node
that loses power leaves undone what had not been done; one that is paused stands still with all of
its threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from waystation.storage.flusher import Defer, Flusher, Post, Stopwatch
from waystation.storage.worker import Worker
from waystation.testing.virtual_time import Schedule, VirtualLoop

__all__ = ["simulated_threads"]

T = TypeVar("T")


def _delay_s() -> float:
    """How long a piece of work waits for its thread, as the running loop has it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "a simulated thread outside of a simulation"
    return loop.thread_delay_s() if loop.thread_delay_s is not None else 0.0


class _Desk:
    """Takes the place of a queue between a loop and its thread."""

    def __init__(self, do_one: Callable[[], None]) -> None:
        self.work: deque[Any] = deque()
        self._do_one = do_one
        self._taken = False

    def put(self, work: Any) -> None:
        if work is not None:
            self.work.append(work)
            asyncio.get_running_loop().call_later(_delay_s(), self.run)

    def run(self) -> None:
        if self.work:
            self._taken = False
            self._do_one()

    def get(self) -> Any:
        """One piece of work, then the end: a thread's whole life is one turn."""
        if self._taken or not self.work:
            return None
        self._taken = True
        return self.work.popleft()


class _Flusher(Flusher):
    """Syncs in turns of the loop."""

    def __init__(
        self,
        threads: int,
        post: Post,
        stopwatch: Stopwatch | None = None,
        defer: Defer | None = None,
    ) -> None:
        super().__init__(0, post, stopwatch, defer)
        self._desk = _Desk(self._sync)
        self._work = self._desk  # type: ignore[assignment]  # as much of a queue as is used

    def close(self) -> None:
        while self._desk.work:
            self._desk.run()
        super().close()


class _Worker(Worker):
    """Does one thing after the other, each in a turn of its own."""

    __slots__ = ("_desk",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._desk = _Desk(self._run)
        self._work = self._desk  # type: ignore[assignment]  # as much of a queue as is used

    def submit(self, work: Callable[[], None]) -> None:
        if not self._closed:
            self._desk.put(work)

    def close(self) -> None:
        self._closed = True
        while self._desk.work:
            self._desk.run()


class _Pool:
    """A pool of threads that does everything at once, in its caller's turn."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., T], *args: Any) -> "Future[T]":
        done: Future[T] = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, work: Callable[..., T], *args: Iterable[Any]) -> list[T]:
        return list(map(work, *args))

    def shutdown(self, *_: object, **__: object) -> None:
        pass


@contextmanager
def simulated_threads(schedule: Schedule) -> Iterator[None]:
    """Let nothing that is made meanwhile have threads, or a clock other than the schedule's."""
    virtual_time = SimpleNamespace(
        monotonic=lambda: schedule.now_s, perf_counter=lambda: schedule.now_s
    )
    with ExitStack() as patches:
        for place, stand_in in {
            "waystation.broker.broker.Flusher": _Flusher,
            "waystation.broker.holdings.Worker": _Worker,
            "waystation.storage.directory.ThreadPoolExecutor": _Pool,
            "waystation.broker.cleaning.ThreadPoolExecutor": _Pool,
            "waystation.broker.key_finding.ThreadPoolExecutor": _Pool,
            "waystation.storage.journal.time": virtual_time,
            "waystation.storage.flusher.time": virtual_time,
        }.items():
            patches.enter_context(patch(place, stand_in))
        yield
