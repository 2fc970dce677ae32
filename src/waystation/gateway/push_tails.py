"""All tails of a node: made when somebody follows, ended a while after nobody does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from waystation.gateway.problems import refusal
from waystation.gateway.push_tail import Tail
from waystation.model.ids import TopicId
from waystation.runtime.tasks import Tasks

if TYPE_CHECKING:
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Tails"]

_MOST: Final = 512
_LINGER_S: Final = 5.0
Key = tuple[TopicId, int | None]


class Tails:
    """Tails by topic and partition."""

    def __init__(self) -> None:
        self._tails: dict[Key, Tail] = {}
        self._tasks = Tasks()

    def __len__(self) -> int:
        return len(self._tails)

    def check_room(self, topic: "TopicView", partition: int | None) -> None:
        """Refuse one more if there are enough."""
        if (topic.id, partition) not in self._tails and len(self._tails) >= _MOST:
            raise refusal(
                503,
                "too-many-topics",
                f"{_MOST} topics and partitions are followed already",
                remedy="follow all partitions of a topic at once, or ask another node",
            )

    @asynccontextmanager
    async def following(
        self, clients: "Clients", topic: "TopicView", partition: int | None
    ) -> AsyncIterator[Tail]:
        """The tail of a topic, read for as long as somebody needs it."""
        key = topic.id, partition
        tail = self._tails.get(key)
        if tail is None:
            self.check_room(topic, partition)
            tail = self._made(key, Tail(clients, topic, partition))
        tail.users += 1
        try:
            await asyncio.shield(tail.ready)
            yield tail
        finally:
            tail.users -= 1

    async def aclose(self) -> None:
        """End all of them."""
        await self._tasks.aclose()

    def _made(self, key: Key, tail: Tail) -> Tail:
        self._tails[key] = tail
        self._tasks.spawn(self._kept(key, tail), f"push-tail {tail.topic.name}")
        return tail

    async def _kept(self, key: Key, tail: Tail) -> None:
        """Run a tail until it fails, or nobody has followed it for a while."""
        running = asyncio.ensure_future(tail.run())
        try:
            while not running.done():
                before = tail.users
                await asyncio.wait([running], timeout=_LINGER_S)
                if not before and not tail.users:
                    return
        finally:
            # Whoever comes now begins another one.
            self._tails.pop(key, None)
            running.cancel()
            await asyncio.wait([running])
