"""The queues that are received from over HTTP: one client each, shared by all calls.

A client is one member of the queue's group, one connection or two per broker, and one waiting
request per leader, however many calls wait for messages (``client/queue_receipts.py``).  The first
call makes it, it leaves some seconds after the last, and there are never more than a node can bear.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.client.queue_receipts import Receipts
from waystation.gateway.problems import refusal
from waystation.model.errors import WaystationError
from waystation.runtime.tasks import Tasks

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["QueueHolders"]

_QUEUES: Final = 512
_WAITING: Final = 2_048
_IDLE_S: Final = 10.0
_ANSWER_BYTES: Final = 4 << 20
_PATIENCE_MS: Final = 30_000
_IMAGE_MS: Final = 5_000


class QueueOf(NamedTuple):
    """A queue: a topic, and the group that reads it."""

    name: str
    group: str


class _Holder:
    """A client, those who use it, and what ends it when nobody does."""

    __slots__ = ("idle", "receipts", "started", "users")

    def __init__(self, receipts: Receipts) -> None:
        self.receipts = receipts
        self.started: asyncio.Task[Receipts] = asyncio.ensure_future(receipts.start())
        self.users = 0
        self.idle: asyncio.TimerHandle | None = None


class QueueHolders:
    """All that one node has."""

    def __init__(self) -> None:
        self._holders: dict[QueueOf, _Holder] = {}
        self._clients: Clients | None = None
        self._closing = Tasks()
        self._waiting = 0

    @asynccontextmanager
    async def of(self, clients: "Clients", queue: QueueOf) -> AsyncIterator[Receipts]:
        """The client of a queue, for one call."""
        holder = self._holders.get(queue) or self._made(clients, queue)
        holder.users += 1
        if holder.idle is not None:
            holder.idle.cancel()
        try:
            yield await asyncio.shield(holder.started)
        except BaseException:
            if holder.started.done() and not _is_good(holder.started):
                self._drop(queue, holder)
            raise
        finally:
            holder.users -= 1
            if not holder.users and self._holders.get(queue) is holder:
                loop = asyncio.get_running_loop()
                holder.idle = loop.call_later(_IDLE_S, self._drop, queue, holder)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """One more call that waits; refused where too many do."""
        if self._waiting >= _WAITING:
            raise refusal(
                503,
                "too-many-waiting",
                f"{self._waiting} calls wait for messages of queues already",
                field="wait_ms",
                remedy="wait_ms=0, or another node",
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def leave(self, queue: QueueOf) -> None:
        """End the client of a queue now, unless somebody uses it."""
        holder = self._holders.get(queue)
        if holder is not None and not holder.users:
            await self._drop(queue, holder)

    async def close(self) -> None:
        """End all clients."""
        ends = [self._drop(queue, holder) for queue, holder in list(self._holders.items())]
        if ends:
            await asyncio.wait(ends)

    def _made(self, clients: "Clients", queue: QueueOf) -> _Holder:
        if self._clients is None:
            self._clients = clients
            clients.on_close.append(self.close)
        if len(self._holders) >= _QUEUES:
            self._make_room()
        bootstrap, connect = clients.further()
        holder = self._holders[queue] = _Holder(
            Receipts(
                queue.name,
                bootstrap,
                group=queue.group,
                connect=connect,
                client_id="gateway",
                fetch_max_bytes=_ANSWER_BYTES,
                metadata_timeout_ms=_PATIENCE_MS,
                metadata_max_age_ms=_IMAGE_MS,
            )
        )
        return holder

    def _make_room(self) -> None:
        unused = (item for item in self._holders.items() if not item[1].users)
        oldest = next(unused, None)
        if oldest is None:
            raise refusal(
                503,
                "too-many-queues",
                f"{_QUEUES} queues are received from at this node already",
                field="queue",
                remedy="try again a little later, or at another node",
            )
        self._drop(*oldest)

    def _drop(self, queue: QueueOf, holder: _Holder) -> "asyncio.Task[None]":
        if self._holders.get(queue) is holder:
            del self._holders[queue]
        if holder.idle is not None:
            holder.idle.cancel()
        return self._closing.spawn(_end(holder), f"queue-holder {queue.name}")


async def _end(holder: _Holder) -> None:
    with suppress(WaystationError):
        await holder.started
    with suppress(WaystationError):
        await holder.receipts.close()


def _is_good(started: "asyncio.Task[Receipts]") -> bool:
    return not started.cancelled() and started.exception() is None
