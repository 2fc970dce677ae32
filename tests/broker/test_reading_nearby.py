"""Readers that name their rack read from a replica there (KIP-392)."""

import asyncio
import time
from pathlib import Path

import confluent_kafka

from waystation.client.admin import Admin
from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.producer import Producer
from waystation.client.transport import connect_tcp
from waystation.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import TopicId
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"
RACKS = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}, 3: {"broker.rack": "c"}}


async def fetched(
    cluster: LocalCluster, node: int, rack: str, offset: int = 0, wait_ms: int = 0
) -> PartitionData:
    topic_id = cluster.image.topics[TOPIC].id
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="", topic_id=TopicId(topic_id), partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id=rack,
    )
    address = Address(*cluster.nodes[node].address)
    connection = await Connection.open(address, connect_tcp, "a reader", 5)
    try:
        answer = await connection.ask(request, FetchResponse, 10, 17)
    finally:
        connection.close()
    return answer.responses[0].partitions[0]


async def test_a_reader_is_sent_to_its_rack_and_reads_there(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3, options_of=RACKS) as cluster:
        await cluster.until(lambda: len(cluster.image.brokers) == 3)
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={0: [1, 2, 3]})
        async with Producer(cluster.bootstrap, acks="all") as producer:
            await producer.send(TOPIC, "one")
        far = await fetched(cluster, 1, "b")

        assert far.preferred_read_replica == 2
        assert not far.records
        at_home = await fetched(cluster, 1, "a")
        assert at_home.preferred_read_replica == -1
        assert at_home.records
        assert (await fetched(cluster, 1, "nowhere")).records
        near = await fetched(cluster, 2, "b", wait_ms=2_000)
        assert near.records == at_home.records
        assert near.high_watermark == 1
        assert (await fetched(cluster, 2, "")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        beyond = await fetched(cluster, 2, "b", offset=7)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_librdkafka_reads_from_its_rack(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3, options_of=RACKS) as cluster:
        await cluster.until(lambda: len(cluster.image.brokers) == 3)
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={0: [1, 2, 3]})
        async with Producer(cluster.bootstrap, acks="all") as producer:
            await producer.send(TOPIC, "first")
            reading = asyncio.create_task(asyncio.to_thread(_read, cluster.bootstrap, 20))
            for n in range(19):
                await asyncio.sleep(0.02)
                await producer.send(TOPIC, f"value {n}")
        read = await reading

        assert read == [b"first", *(b"value %d" % n for n in range(19))]
        by_node = {n: _fetched_records(cluster, n) for n in cluster.nodes}
        assert by_node[3] == 20, f"read from {by_node}"


def _fetched_records(cluster: LocalCluster, node: int) -> float:
    return cluster.nodes[node].broker.replicas.get(TOPIC, 0).meter.fetched_records.value


def _read(bootstrap: str, count: int) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nearby",
            "client.rack": "c",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: list[bytes | None] = []
    ends_at = time.monotonic() + 20
    while len(found) < count and time.monotonic() < ends_at:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found
