"""The in-process transport: clients inside a node, without a socket."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waystation import Admin, Consumer, Producer
from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError
from waystation.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from waystation.node.inprocess import InProcessTransport
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.wire.headers import decode_response_header, encode_request_header
from waystation.wire.message import Message
from waystation.wire.schema import Part


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    options = {"listen": "127.0.0.1:0", "http": "none", "log.dirs": str(tmp_path / "data")}
    running = Node(load([("test", options)]))
    try:
        await running.start()
        yield running
    finally:
        await running.stop()


async def open_transport(node: Node) -> InProcessTransport:
    transport = await node.connect(Address(*node.address))
    assert isinstance(transport, InProcessTransport)
    return transport


def frame(message: Message, version: int, correlation_id: int = 1) -> list[Part]:
    assert message.api is not None
    header = encode_request_header(message.api, version, correlation_id, "inside")
    return [header, *message.encode_parts(version)]


def waiting_fetch(topic: str) -> list[Part]:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[asked])]
    return frame(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=topics), 4)


async def test_what_a_producer_sends_a_consumer_reads_without_a_socket(node: Node) -> None:
    async with Admin(node.bootstrap, connect=node.connect) as admin:
        await admin.create_topic("letters", partitions=2)
    async with Producer(bootstrap=node.bootstrap, connect=node.connect) as producer:
        for number in range(100):
            producer.submit("letters", b"%d" % number, key=b"%d" % (number % 7))
    seen = []
    async with Consumer(
        topics="letters", bootstrap=node.bootstrap, connect=node.connect, start="earliest"
    ) as consumer:
        while len(seen) < 100:
            seen += await consumer.poll(timeout_ms=5_000)

    assert sorted(int(message.value) for message in seen) == list(range(100))
    accepted = {one.name: one for one in node.registry.snapshot()}
    assert accepted["waystation_connections_accepted_total"].samples[0].value == 0


async def test_other_addresses_are_reached_over_tcp(node: Node) -> None:
    elsewhere = Address("localhost", node.address.port)
    transport = await node.connect(elsewhere)

    assert not isinstance(transport, InProcessTransport)
    transport.close()


async def test_replies_come_in_the_order_of_requests(node: Node) -> None:
    async with Admin(node.bootstrap, connect=node.connect) as admin:
        await admin.create_topic("quiet")
    transport = await open_transport(node)
    order: list[str] = []
    first = transport.request(waiting_fetch("quiet"))
    second = transport.request(frame(MetadataRequest(topics=[]), 1, 2))
    first.add_done_callback(lambda _: order.append("fetch"))
    second.add_done_callback(lambda _: order.append("metadata"))
    await asyncio.sleep(0)
    assert order == []

    async with Producer(bootstrap=node.bootstrap, connect=node.connect) as producer:
        await producer.send("quiet", b"news")
    _, reply = await asyncio.gather(first, second)
    assert order == ["fetch", "metadata"]
    correlation_id, at = decode_response_header(reply, MetadataRequest.api, 1)  # type: ignore[arg-type]
    assert correlation_id == 2
    assert MetadataResponse.decode(reply[at:], 1).brokers[0].node_id == 1
    assert FetchResponse.decode(first.result()[4:], 4).responses[0].partitions[0].high_watermark


async def test_closing_fails_who_waits_and_cancels_what_was_asked(node: Node) -> None:
    async with Admin(node.bootstrap, connect=node.connect) as admin:
        await admin.create_topic("quiet")
    transport = await open_transport(node)
    waiting = transport.request(waiting_fetch("quiet"))
    assert len(node.broker.long_polls) == 1
    transport.close()

    with pytest.raises(ConnectionLostError):
        await waiting
    assert len(node.broker.long_polls) == 0
    assert transport.closed
    with pytest.raises(ConnectionLostError):
        await transport.request(frame(MetadataRequest(topics=[]), 1))


@pytest.mark.parametrize(
    "bad",
    [
        [b"\x00"],
        [b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff"],
        [b"\x00\x03\x00\x09" + b"\xff" * 40],
    ],
)
async def test_a_bad_request_ends_the_connection(node: Node, bad: list[Part]) -> None:
    transport = await open_transport(node)

    with pytest.raises(ConnectionLostError):
        await transport.request(bad)
    assert transport.closed


async def test_a_request_larger_than_the_limit_is_refused(node: Node) -> None:
    transport = await open_transport(node)
    limit = node.settings.server.socket_request_max_bytes
    huge = [*frame(MetadataRequest(topics=[]), 1), bytes(limit)]

    with pytest.raises(ConnectionLostError, match="bytes"):
        await transport.request(huge)


async def test_a_failed_silent_produce_closes_the_connection(node: Node) -> None:
    transport = await open_transport(node)
    data = [PartitionProduceData(index=0, records=memoryview(b"nonsense"))]
    topics = [TopicProduceData(name="absent", partition_data=data)]
    transport.send(frame(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=topics), 9))

    assert transport.closed


async def test_stopping_the_node_ends_its_clients(tmp_path: Path) -> None:
    options = {"listen": "127.0.0.1:0", "http": "none", "log.dirs": str(tmp_path / "data")}
    node = Node(load([("test", options)]))
    await node.start()
    transport = await open_transport(node)
    await node.stop()

    assert transport.closed
