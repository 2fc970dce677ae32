"""What every cluster does, whatever store it agrees through: the same tests on etcd and ZooKeeper.

Three nodes in one loop, on a real server; chaos on processes is in ``tests/chaos``.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cluster import STORES, Store
from tests.support.etcd import EtcdCluster
from tests.support.zookeeper import ZookeeperEnsemble
from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.coordination.address import StoreAddress
from waystation.coordination.connect import store_at
from waystation.runtime.clock import SystemClock
from waystation.testing.cluster import LocalCluster

pytestmark = pytest.mark.timeout(120)

BROKERS = [1, 2, 3]
SOON_S = 20.0
OPTIONS = {
    "broker.session.timeout.ms": "1500",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "1500",
}


class Server(NamedTuple):
    """A real store, which all tests of one kind share; each has a folder of its own."""

    kind: Store
    members: EtcdCluster | ZookeeperEnsemble


@pytest.fixture(scope="module", params=STORES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    kind: Store = request.param
    folder = tmp_path_factory.mktemp(kind)
    with (EtcdCluster if kind == "etcd" else ZookeeperEnsemble)(folder) as members:
        yield Server(kind, members)


@pytest.fixture
async def cluster(server: Server, tmp_path: Path) -> AsyncIterator[LocalCluster]:
    address = StoreAddress(
        server.kind, server.members.endpoints, tmp_path.name.replace("[", "-").replace("]", "")
    )
    async with AsyncExitStack() as stack:
        store = store_at(address, tmp_path, SystemClock())
        await store.open()
        stack.push_async_callback(store.close)
        yield await stack.enter_async_context(
            LocalCluster(tmp_path, 3, options=OPTIONS, store=store)
        )


async def create(cluster: LocalCluster, topic: str, partitions: int = 1) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions)
    await cluster.until(lambda: in_sync(cluster, topic) == BROKERS)


def in_sync(cluster: LocalCluster, topic: str, partition: int = 0) -> list[int]:
    state = cluster.partition(topic, partition)
    return sorted(state.in_sync) if state is not None else []


def led(cluster: LocalCluster, topic: str, *, not_by: int | None) -> bool:
    leader = cluster.leader(topic)
    return leader is not None and leader != not_by


async def values(cluster: LocalCluster, topic: str, many: int) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(
        None, [topic], bootstrap=cluster.bootstrap, start="earliest", isolation="read_committed"
    ) as consumer:
        async with asyncio.timeout(SOON_S):
            while len(found) < many:
                found += [one.value or b"" for one in await consumer.poll(500)]
    return found


async def test_every_replica_holds_the_same_bytes(cluster: LocalCluster) -> None:
    await create(cluster, "orders")
    async with Producer(cluster.bootstrap) as producer:
        for number in range(50):
            await producer.send("orders", f"{number}")
    logs = [one.broker.replicas.get("orders", 0).log for one in cluster.nodes.values()]
    await cluster.until(lambda: all(one.log_end == 50 for one in logs))
    files = [(log.path / f"{0:020}.log").read_bytes() for log in logs]

    assert files[0] == files[1] == files[2]


async def test_a_killed_leader_is_succeeded_and_returns_in_sync(cluster: LocalCluster) -> None:
    await create(cluster, "orders")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send("orders", "before")
        leader = cluster.leader("orders")
        assert leader is not None
        epoch = cluster.partition("orders").leader_epoch  # type: ignore[union-attr]
        await cluster.kill(leader)
        await producer.send("orders", "after")

        assert led(cluster, "orders", not_by=leader)
        assert cluster.partition("orders").leader_epoch > epoch  # type: ignore[union-attr]

        await cluster.start(leader)
        await cluster.until(lambda: in_sync(cluster, "orders") == BROKERS, SOON_S)
        await producer.send("orders", "again")
    assert await values(cluster, "orders", 3) == [b"before", b"after", b"again"]


async def test_a_killed_controller_is_succeeded(cluster: LocalCluster) -> None:
    await create(cluster, "orders")
    before = cluster.image.controller
    assert before is not None
    await cluster.kill(before.node)
    await cluster.until(
        lambda: (now := cluster.image.controller) is not None and now.epoch > before.epoch, SOON_S
    )

    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("payments", 2, replication_factor=2)
        described = await admin.describe_topic("payments")
    assert all(before.node not in one.replicas for one in described.partitions)


async def test_a_clean_stop_moves_leaders_before_it_ends(cluster: LocalCluster) -> None:
    await create(cluster, "orders", 6)
    leaving = cluster.leader("orders")
    assert leaving is not None
    async with Producer(cluster.bootstrap) as producer:
        for number in range(6):
            await producer.send("orders", "before", partition=number)
        await cluster.stop(leaving)

        states = [cluster.partition("orders", number) for number in range(6)]
        assert all(one is not None and one.leader not in (None, leaving) for one in states)
        for number in range(6):
            await producer.send("orders", "after", partition=number)
        await cluster.start(leaving)
        await cluster.until(lambda: in_sync(cluster, "orders") == BROKERS, SOON_S)


async def test_a_leader_without_the_store_is_fenced_and_takes_up_its_new_place(
    cluster: LocalCluster,
) -> None:
    await create(cluster, "orders")
    leader = cluster.leader("orders")
    assert leader is not None
    # The old leader does not know, and never gets the copies that it waits for.
    async with Producer(cluster.bootstrap, request_timeout_ms=1_500) as producer:
        await producer.send("orders", "before")
        cluster.cut_off_from_store(leader)
        await cluster.until(lambda: led(cluster, "orders", not_by=leader), SOON_S)
        await producer.send("orders", "after")
        cluster.reconnect_to_store(leader)
        await cluster.until(lambda: in_sync(cluster, "orders") == BROKERS, SOON_S)
        await producer.send("orders", "again")
    assert await values(cluster, "orders", 3) == [b"before", b"after", b"again"]


async def test_the_store_may_be_away_for_a_while(cluster: LocalCluster, server: Server) -> None:
    await create(cluster, "orders")
    leader = cluster.leader("orders")
    epochs = {
        number: node.broker.image.brokers[number].epoch for number, node in cluster.nodes.items()
    }
    async with Producer(cluster.bootstrap) as producer:
        server.members[0].kill()
        try:
            await producer.send("orders", "without a store")
        finally:
            server.members[0].start()
            await asyncio.to_thread(server.members.wait)
        await producer.send("orders", "with a store")
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("payments", 1)
    assert cluster.leader("orders") == leader
    assert {one: cluster.image.brokers[one].epoch for one in cluster.image.brokers} == epochs


async def test_a_group_goes_on_when_its_coordinator_dies(cluster: LocalCluster) -> None:
    await create(cluster, "orders")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send("orders", "one")
        async with Consumer(
            "readers", ["orders"], bootstrap=cluster.bootstrap, start="earliest"
        ) as consumer:
            assert [one.value for one in await polled(consumer)] == [b"one"]
            await consumer.commit()
            coordinator = next(
                number
                for number, node in cluster.nodes.items()
                if any(one.leading for one in node.broker.replicas.of_topic("__consumer_offsets"))
            )
            await cluster.kill(coordinator)
            await producer.send("orders", "two")

            assert [one.value for one in await polled(consumer)] == [b"two"]
            await consumer.commit()
        async with Consumer("readers", ["orders"], bootstrap=cluster.bootstrap) as next_one:
            await producer.send("orders", "three")
            assert [one.value for one in await polled(next_one)] == [b"three"]


async def test_a_transaction_survives_its_coordinator(cluster: LocalCluster) -> None:
    await create(cluster, "orders", 2)
    async with Producer(cluster.bootstrap, transactional_id="till") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("orders", "one", partition=0)
        victim = next(
            number
            for number, node in cluster.nodes.items()
            if any(one.leading for one in node.broker.replicas.of_topic("__transaction_state"))
        )
        async with producer.transaction() as transaction:
            await transaction.send("orders", "two", partition=0)
            await transaction.send("orders", "two", partition=1)
            await cluster.kill(victim)
    assert sorted(await values(cluster, "orders", 3)) == [b"one", b"two", b"two"]


async def test_a_partition_moves_to_other_brokers_with_its_records(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic("orders", assignments={0: [1, 2]})
        await producer.send("orders", "before")
        outcomes = await admin.alter_reassignments({("orders", 0): [3, 2]})
        assert set(outcomes.values()) == {None}
        await cluster.until(
            lambda: (
                (now := cluster.partition("orders")) is not None
                and sorted(now.replicas) == [2, 3]
                and sorted(now.in_sync) == [2, 3]
            ),
            SOON_S,
        )
        await producer.send("orders", "after")

        assert cluster.nodes[1].broker.replicas.find("orders", 0) is None
        assert not await admin.list_reassignments()
    assert await values(cluster, "orders", 2) == [b"before", b"after"]


async def polled(consumer: Consumer) -> list:  # type: ignore[type-arg]
    async with asyncio.timeout(SOON_S):
        while not (found := await consumer.poll(500)):
            pass
    return found
