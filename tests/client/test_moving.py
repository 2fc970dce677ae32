"""Leaders and coordinators that move: clients go after them, and wait no longer than they must."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.client.router import Router
from waystation.cluster import keys
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import LeaderEpoch, NodeId, PartitionEpoch
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"
# Whoever backs off is not back in time.
PATIENT = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
RACKS = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}, 3: {"broker.rack": "c"}}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3, options_of=RACKS) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={0: [1, 2, 3]})
        await cluster.until(lambda: len(cluster.partition(TOPIC).in_sync) == 3)  # type: ignore[union-attr]
        held = [one.broker.replicas for one in cluster.nodes.values()]
        await cluster.until(lambda: all(some.find(TOPIC, 0) for some in held))
        yield cluster


def fetched(cluster: LocalCluster, node: int) -> float:
    return cluster.nodes[node].broker.replicas.get(TOPIC, 0).meter.fetched_records.value


async def test_a_refusal_that_names_the_leader_needs_no_metadata(cluster: LocalCluster) -> None:
    async with (
        Producer(cluster.bootstrap, acks="all", **PATIENT) as producer,
        Consumer(bootstrap=cluster.bootstrap, start="earliest", **PATIENT) as consumer,
    ):
        await producer.send(TOPIC, "one")
        await consumer.assign([(TOPIC, 0)])
        assert [one.value for one in await consumer.poll(5_000)] == [b"one"]
        with patch.object(Router, "_load", side_effect=AssertionError("metadata was asked for")):
            await moved(cluster, 2)
            async with asyncio.timeout(20):
                await producer.send(TOPIC, "two")
                found = [one.value for one in await consumer.poll(15_000)]

    assert found == [b"two"]
    assert fetched(cluster, 2) >= 1


async def moved(cluster: LocalCluster, to: int) -> None:
    """By the store alone: no client of ours may ask for metadata meanwhile."""
    topic = cluster.image.topics[TOPIC]
    state = topic.partitions[0]
    value = PartitionValue(
        NodeId(to),
        LeaderEpoch(state.leader_epoch + 1),
        state.in_sync,
        (),
        PartitionEpoch(state.partition_epoch + 1),
    )
    await cluster.store.txn({}, {keys.partition(topic.id, 0): encode(value)})
    await cluster.until(
        lambda: all(
            one.broker.image.topics[TOPIC].partitions[0].leader == to
            for one in cluster.nodes.values()
        )
    )


async def test_a_consumer_reads_in_its_rack_and_elsewhere_when_nobody_is_there(
    cluster: LocalCluster,
) -> None:
    async with (
        Producer(cluster.bootstrap, acks="all") as producer,
        Consumer(bootstrap=cluster.bootstrap, start="earliest", client_rack="c") as consumer,
    ):
        await consumer.assign([(TOPIC, 0)])
        for value in (b"one", b"two", b"three"):
            await producer.send(TOPIC, value)
            assert [one.value for one in await consumer.poll(5_000)] == [value]
        assert fetched(cluster, 3) == 3, "read from its rack"
        await cluster.kill(3)
        await producer.send(TOPIC, "four")

        async with asyncio.timeout(20):
            assert [one.value for one in await consumer.poll(15_000)] == [b"four"]


async def test_groups_are_described_after_their_coordinator_died(cluster: LocalCluster) -> None:
    bootstrap = cluster.bootstrap
    async with Producer(bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "one")
    async with Consumer("billing", [TOPIC], bootstrap=bootstrap) as consumer:
        assert await consumer.poll(10_000)
        await consumer.commit()
    async with Admin(bootstrap, metadata_timeout_ms=300) as admin:
        found = (await admin.describe_groups("billing"))["billing"]
        await cluster.until(
            lambda: all(
                len(one.in_sync) == 3
                for one in cluster.image.topics["__consumer_offsets"].partitions
            )
        )
        port = found.coordinator.port
        dead = next(n for n, one in cluster.nodes.items() if one.address.port == port)
        await cluster.kill(dead)
        again = (await admin.describe_groups("billing"))["billing"]

        assert again.coordinator != found.coordinator
        assert [one.group_id for one in await admin.list_groups()] == ["billing"]
