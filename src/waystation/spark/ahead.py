"""What is made ready while Spark consumes what came before.

An event loop in a thread of its own fetches and decodes.  Bytes are received without Python's
lock, and the other thread gives the lock up while it waits for Spark to take a batch, so that
Spark finds the next one ready: reading 1 KB records is a third faster for it
(benchmarks/spark).  Two batches wait to be taken at most; then nothing more is made.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Final, Generic, Self, TypeVar

from waystation.runtime.loops import new_loop

__all__ = ["Ahead"]

T = TypeVar("T")

_MOST_WAITING: Final = 2


class Ahead(Generic[T]):
    """What ``source`` yields, to be gone through once, inside ``with``."""

    def __init__(self, source: AsyncGenerator[T, None]) -> None:
        self._source = source
        self._came: SimpleQueue[T | _End] = SimpleQueue()
        self._loop = new_loop()
        self._room = asyncio.Semaphore(_MOST_WAITING)
        self._task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, name="spark-ahead", daemon=True)

    def __enter__(self) -> Self:
        self._task = self._loop.create_task(self._make_all())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever is under way is given up; returns when nothing is left of it."""
        if self._task is not None and not self._task.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()

    def __iter__(self) -> Iterator[T]:
        """Raises what the source raised, behind what came before."""
        while not isinstance(came := self._came.get(), _End):
            self._loop.call_soon_threadsafe(self._room.release)
            yield came
            del came  # its memory is used again
        if came.error is not None:
            raise came.error

    def _run(self) -> None:
        assert self._task is not None, "a thread without a task"
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            return

    async def _make_all(self) -> None:
        """Put out everything, then how it ended."""
        try:
            await self._room.acquire()
            async for made in self._source:
                self._came.put(made)
                del made
                await self._room.acquire()
            self._came.put(_End(None))
        except Exception as error:  # the outermost frame of a thread: told to the other
            self._came.put(_End(error))
        finally:
            await self._source.aclose()


class _End:
    """Nothing more comes, for the reason given if there is one."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
