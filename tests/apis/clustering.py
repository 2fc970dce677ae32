"""Three nodes on the loop of one thread, and connections to each of them."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.apis.asking import Asking
from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.values import PartitionValue, encode
from waystation.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from waystation.node.node import Node
from waystation.testing.cluster import LocalCluster

T = TypeVar("T")

_WITHIN_S = 30.0


class ThreadedCluster:
    """A ``LocalCluster`` for tests that wait with sockets of their own; use it as a context."""

    def __init__(
        self,
        folder: Path,
        size: int = 3,
        *,
        options: Mapping[str, str] | None = None,
        options_of: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self._cluster = LocalCluster, (folder, size), {"options": options, "options_of": options_of}
        self._ready: Future[LocalCluster] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.local = self._ready.result(_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), "the cluster does not stop"

    @property
    def bootstrap(self) -> str:
        """Where the nodes listen."""
        return self.local.bootstrap

    @property
    def image(self) -> ClusterImage:
        """The newest that any node has acted on."""
        return self.local.image

    def node(self, number: int) -> Node:
        """One that runs."""
        return self.local.nodes[number]

    def client(self, number: int = 1) -> Asking:
        """A new connection to one of them."""
        return Asking(*self.node(number).address)

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        """A partition's state, by the newest image."""
        found = self.local.partition(topic, number)
        assert found is not None, f"there is no {topic}-{number}"
        return found

    def create(self, topic: str, *replicas: list[int], **configs: str) -> None:
        """Make a topic with one partition on each of ``replicas``, known to all nodes."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=nodes)
                for number, nodes in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        with self.client(min(self.local.nodes)) as client:
            (outcome,) = client.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
            assert outcome.error_code == 0, outcome
        self.settle()

    def rewrite(self, topic: str, number: int = 0, **fields: object) -> None:
        """Set a partition's state, as its leader or an election might have; known to all."""
        state = self.partition(topic, number)
        told = {
            name: getattr(state, name)
            for name in PartitionValue.__struct_fields__
            if name not in ("leader_epoch", "partition_epoch")
        }
        epochs = {
            "leader_epoch": state.leader_epoch + ("leader" in fields),
            "partition_epoch": state.partition_epoch + 1,
        }
        value = encode(PartitionValue(**{**told, **epochs, **fields}))
        key = keys.partition(self.image.topic(topic).id, number)
        self.put(key, value)

    def put(self, key: str, value: bytes) -> None:
        """Write straight into the store, and wait until all nodes have seen it."""
        revision = self.wait_for(self._put(key, value))
        self.until(
            lambda: all(
                node.broker.image.revision >= revision for node in self.local.nodes.values()
            )
        )

    async def _put(self, key: str, value: bytes) -> int:
        return (await self.local.store.txn({}, {key: value}, [])).revision

    def settle(self) -> None:
        """Wait until every node has seen what any of them has."""
        newest = self.image.revision
        self.until(
            lambda: all(node.broker.image.revision >= newest for node in self.local.nodes.values())
        )

    def kill(self, number: int) -> None:
        """End a node as kill -9 would, and wait until nobody counts on it."""
        self.wait_for(self.local.kill(number))
        self.until(
            lambda: all(
                number not in node.broker.image.brokers for node in self.local.nodes.values()
            )
        )

    def start(self, number: int) -> None:
        """Let a node live again, known to all."""
        self.wait_for(self.local.start(number))
        self.until(
            lambda: all(number in node.broker.image.brokers for node in self.local.nodes.values())
        )

    def cut(self, source: int, target: int) -> None:
        """Let one node not reach another any more."""

        async def there() -> None:
            self.local.cut(source, target)

        self.wait_for(there())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives on the nodes' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WITHIN_S)

    def until(self, true: Callable[[], object]) -> None:
        """Wait until something is so, as the nodes' loop sees it."""
        self.wait_for(self.local.until(true))

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        make, given, named = self._cluster
        try:
            async with make(*given, **named) as local:
                self._ready.set_result(local)
                await self._stopping.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
