"""What one batch costs a leader and its two followers: the CPU of three nodes in one process.

Batches of 11 KB go to two partitions in turn, acks=all, each when the one before is acknowledged.
The client, which sends bytes that were made before, is in the figure too; it is a tenth of it.

Run: python benchmarks/replication/copying.py [memory|disk]
"""

import asyncio
import gc
import os
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

from waystation.client.admin import Admin
from waystation.coordination.sqlite import SqliteStore
from waystation.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from waystation.model.offsets import Millis
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.records.batch import BatchBuilder
from waystation.runtime.loops import run
from waystation.wire.headers import encode_request_header
from waystation.wire.versions import ApiKey

BATCHES, ROUNDS = 400, 10
RECORDS, RECORD_BYTES = 11, 1024
VERSION = 7
TOPIC, PARTITIONS = "copied", 2


class Client(asyncio.Protocol):
    """Sends frames, one at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over."""
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._acknowledged: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Take a reply in, once it is whole."""
        self._received += data
        if len(self._received) >= 4 + struct.unpack_from(">i", self._received)[0]:
            self._received = b""
            if self._acknowledged is not None:
                self._acknowledged.set_result(None)

    async def send(self, frame: bytes) -> None:
        """Send a frame and wait for its reply."""
        self._acknowledged = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        await self._acknowledged


def produce(partition: int) -> bytes:
    """A whole request, as librdkafka would send it."""
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(None, os.urandom(RECORD_BYTES), (), timestamp=Millis(int(time.time() * 1e3)))
    data = PartitionProduceData(index=partition, records=builder.build())
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    body = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics).encode(VERSION)
    frame = encode_request_header(ApiKey.PRODUCE, VERSION, 1, "benchmark") + body
    return struct.pack(">i", len(frame)) + frame


async def started(folder: Path, durability: str) -> list[Node]:
    """Three nodes that agree through one file."""
    store = SqliteStore(folder / "store.sqlite")
    await store.open()
    options = {
        "broker.session.timeout.ms": "30000",
        "durability": durability,
        "http": "none",
        "listen": "127.0.0.1:0",
        "min.insync.replicas": "2",
    }
    nodes = []
    for number in (1, 2, 3):
        own = {"node.id": str(number), "broker.machine": f"machine-{number}"}
        settings = {**options, **own, "log.dirs": str(folder / f"node-{number}")}
        nodes.append(Node(load([("the benchmark", settings)]), store=store))
    await asyncio.gather(*(node.start() for node in nodes))
    return nodes


async def create_topic(nodes: list[Node]) -> None:
    """Led by the first node, copied by the others, all of them in sync."""
    async with Admin(",".join(str(node.address) for node in nodes)) as admin:
        await admin.create_topic(TOPIC, assignments=dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
        while True:
            topic = await admin.describe_topic(TOPIC)
            if all(len(one.in_sync) == 3 for one in topic.partitions):
                return
            await asyncio.sleep(0.05)


async def measure(folder: Path, durability: str) -> list[float]:
    """Microseconds of CPU per batch, round by round."""
    nodes = await started(folder, durability)
    await create_topic(nodes)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(Client, *nodes[0].address)
    frames = [produce(partition) for partition in range(PARTITIONS)]
    gc.collect()
    gc.freeze()
    spent = []
    for _ in range(ROUNDS + 1):
        before = time.process_time()
        for number in range(BATCHES):
            await client.send(frames[number % PARTITIONS])
        spent.append((time.process_time() - before) / BATCHES * 1e6)
    for node in nodes:
        node.abandon()
    return sorted(spent[1:])


if __name__ == "__main__":
    durability = sys.argv[1] if len(sys.argv) > 1 else "memory"
    with tempfile.TemporaryDirectory() as folder:
        spent = run(measure(Path(folder), durability))
    print(f"{durability}: best {spent[0]:.0f}, median {spent[len(spent) // 2]:.0f} us of CPU")
