"""A single node on the SQLite store: founded once, and itself again after every restart."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from uuid import uuid4

import pytest

from waystation.cluster import changes as cluster_changes
from waystation.cluster import keys
from waystation.cluster.changes import Changes, in_batches
from waystation.cluster.elections import elect
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import claim_controller, found_cluster, register
from waystation.cluster.topics import (
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    create_topics,
    delete_topic,
    sweep,
)
from waystation.coordination import store as port
from waystation.coordination.address import StoreAddress
from waystation.coordination.connect import store_at
from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import CoordinationStore, Lease, Watch, check_key
from waystation.model.ids import NodeId, TopicId, uuid_text
from waystation.runtime.clock import SystemClock

ONE = NodeId(1)


class Node:
    """The smallest broker there is: an image kept by watching, and decisions committed."""

    image: ClusterImage
    watch: Watch
    lease: Lease

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store

    async def start(self) -> None:
        snapshot = await self.store.get("")
        self.image = ClusterImage.from_items(snapshot.items, snapshot.revision)
        self.watch = self.store.watch("", snapshot.revision)
        self.lease = await self.store.lease(60_000)
        if self.image.cluster_id is None:
            await self.commit([found_cluster(uuid_text(uuid4()))])
        self.epoch, registering = register(self.image, ONE, "localhost", 9092)
        await self.commit([registering])
        await self.commit([claim_controller(self.image, ONE)])
        await self.commit([sweep(self.image)])
        await self.commit(elect(self.image, [ONE], ended=[ONE]))

    async def commit(self, decisions: Iterable[Changes]) -> None:
        for txn in in_batches(decisions):
            leases = dict.fromkeys(txn.leased, self.lease.id)
            result = await self.store.txn(txn.compares, txn.puts, txn.deletes, leases=leases)
            assert result.succeeded
            while self.image.revision < result.revision:
                self.image = self.image.apply(await anext(self.watch))

    async def create(self, *specs: TopicSpec) -> None:
        def new_id() -> TopicId:
            return TopicId(uuid4())

        outcomes = create_topics(self.image, specs, TopicDefaults(), new_id)
        await self.commit(o.changes for o in outcomes.values() if isinstance(o, TopicPlan))


async def test_a_node_is_itself_again_after_a_restart(tmp_path: Path) -> None:
    seen = []
    for life in range(3):
        async with SqliteStore(tmp_path / "coordination.db") as store:
            node = Node(store)
            await node.start()
            if life == 0:
                await node.create(TopicSpec("orders", 3), TopicSpec("big", 250))
            assert node.image.controller
            seen.append((node.image.cluster_id, node.epoch, node.image.controller.epoch))
            states = [p for t in node.image.topics.values() for p in t.partitions]

            assert len(states) == 253
            assert {(state.leader, state.leader_epoch) for state in states} == {(ONE, life)}

    assert len({cluster_id for cluster_id, _, _ in seen}) == 1
    assert [epoch for _, epoch, _ in seen] == [0, 1, 2]
    assert [epoch for _, _, epoch in seen] == [0, 1, 2]


@pytest.fixture(params=["sqlite", "etcd", "zookeeper"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CoordinationStore]:
    """Each of the stores, empty."""
    address = StoreAddress("sqlite")
    if request.param != "sqlite":
        endpoints = request.getfixturevalue(request.param).endpoints
        address = StoreAddress(request.param, endpoints, folder=f"start-up-{uuid4()}")
    store = store_at(address, tmp_path / "coordination.db", SystemClock())
    await store.open()
    yield store
    await store.close()


async def test_a_watched_image_is_the_image_of_the_store(store: CoordinationStore) -> None:
    node = Node(store)
    await node.start()
    for round_ in range(5):
        await node.create(*(TopicSpec(f"t{n}", n % 3 + 1) for n in range(20 * round_)))
        await node.commit(delete_topic(t) for t in list(node.image.topics.values())[::3])

    snapshot = await store.get("")

    assert node.image == ClusterImage.from_items(snapshot.items, snapshot.revision)
    await node.lease.revoke()


async def test_a_broker_whose_lease_ends_is_gone_from_the_image(store: CoordinationStore) -> None:
    node = Node(store)
    await node.start()
    await node.lease.revoke()
    node.image = node.image.apply(await anext(node.watch))

    assert node.image.brokers == {}
    assert node.image.controller is None
    assert node.image.counter(keys.BROKER_EPOCHS).next == 1


def test_decisions_keep_the_limits_of_the_store() -> None:
    assert cluster_changes.OPERATIONS_MAX <= port.OPERATIONS_MAX
    assert cluster_changes.BYTES_MAX <= port.BYTES_MAX
    assert cluster_changes.ABSENT == port.ABSENT


def test_every_key_is_one_that_every_store_can_hold() -> None:
    longest = "x" * 249
    for key in (
        keys.CLUSTER,
        keys.CONTROLLER,
        keys.PRODUCER_IDS,
        keys.BROKER_EPOCHS,
        keys.CONTROLLER_EPOCHS,
        keys.broker(ONE),
        keys.topic(longest),
        keys.topic("__consumer_offsets"),
        keys.topic("a.b-c_d"),
        keys.partition(TopicId(uuid4()), 9_999),
        keys.topic_config(longest),
        keys.broker_config(keys.EVERY_BROKER),
    ):
        check_key(key)
