"""A client that does what it is told: one request, one reply, over one plain socket.

Real clients batch, retry and refresh metadata on their own; where a test must know exactly which
bytes were sent when, it speaks the protocol by hand.
"""

import socket
import struct
import time
from typing import Any, Self

from waystation.messages.catalog import response_type
from waystation.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from waystation.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from waystation.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from waystation.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from waystation.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from waystation.records.batch import BatchBuilder
from waystation.wire.headers import decode_response_header, encode_request_header
from waystation.wire.message import Message

PRODUCE_VERSION, FETCH_VERSION = 9, 11
EARLIEST, LATEST = -2, -1

_LENGTH = struct.Struct(">i")
_TIMEOUT_S = 60.0


class PlainClient:
    """Asks and waits; close it, or use it as a context."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """The reply to one request."""
        self._socket.sendall(framed(request, version))
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        return answered(request, version, self._receive(length))

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic; ``retention_ms="1"`` is the config ``retention.ms``."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        (outcome,) = self.ask(CreateTopicsRequest(topics=[wanted]), 5).topics
        assert outcome.error_code == 0, outcome

    def produce(
        self, topic: str, batch: bytes, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        """The outcome of sending one batch."""
        reply = self.ask(produce_request(topic, batch, partition, acks), PRODUCE_VERSION)
        found = reply.responses[0].partition_responses[0]
        assert isinstance(found, PartitionProduceResponse)
        return found

    def fetch(self, topic: str, offset: int, max_bytes: int, partition: int = 0) -> Any:
        """What one fetch gives of one partition, without waiting."""
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        return self.ask(request, FETCH_VERSION).responses[0].partitions[0]

    def offset(self, topic: str, at: int, partition: int = 0) -> int:
        """The first or last offset, by the protocol's number for it."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=at)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
        )
        found = self.ask(request, 4).topics[0].partitions[0]
        assert found.error_code == 0, found
        return int(found.offset)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        """Truncate history; the new start."""
        asked = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=30_000
        )
        found = self.ask(request, 2).topics[0].partitions[0]
        assert found.error_code == 0, found
        return int(found.low_watermark)

    def _receive(self, nbytes: int) -> bytes:
        got = bytearray(nbytes)
        view = memoryview(got)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError("the broker hung up")
            view = view[count:]
        return bytes(got)


def framed(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """The request as it goes on the wire."""
    assert request.api is not None, "a request has an API key"
    head = encode_request_header(request.api, version, correlation_id, "plain")
    body = request.encode(version)
    return _LENGTH.pack(len(head) + len(body)) + head + body


def answered(request: Message, version: int, frame: bytes) -> Any:
    """The reply in ``frame``, whose length was taken off."""
    view = memoryview(frame)
    assert request.api is not None, "a request has an API key"
    _, at = decode_response_header(view, request.api, version)
    return response_type(request.api).decode(view[at:], version)


def produce_request(topic: str, batch: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """One batch for one partition."""
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)


def batch_of(*values: bytes, timestamp: int | None = None) -> bytes:
    """A batch without a producer's id, so that it may be sent again and again."""
    builder = BatchBuilder()
    at = int(time.time() * 1_000) if timestamp is None else timestamp
    for value in values:
        assert builder.append(None, value, (), timestamp=at), "the batch is full"
    return builder.build()
