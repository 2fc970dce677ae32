"""Three brokers hold the same records, lose a leader, and lose nothing that was acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.node.node import Node
from waystation.partition.partition import Partition
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    options = {"replica.lag.time.max.ms": "1000"}
    async with LocalCluster(tmp_path, 3, options=options) as cluster:
        await cluster.until(lambda: all(len(n.broker.image.brokers) == 3 for n in nodes(cluster)))
        yield cluster


def nodes(cluster: LocalCluster) -> list[Node]:
    return list(cluster.nodes.values())


def replica(cluster: LocalCluster, node: int, number: int = 0) -> Partition:
    return cluster.nodes[node].broker.replicas.get(TOPIC, number)


def marks(cluster: LocalCluster, number: int = 0) -> set[int]:
    return {replica(cluster, node, number).high_watermark for node in cluster.nodes}


def stored(cluster: LocalCluster, node: int, number: int = 0) -> bytes:
    folder = cluster.folder / f"node-{node}" / f"{TOPIC}-{number}"
    return b"".join(one.read_bytes() for one in sorted(folder.glob("*.log")))


async def made(cluster: LocalCluster, partitions: int = 1, **configs: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions, replication_factor=3, configs=configs)
    await cluster.until(lambda: cluster.leader(TOPIC) is not None)


async def all_in_sync(cluster: LocalCluster) -> None:
    def full() -> bool:
        topic = cluster.image.topics[TOPIC]
        return all(len(one.in_sync) == 3 for one in topic.partitions)

    await cluster.until(full, what="everyone in sync")


async def read(cluster: LocalCluster, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(None, [TOPIC], bootstrap=cluster.bootstrap, start="earliest") as consumer:
        async with asyncio.timeout(15):
            while len(found) < count:
                found += [one.value for one in await consumer.poll(200)]
    return found


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_all_replicas_hold_the_same_bytes(cluster: LocalCluster, durability: str) -> None:
    await made(cluster, 2, **{"durability": durability, "min.insync.replicas": "2"})
    async with Producer(cluster.bootstrap, acks="all") as producer:
        sent = [producer.submit(TOPIC, f"value {n}", key=str(n)) for n in range(500)]
        await producer.flush()
        offsets = [(await one).offset for one in sent]

    assert len(offsets) == 500
    for number in range(2):
        ends = {replica(cluster, node, number).log_end for node in cluster.nodes}
        copies = {stored(cluster, node, number) for node in cluster.nodes}

        assert len(ends) == 1
        assert len(copies) == 1
        await cluster.until(lambda: marks(cluster, number) == ends)  # noqa: B023
    assert len(await read(cluster, 500)) == 500
