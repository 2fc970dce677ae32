"""Background work that nobody awaits.

The loop itself keeps only weak references, so a task nobody holds may vanish half-way, and its
crash is told when it is collected, if ever.  Here a task is held until it ends, and a crash is
an event at once.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from waystation.telemetry.logs import get_logger

_events = get_logger("runtime")


class Tasks:
    """The background tasks of one owner, who ends them together."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``coro`` beside everything else; ``name`` is what an event calls it."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is gone; the caller is not cancelled."""
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _events.error("task.crashed", task=task.get_name(), exc_info=error)


_unowned = Tasks()


def spawn(coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Run ``coro`` for as long as the process lives, where no owner would end it earlier."""
    return _unowned.spawn(coro, name)
