"""What the design documents draw of several brokers, drawn again by a cluster that runs."""

import asyncio
from pathlib import Path

import pytest

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.model.errors import WaystationError
from waystation.testing.cluster import LocalCluster

BROKERS = [1, 2, 3]
LAG_MAX_MS = "600"


def log_ends(cluster: LocalCluster) -> dict[int, int]:
    """Where each broker's replica of ``orders-0`` ends."""
    held = {
        number: node.broker.replicas.find("orders", 0) for number, node in cluster.nodes.items()
    }
    return {number: one.log.log_end for number, one in held.items() if one is not None}


def in_sync(cluster: LocalCluster) -> list[int]:
    """The in-sync set of ``orders-0``."""
    state = cluster.partition("orders")
    assert state is not None
    return sorted(state.in_sync)


async def test_orders_has_three_partitions_on_three_brokers(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3) as cluster, Admin(cluster.bootstrap) as admin:
        await admin.create_topic("orders", 3, replication_factor=3)
        drawn = (await admin.describe_topic("orders")).partitions

        assert [one.partition for one in drawn] == [0, 1, 2]
        assert sorted(one.leader for one in drawn) == BROKERS, "each broker leads one"
        assert all(sorted(one.replicas) == BROKERS for one in drawn)
        assert all(sorted(one.in_sync) == BROKERS for one in drawn)
        assert [one.leader for one in drawn] == [one.replicas[0] for one in drawn]

        async with Producer(cluster.bootstrap, acks="all") as producer:
            for number in range(3):
                sent = await producer.send("orders", f"to {number}", partition=number)
                assert (sent.partition, sent.offset) == (number, 0)
        for number in range(3):
            copies = [one.broker.replicas.get("orders", number) for one in cluster.nodes.values()]
            await cluster.until(lambda copies=copies: all(one.log.log_end == 1 for one in copies))
            assert sum(one.leading for one in copies) == 1


async def test_a_replica_that_lags_leaves_the_in_sync_set_and_returns(tmp_path: Path) -> None:
    """The leader and a follower hold 0-100, the lagging one 0-98: it is not in sync."""
    options = {"replica.lag.time.max.ms": LAG_MAX_MS}
    async with (
        LocalCluster(tmp_path, 3, options=options) as cluster,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap, acks="all") as producer,
    ):
        await admin.create_topic("orders", 1, replication_factor=3)
        for number in range(99):
            producer.submit("orders", f"order {number}")
        await producer.flush()
        await cluster.until(lambda: set(log_ends(cluster).values()) == {99})
        leader = cluster.leader("orders")
        assert leader is not None
        follower, lagging = (one for one in BROKERS if one != leader)
        cluster.cut(lagging, leader)
        for number in (99, 100):
            producer.submit("orders", f"order {number}")
        await producer.flush()

        assert in_sync(cluster) == sorted([leader, follower])
        assert log_ends(cluster) == {leader: 101, follower: 101, lagging: 99}
        assert cluster.leader("orders") == leader

        cluster.mend()
        await cluster.until(lambda: in_sync(cluster) == BROKERS)

        assert log_ends(cluster) == dict.fromkeys(BROKERS, 101)
        async with Consumer(
            None, ["orders"], bootstrap=cluster.bootstrap, start="earliest"
        ) as consumer:
            read = [one async for one in _taken(consumer, 101)]
        assert [one.offset for one in read] == list(range(101))


async def test_the_leader_wants_the_least_number_in_sync(tmp_path: Path) -> None:
    options = {"replica.lag.time.max.ms": LAG_MAX_MS}
    async with (
        LocalCluster(tmp_path, 3, options=options) as cluster,
        Admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic(
            "orders", 1, replication_factor=3, configs={"min.insync.replicas": "3"}
        )
        leader = cluster.leader("orders")
        lagging = next(one for one in BROKERS if one != leader)
        async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=1_500) as producer:
            await producer.send("orders", "with three")
            await cluster.kill(lagging)
            await cluster.until(lambda: len(in_sync(cluster)) == 2)

            with pytest.raises(WaystationError, match="2 in-sync replicas, acks=all needs 3"):
                await producer.send("orders", "with two")
        async with Producer(cluster.bootstrap, acks=1) as producer:
            await producer.send("orders", "the leader alone")


async def _taken(consumer: Consumer, many: int):  # type: ignore[no-untyped-def]
    taken = 0
    async with asyncio.timeout(10):
        while taken < many:
            for message in await consumer.poll(500):
                taken += 1
                yield message
