"""What is asked of other brokers, gathered into as few requests as there need be.

What one turn of the loop brings for a receiver goes out in one request; while several requests
are under way to it, what comes next waits and goes out together, too.  Nothing waits for a timer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from waystation.runtime.tasks import Tasks

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_UNDER_WAY_MAX = 4
_TOGETHER_MAX = 500


class Gathering(Generic[K, T]):
    """Queues by receiver; ``send`` takes what was gathered, and must not raise."""

    def __init__(self, send: Callable[[K, list[T]], Awaitable[None]], name: str) -> None:
        self._send = send
        self._name = name
        self._queues: dict[K, list[T]] = {}
        self._under_way: dict[K, int] = {}
        self._tasks = Tasks()

    def add(self, receiver: K, item: T) -> None:
        """Have it sent soon."""
        queue = self._queues.get(receiver)
        if queue is None:
            self._queues[receiver] = [item]
            asyncio.get_running_loop().call_soon(self._start, receiver)
        else:
            queue.append(item)

    async def aclose(self) -> None:
        """Send nothing more, and wait for no answer."""
        self._queues.clear()
        await self._tasks.aclose()

    def _start(self, receiver: K) -> None:
        while receiver in self._queues and self._under_way.get(receiver, 0) < _UNDER_WAY_MAX:
            queue = self._queues[receiver]
            some, rest = queue[:_TOGETHER_MAX], queue[_TOGETHER_MAX:]
            if rest:
                self._queues[receiver] = rest
            else:
                del self._queues[receiver]
            self._under_way[receiver] = self._under_way.get(receiver, 0) + 1
            self._tasks.spawn(self._sent(receiver, some), self._name)

    async def _sent(self, receiver: K, items: list[T]) -> None:
        try:
            await self._send(receiver, items)
        finally:
            self._under_way[receiver] -= 1
            if not self._under_way[receiver]:
                del self._under_way[receiver]
            self._start(receiver)
