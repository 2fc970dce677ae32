"""All tails of a node: made when somebody follows, ended a while after nobody does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from waystation.client.errors import error_of, is_retriable
from waystation.client.raw import TopicRecreatedError
from waystation.gateway.problems import refusal
from waystation.gateway.push_tail import Tail
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId
from waystation.runtime.tasks import Tasks

if TYPE_CHECKING:
    from waystation.client.metadata import ClusterView, TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Looks", "Tails"]

_MOST: Final = 512
_LINGER_S: Final = 5.0
_LOOK_S: Final = 2.0
Key = tuple[TopicId, int | None]


class Looks:
    """Topics looked at from time to time, once for all their tails."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, asyncio.Task[ClusterView]]] = {}

    async def check(self, clients: "Clients", topic: "TopicView", since: float) -> None:
        """See that a topic is there, and still the same, as it was not long before ``since``."""
        name, now = topic.name, asyncio.get_running_loop().time()
        at, looking = self._looks.get(name, (-1.0, None))
        if looking is None or at < since or now - at > _LOOK_S:
            self._forget_old(now)
            looking = asyncio.ensure_future(_looked_up(clients, name))
            self._looks[name] = now, looking
        try:
            view = await asyncio.shield(looking)
        except WaystationError as error:
            if is_retriable(error):
                return  # nobody could be asked just now; the next look will tell
            raise
        known = view.topics.get(name)
        if view.refused.get(name):
            await clients.forget(name)
            raise error_of(view.refused[name], f"topic {name}")
        if known is not None and known.id != topic.id:
            await clients.forget(name)
            raise TopicRecreatedError(name)

    def _forget_old(self, now: float) -> None:
        if len(self._looks) > _MOST:
            self._looks = {name: one for name, one in self._looks.items() if now - one[0] < _LOOK_S}


async def _looked_up(clients: "Clients", name: str) -> "ClusterView":
    return await (await clients.router()).look_up([name])


class Tails:
    """Tails by topic and partition."""

    def __init__(self) -> None:
        self._tails: dict[Key, Tail] = {}
        self._looks = Looks()
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
            tail = self._made(key, Tail(clients, topic, partition, self._looks.check))
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
