"""Partitions for a scripted broker: appends with the checks of idempotence, and reads.

As strict as Kafka: five remembered batches per producer, epochs that fence, any first number
from a producer that is not known.
"""

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.support.scripted_broker import Answer, ScriptedBroker
from waystation.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from waystation.messages.init_producer_id import InitProducerIdResponse
from waystation.messages.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from waystation.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Offset
from waystation.records.batch import records_of
from waystation.records.header import check_produced, peek, stamp
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey


@dataclass
class Producer:
    """What a partition remembers of one producer."""

    epoch: int = -1
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class Partition:
    """A log of whole batches, and the values in them."""

    batches: list[bytearray] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    producers: defaultdict[int, Producer] = field(default_factory=lambda: defaultdict(Producer))
    limit_bytes: int = 1 << 30

    def append(self, batch: bytes) -> tuple[ErrorCode, int]:
        """The outcome and the first offset."""
        header = check_produced(batch)
        if len(batch) > self.limit_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id >= 0:
            known = self.producers[header.producer_id]
            first, count = header.base_sequence, header.records_count
            if header.producer_epoch < known.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > known.epoch:
                if first and known.epoch >= 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
                known.recent.clear()
            for sequence, length, offset in known.recent:
                if (sequence, length) == (first, count):
                    return ErrorCode.NONE, offset
            if known.recent and first != sum(known.recent[-1][:2]):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.epoch = header.producer_epoch
            known.recent.append((first, count, len(self.values)))
        return ErrorCode.NONE, self._write(bytearray(batch))

    def read(self, offset: int) -> bytes:
        """Every batch from the one that holds ``offset``."""
        found, at = bytearray(), 0
        for batch in self.batches:
            at += peek(batch).records_count
            if at > offset:
                found += batch
        return bytes(found)

    def _write(self, batch: bytearray) -> int:
        base = len(self.values)
        stamp(batch, 0, Offset(base), LeaderEpoch(0))
        self.batches.append(batch)
        self.values += [record.value for record in records_of(batch)]
        return base


class LogBroker(ScriptedBroker):
    """A scripted broker whose partitions keep what they are given."""

    def __init__(self, topic: str = "orders", leaders: tuple[int, ...] = (1,)) -> None:
        super().__init__(topic, leaders)
        self.partitions = [Partition() for _ in leaders]
        self.identities = 100
        self.handlers |= {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
        }

    def init_producer_id(self, request: Message) -> Message:
        self.identities += 1
        return InitProducerIdResponse(producer_id=self.identities, producer_epoch=0)

    def produce(self, request: Message) -> Message:
        assert isinstance(request, ProduceRequest)
        node = self.asked[-1][0]
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                if self.leaders[data.index] == node:
                    assert data.records is not None
                    code, offset = self.partitions[data.index].append(bytes(data.records))
                answers.append(
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
                )
            topics.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return ProduceResponse(responses=topics)

    def fetch(self, request: Message) -> Answer:
        """Answers at once; with nothing to give, empty after the time the client gave."""
        assert isinstance(request, FetchRequest)
        node, news, topics = self.asked[-1][0], False, []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                log = self.partitions[wanted.partition]
                end = len(log.values)
                data = PartitionData(
                    partition_index=wanted.partition, high_watermark=end, log_start_offset=0
                )
                if self.leaders[wanted.partition] != node:
                    data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif wanted.fetch_offset > end:
                    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    data.records = memoryview(log.read(wanted.fetch_offset))
                news = news or bool(data.error_code or data.records)
                answers.append(data)
            topics.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=answers
                )
            )
        if news:
            return FetchResponse(responses=topics)
        loop = asyncio.get_running_loop()
        later: asyncio.Future[Message] = loop.create_future()
        loop.call_later(request.max_wait_ms / 1_000, later.set_result, FetchResponse())
        return later

    def list_offsets(self, request: Message) -> Message:
        assert isinstance(request, ListOffsetsRequest)
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                end = len(self.partitions[one.partition_index].values)
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        offset=0 if one.timestamp == EARLIEST else end,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)
