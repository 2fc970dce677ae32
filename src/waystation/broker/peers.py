"""The other brokers of the cluster, as this one talks to them.

1. Each peer and purpose has one connection, opened when something is first asked.  Questions on it
   are pipelined, and answered in the order they were asked: what waits long, such as a fetch, has
   a purpose of its own, so that short questions do not wait behind it.
2. An answer is the peer's own, or ``PeerUnreachableError``.  A question without an answer may have
   been acted on all the same.
3. A peer that cannot be reached is tried later and later, however many ask; whoever asks meanwhile
   waits for that try.  A peer that registers anew is tried at once, and nothing that was asked
   of its last life is answered by its next.

Nothing else in a broker opens connections to others.  How a connection is made is handed in: a
node reaches itself without a socket.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from waystation.client.backoff import Backoff
from waystation.client.bootstrap import Address
from waystation.client.connection import Connection, Question
from waystation.client.transport import Connect
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import BrokerImage
from waystation.model.errors import PeerUnreachableError, WaystationError
from waystation.model.ids import NodeId
from waystation.runtime.chance import Chance
from waystation.wire.message import Message

R = TypeVar("R", bound=Message)
A = TypeVar("A")

QUESTIONS = "questions"
"""The purpose of what is answered soon."""

TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 3.0
_RETRY_MS, _RETRY_MAX_MS = 20, 1_000
_SEEDS = 1 << 32


class _Link:
    """One connection to one life of a peer, for one purpose; opened again when it was lost."""

    def __init__(self, peer: BrokerImage, client_id: str, connect: Connect, wait: Backoff) -> None:
        self.peer = peer
        self._address = Address(peer.host, peer.port)
        self._client_id = client_id
        self._connect = connect
        self._wait = wait
        self._failures = 0
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._closed = False

    @property
    def open(self) -> Connection | None:
        """The connection, if there is one now."""
        found = self._connection
        return None if found is None or found.closed else found

    async def reach(self) -> Connection:
        """The connection; those who come while it is made wait together."""
        if (found := self.open) is not None:
            return found
        if self._closed:
            raise PeerUnreachableError(self.peer.id, "this broker does not talk to it any more")
        if self._opening is None:
            name = f"peer-{self.peer.id}-connect"
            self._opening = asyncio.get_running_loop().create_task(self._make(), name=name)
            self._opening.add_done_callback(self._made)
        return await asyncio.shield(self._opening)

    def lost(self) -> None:
        """An answer did not come: the next try waits a little."""
        self._failures = max(self._failures, 1)

    def close(self) -> None:
        """End it; whoever waits is told."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _make(self) -> Connection:
        if self._failures:
            await asyncio.sleep(self._wait.delay_s(self._failures))
        self._failures += 1
        made = await Connection.open(
            self._address, self._connect, self._client_id, _CONNECT_TIMEOUT_S
        )
        self._connection = made
        return made

    def _made(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # seen, even if whoever asked has given up meanwhile

    def answered(self) -> None:
        """The peer is well: should the connection be lost, the next try is made at once."""
        self._failures = 0


class Peers:
    """What this broker asks of others."""

    def __init__(
        self, node: NodeId, image: Callable[[], ClusterImage], connect: Connect, chance: Chance
    ) -> None:
        """``image`` is the cluster as this broker acts on it: it says where peers are."""
        self._image = image
        self._connect = connect
        self._client_id = f"waystation-broker-{node}"
        self._wait = Backoff(_RETRY_MS, _RETRY_MAX_MS, Random(chance.below(_SEEDS)))
        self._links: dict[tuple[NodeId, str], _Link] = {}
        self._closed = False

    async def ask(
        self,
        node: NodeId,
        request: Message,
        expect: type[R],
        *,
        version: int | None = None,
        timeout_s: float = TIMEOUT_S,
        purpose: str = QUESTIONS,
    ) -> R:
        """Ask a broker, in the best version that both speak unless told; ``timeout_s`` is for all.

        Sent before this first waits if there is a connection, so that calls keep their order.
        """
        link = self._link(node, purpose)
        if (connection := link.open) is not None:
            return await self._answer(link, connection, request, expect, version, timeout_s)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        connection = await self._reached(link, timeout_s)
        left_s = max(until_s - loop.time(), 0.0)
        return await self._answer(link, connection, request, expect, version, left_s)

    def pose(
        self,
        node: NodeId,
        question: Question,
        read: Callable[[memoryview, int], A],
        told: Callable[[A | PeerUnreachableError], None],
        *,
        timeout_s: float = TIMEOUT_S,
        purpose: str = QUESTIONS,
    ) -> bool:
        """Ask without waiting, where there is a connection; false, and nothing is sent, if not.

        ``told`` and ``read`` are called as ``Connection.pose`` says, never before this returns.
        """
        link = self._link(node, purpose)
        connection = link.open
        if connection is None:
            return False

        def heard(answer: A | WaystationError) -> None:
            if isinstance(answer, WaystationError):
                if connection.closed:
                    link.lost()
                told(PeerUnreachableError(node, str(answer)))
            else:
                link.answered()
                told(answer)

        connection.pose(question, read, heard, timeout_s)
        return True

    async def reach(self, node: NodeId, *, purpose: str = QUESTIONS) -> None:
        """Return once there is a connection."""
        await self._reached(self._link(node, purpose), TIMEOUT_S)

    def follow(self, image: ClusterImage) -> None:
        """Let go of peers that left or began a new life; whoever waits for them is told."""
        for (node, purpose), link in list(self._links.items()):
            if not _same(image.brokers.get(node), link.peer):
                del self._links[node, purpose]
                link.close()

    @property
    def closed(self) -> bool:
        """Whether nobody is asked any more."""
        return self._closed

    def close(self) -> None:
        """Ask nobody any more; whoever waits is told."""
        self._closed = True
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    async def _reached(self, link: _Link, timeout_s: float) -> Connection:
        node = link.peer.id
        try:
            async with asyncio.timeout(timeout_s):
                return await link.reach()
        except TimeoutError:
            raise PeerUnreachableError(node, f"no connection in {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if _cancelled():
                raise
            raise PeerUnreachableError(node, "it left or began a new life") from None
        except (OSError, WaystationError) as error:
            raise PeerUnreachableError(node, str(error)) from error

    async def _answer(
        self,
        link: _Link,
        connection: Connection,
        request: Message,
        expect: type[R],
        version: int | None,
        timeout_s: float,
    ) -> R:
        try:
            answer = await connection.start(request, expect, timeout_s, version)
        except WaystationError as error:
            if connection.closed:
                link.lost()
            raise PeerUnreachableError(link.peer.id, str(error)) from error
        link.answered()
        return answer

    def _link(self, node: NodeId, purpose: str) -> _Link:
        if self._closed:
            raise PeerUnreachableError(node, "this broker is stopping")
        peer = self._image().brokers.get(node)
        if peer is None:
            raise PeerUnreachableError(node, "it is not registered")
        link = self._links.get((node, purpose))
        if link is not None and _same(peer, link.peer):
            return link
        if link is not None:
            link.close()
        link = self._links[node, purpose] = _Link(peer, self._client_id, self._connect, self._wait)
        return link


def _same(peer: BrokerImage | None, before: BrokerImage) -> bool:
    """Whether it is the same life of the broker, at the same place."""
    return peer is before or (
        peer is not None
        and (peer.epoch, peer.host, peer.port) == (before.epoch, before.host, before.port)
    )


def _cancelled() -> bool:
    """Whether it is the caller that is cancelled, and not what it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
