"""Several nodes in one event loop, on one store, to be killed, stopped and started again.

    async with LocalCluster(tmp_path, 3) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", 3, replication_factor=3)
        await cluster.kill(cluster.leader("orders", 0))
        await cluster.until(lambda: cluster.leader("orders", 0) is not None)

``kill`` is as near to kill -9 as one process allows: connections end without an answer, nothing is
synced, closed, given up or told to anybody, and what a task or thread of the node would still do
has no effect (``mortal.py``).  A node that is started again has its directory, its port and
another life.

Nodes in processes of their own are in ``tests/support/cluster.py``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from waystation.client.bootstrap import Address as ClientAddress
from waystation.client.transport import Connect, Transport
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import CoordinationStore
from waystation.node.node import Node
from waystation.node.settings import NodeSettings, load
from waystation.testing.mortal import Death, MortalDisk, MortalStore

__all__ = ["LocalCluster", "NotInTimeError"]

# Leases and waits that suit a test: a dead node is missed after a second.
_OPTIONS = {
    "broker.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "http": "none",
    "replicas.share.machine": "true",
}
_LOOK_EVERY_S = 0.01
_WITHIN_S = 15.0
_GONE_WITHIN_S = 5.0

_life: ContextVar["_Life | None"] = ContextVar("life", default=None)


class NotInTimeError(AssertionError):
    """What a test waited for did not come true."""


class LocalCluster:
    """Nodes 1 to ``size``; ``nodes`` has those that run, by their ids."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        options: Mapping[str, str] | None = None,
        options_of: Mapping[int, Mapping[str, str]] | None = None,
        store: CoordinationStore | None = None,
    ) -> None:
        """``options_of`` is for single nodes, over ``options`` for all; ``store`` is left open."""
        self.nodes: dict[int, Node] = {}
        self.ids = tuple(range(1, size + 1))
        self.folder = folder
        self._options = {**_OPTIONS, **(options or {})}
        self._options_of = dict(options_of or {})
        self._given_store = store
        self._own_store = SqliteStore(folder / "cluster.sqlite") if store is None else None
        self._addresses: dict[int, str] = {}
        self._lives: dict[int, _Life] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._transports: dict[tuple[int, int], list[Transport]] = {}

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._loop = asyncio.get_running_loop()
        self._factory = self._loop.get_task_factory()
        self._loop.set_task_factory(self._make_task)
        if self._own_store is not None:
            await self._own_store.open()
        try:
            await asyncio.gather(*map(self.start, self.ids))
            # A question at any of them is about everybody.
            await self.until(lambda: all(map(self._knows_all, self.nodes.values())))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all nodes as they are; a test that wants a clean end asks for it by ``stop``."""
        await asyncio.gather(*map(self.kill, list(self._lives)))
        if self._own_store is not None:
            await self._own_store.close()
        self._loop.set_task_factory(self._factory)

    @property
    def bootstrap(self) -> str:
        """Where the nodes listen, those included that do not run now."""
        return ",".join(self._addresses[one] for one in sorted(self._addresses))

    @property
    def store(self) -> CoordinationStore:
        """What the nodes agree through, without any node between."""
        store = self._given_store or self._own_store
        assert store is not None
        return store

    @property
    def image(self) -> ClusterImage:
        """The newest that any running node has acted on."""
        images = (node.broker.image for node in self.nodes.values())
        return max(images, key=lambda image: image.revision, default=ClusterImage())

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Who leads, by the newest image; nobody where there is no such partition."""
        state = self.partition(topic, partition)
        return state.leader if state is not None else None

    def partition(self, topic: str, partition: int = 0) -> PartitionImage | None:
        """A partition's state, by the newest image; none where there is no such partition."""
        found = self.image.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        return found.partitions[partition]

    # --- life and death -------------------------------------------------------------------------

    async def start(self, number: int) -> Node:
        """Begin a node's first or next life; returns when it serves.

        One that was killed comes back when its lease has ended.
        """
        assert number not in self._lives, f"node {number} runs already"
        while (await self.store.get(f"brokers/{number}")).items:
            await asyncio.sleep(_LOOK_EVERY_S)
        life = self._lives[number] = _Life(self._settings(number), self.store)
        life.node.connect = partial(self._connect, number, life.node.connect)  # type: ignore[method-assign]
        try:
            await life.run(life.node.start())
        except BaseException:
            await self.kill(number)
            raise
        self._addresses[number] = str(life.node.address)
        self.nodes[number] = life.node
        return life.node

    async def kill(self, number: int) -> None:
        """End a node without a chance to tidy up."""
        self.nodes.pop(number, None)
        await self._lives.pop(number).end()

    async def stop(self, number: int) -> None:
        """Shut a node down cleanly."""
        del self.nodes[number]
        life = self._lives.pop(number)
        try:
            await life.run(life.node.stop())
        finally:
            await life.end()

    async def restart(self, number: int) -> Node:
        """Stop a node cleanly, and start it again."""
        await self.stop(number)
        return await self.start(number)

    def cut_off_from_store(self, number: int) -> None:
        """Let a node go on without the store: it cannot ask, and hears of nothing."""
        self._lives[number].death.cut_off()

    def reconnect_to_store(self, number: int) -> None:
        """Let the node reach the store again."""
        self._lives[number].death.reconnect()

    def cut(self, source: int, target: int) -> None:
        """Let ``source`` not reach ``target`` any more; the other way is another matter."""
        self._cuts.add((source, target))
        for transport in self._transports.pop((source, target), ()):
            transport.close()

    def mend(self) -> None:
        """Let all nodes reach each other, and the store."""
        self._cuts.clear()
        for number in self._lives:
            self.reconnect_to_store(number)

    async def until(
        self, predicate: Callable[[], object], within_s: float = _WITHIN_S, what: str = ""
    ) -> float:
        """Wait for ``predicate``; how long it took, or ``NotInTimeError``."""
        began = monotonic()
        while not predicate():
            if monotonic() - began > within_s:
                raise NotInTimeError(f"not within {within_s} s: {what or predicate}; {self}")
            await asyncio.sleep(_LOOK_EVERY_S)
        return monotonic() - began

    def __str__(self) -> str:
        return "; ".join(self._told())

    # --- behind the scenes ----------------------------------------------------------------------

    async def _connect(self, source: int, connect: Connect, address: ClientAddress) -> Transport:
        """How a node reaches others: not at all, where that was cut."""
        where = f"{address.host}:{address.port}"
        target = next((one for one, at in self._addresses.items() if at == where), 0)
        if (source, target) in self._cuts:
            raise ConnectionRefusedError(f"node {source} is cut off from {target}")
        transport = await connect(address)
        if (source, target) in self._cuts:
            transport.close()
            raise ConnectionRefusedError(f"node {source} was cut off from {target}")
        self._transports.setdefault((source, target), []).append(transport)
        return transport

    def _settings(self, number: int) -> NodeSettings:
        own = {
            "node.id": str(number),
            "broker.machine": f"machine-{number}",
            "listen": self._addresses.get(number, "127.0.0.1:0"),
            "log.dirs": str(self.folder / f"node-{number}"),
        }
        given = {**self._options, **own, **self._options_of.get(number, {})}
        return load([("the test", given)])

    def _knows_all(self, node: Node) -> bool:
        return {*self.ids} <= {*node.broker.image.brokers}

    def _told(self) -> Iterator[str]:
        """For a test that failed: who runs, and what they think of the partitions."""
        image = self.image
        yield f"nodes {sorted(self.nodes)} run, revision {image.revision}"
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                yield f"{topic.name}-{number}: {state}"

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
        make: Any = self._factory or _plain_task
        task = make(loop, coro, **more)
        context: Context | None = more.get("context")
        life = context.get(_life) if context is not None else _life.get()
        if life is not None:
            life.tasks.add(task)
        return task


class _Life:
    """A node from its start to its end, with every task that was made on its behalf."""

    def __init__(self, settings: NodeSettings, store: CoordinationStore) -> None:
        self.death = Death()
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._disk = MortalDisk(self.death)
        self.node = Node(settings, disk=self._disk, store=MortalStore(store, self.death))
        self._context = copy_context()
        self._context.run(_life.set, self)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something of the node's own, as it would in a process of its own."""
        await asyncio.get_running_loop().create_task(work, context=self._context)

    async def end(self) -> None:
        """Die, and wait until nothing of it is left."""
        self.death.come()
        self.node.abandon()
        self._disk.unlock()
        running = [one for one in self.tasks if one is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            _, left = await asyncio.wait(running, timeout=_GONE_WITHIN_S)
            assert not left, f"still running in a dead node: {left}"


def _plain_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **more: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **more)
