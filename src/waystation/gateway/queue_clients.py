"""The queues that are pushed over sockets: one consumer each at a node, shared by all its sockets.

A consumer is a member of the queue's group, and a session with each leader: what it holds is back
in the queue at once if this node dies.  It reads all partitions, since the sockets of one node may
be many or slow.  The first socket makes it, and it goes with the last.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from waystation.gateway.queue_holders import QueueOf
from waystation.model.errors import WaystationError

if TYPE_CHECKING:
    from waystation.client.queue import Queue, QueueMessage
    from waystation.gateway.clients import Clients

__all__ = ["QueueClients"]

_FETCH_WAIT_MS: Final = 10_000
"""Nobody waits for the end of such a request: whoever closes ends its connection."""


class _Shared:
    """A consumer, and how many sockets use it."""

    __slots__ = ("queue", "starting", "users")

    def __init__(self, queue: "Queue") -> None:
        self.queue, self.users = queue, 0
        self.starting = asyncio.Lock()


class QueueClients:
    """All that one node has."""

    def __init__(self) -> None:
        self._shared: dict[QueueOf, _Shared] = {}

    @asynccontextmanager
    async def of(
        self,
        clients: "Clients",
        name: str,
        group: str | None,
        held: Mapping[str, "QueueMessage"],
    ) -> AsyncIterator["Queue"]:
        """The consumer of a queue, for one socket; what it holds at the end is given back."""
        key = QueueOf(name, name if group is None else group)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = _Shared(_made(clients, name, group))
        shared.users += 1
        try:
            async with shared.starting:
                await shared.queue.start()
            yield shared.queue
        finally:
            shared.users -= 1
            with suppress(WaystationError):
                if shared.users:
                    await shared.queue.give_back(held.values())
                else:
                    del self._shared[key]
                    await shared.queue.abandon()


def _made(clients: "Clients", name: str, group: str | None) -> "Queue":
    from waystation.client.queue import Queue

    bootstrap, connect = clients.further()
    return Queue(
        name,
        bootstrap,
        group=group,
        connect=connect,
        every_partition=True,
        client_id="gateway-push",
        fetch_max_wait_ms=_FETCH_WAIT_MS,
    )
