"""One partition read as it lies in the log: batches, not messages.

For those who decode by themselves, such as Spark's executors.  Promises:

1. an answer begins with the batch that holds the offset asked for, or follows it, and holds
   whole batches only;
2. a lost broker, a new leader or an old image costs time, ``request_timeout_ms`` at most; a
   topic that is gone ``metadata_timeout_ms``; then the error says what stood in the way;
3. a topic that was deleted and made anew while it is read is an error: its offsets mean
   something else.

Checksums are not verified here, nor is it decided which batches are to be shown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from waystation.client.connection import Connection
from waystation.client.errors import (
    ConnectionLostError,
    MessageRefusedError,
    NoSuchPartitionError,
    PositionOutOfRangeError,
    error_of,
    is_retriable,
)
from waystation.client.fetch import ISOLATION
from waystation.client.offsets import EARLIEST, LATEST, list_offsets
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NO_TOPIC_ID, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.records.header import BatchHeader, batches
from waystation.wire.versions import ApiKey

__all__ = ["Fetched", "PartitionReader", "TopicRecreatedError"]

T = TypeVar("T")

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LAST_WITH_NAMES = 12


class TopicRecreatedError(WaystationError):
    """The topic is another one than when reading began, though it has the same name."""

    code = ErrorCode.UNKNOWN_TOPIC_ID

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"topic {topic} was deleted and created anew while it was read: what was read of it "
            "is gone; start over with the new topic"
        )

    def __reduce__(self) -> tuple[type["TopicRecreatedError"], tuple[str]]:
        return type(self), (self.topic,)


class Fetched(NamedTuple):
    """One answer: whole batches with their positions, and how far the partition reaches.

    What comes before ``offset``, which was asked for, is in the first batch by chance: it may
    have been deleted.  A broker that wants to be asked less says for how long in
    ``throttle_ms``, and may give nothing though there is something.
    """

    offset: Offset
    records: memoryview
    batches: list[tuple[int, BatchHeader]]
    aborted: tuple[AbortedTransaction, ...]
    high_watermark: Offset
    last_stable_offset: Offset
    throttle_ms: int = 0

    @property
    def next_offset(self) -> Offset | None:
        """Where to go on; ``None`` if nothing came."""
        return self.batches[-1][1].next_offset if self.batches else None


class PartitionReader:
    """Asks for one partition, wherever it is led; ``open`` comes first."""

    def __init__(self, router: Router, settings: ConsumerSettings, where: TopicPartition) -> None:
        self._router, self._settings, self._where = router, settings, where
        self._id: TopicId = NO_TOPIC_ID

    async def open(self) -> None:
        """Reach the cluster and find the partition; from now on its topic must stay the same."""
        await self._patiently(self._router.start)
        topic = await self._router.topic(self._where.topic)
        if self._where.partition >= len(topic.partitions):
            await self._router.refresh()  # it may be new
            topic = await self._router.topic(self._where.topic)
        if self._where.partition >= len(topic.partitions):
            raise NoSuchPartitionError(self._where, len(topic.partitions))
        self._id = topic.id

    async def fetch(self, offset: Offset, most_bytes: int) -> Fetched:
        """What follows at ``offset``; ``PositionOutOfRangeError`` if the log does not hold it.

        A single batch comes whole, though it may be larger than ``most_bytes``.  An answer
        without batches says that there was nothing for ``fetch_max_wait_ms``.
        """
        return await self._patiently(lambda: self._fetch(offset, most_bytes))

    async def ends(self) -> tuple[Offset, Offset]:
        """Where the log begins, and where what is committed to all replicas ends."""
        start = await list_offsets(self._router, {self._where: EARLIEST})
        end = await list_offsets(self._router, {self._where: LATEST})
        return start[self._where].offset, end[self._where].offset

    # --- behind the scenes ------------------------------------------------------------------

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``attempt`` while it fails retriably and there is time."""
        router, loop = self._router, asyncio.get_running_loop()
        failures, since = 0, 0.0
        while True:
            try:
                return await attempt()
            except WaystationError as error:
                failures += 1
                since = since or loop.time()
                wait_s = router.backoff.delay_s(failures)
                given_up = loop.time() + wait_s > since + self._patience_s(error)
                if given_up or isinstance(error, TopicRecreatedError) or not is_retriable(error):
                    raise
            router.want_refresh()
            await asyncio.sleep(wait_s)

    def _patience_s(self, error: WaystationError) -> float:
        settings = self._router.settings
        gone = error.code in _GONE
        return (settings.metadata_timeout_ms if gone else settings.request_timeout_ms) / 1_000

    async def _fetch(self, offset: Offset, most_bytes: int) -> Fetched:
        leader = await self._leader()
        connection = await self._connection(leader)
        request, version = self._request(offset, most_bytes, connection)
        settings = self._settings
        timeout_s = (self._router.settings.request_timeout_ms + settings.fetch_max_wait_ms) / 1_000
        response = await connection.ask(request, FetchResponse, timeout_s, version)
        if response.error_code:
            raise error_of(response.error_code, f"the fetch from node {leader}")
        for topic in response.responses:
            for told in topic.partitions:
                return self._answer(offset, told)._replace(throttle_ms=response.throttle_time_ms)
        return Fetched(offset, memoryview(b""), [], (), offset, offset)

    async def _leader(self) -> NodeId:
        """The leader, looked for anew while none is known; see that the topic is the same."""
        router, where = self._router, self._where
        if router.view.leader(where) is None:
            await router.refresh()
        known = router.view.topics.get(where.topic)
        if known is not None and known.id != self._id:
            raise TopicRecreatedError(where.topic)
        leader = router.view.leader(where)
        if leader is None:
            code = router.view.refused.get(where.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            gone = code in _GONE
            raise error_of(code, f"topic {where.topic}" if gone else f"partition {where}")
        return leader

    async def _connection(self, node: NodeId) -> Connection:
        address = self._router.view.brokers[node].address
        try:
            return await self._router.to_node(node, held=True)
        except ConnectionLostError as error:
            raise ConnectionLostError(f"node {node} at {address}: {error}") from error

    def _request(
        self, offset: Offset, most_bytes: int, connection: Connection
    ) -> tuple[FetchRequest, int]:
        """By the topic's id where brokers know ids, in the last version that had names else."""
        settings, where = self._settings, self._where
        version = connection.version_of(ApiKey.FETCH)
        if self._id == NO_TOPIC_ID:
            version = min(version, _LAST_WITH_NAMES)
        led = self._router.view.find(where)
        partition = FetchPartition(
            partition=where.partition,
            current_leader_epoch=-1 if led is None else led.epoch,
            fetch_offset=offset,
            partition_max_bytes=most_bytes,
        )
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=most_bytes,
            isolation_level=ISOLATION[settings.isolation],
            topics=[FetchTopic(topic=where.topic, topic_id=self._id, partitions=[partition])],
        )
        return request, version

    def _answer(self, offset: Offset, told: PartitionData) -> Fetched:
        where = self._where
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            ends = Offset(told.log_start_offset), Offset(told.high_watermark)
            raise PositionOutOfRangeError(where, offset, *ends)
        if told.error_code:
            raise error_of(told.error_code, f"partition {where}")
        records = memoryview(b"") if told.records is None else told.records
        assert isinstance(records, memoryview), f"records came as {type(records)}"
        whole = [(at, header) for at, header in batches(records) if header.next_offset > offset]
        if len(records) and not whole:
            raise MessageRefusedError(
                f"partition {where}: the broker sent {len(records)} bytes of the batch at offset "
                f"{offset} and not the rest: is it a broker older than Kafka 0.10.1?"
            )
        return Fetched(
            offset,
            records,
            whole,
            tuple(told.aborted_transactions or ()),
            Offset(told.high_watermark),
            Offset(told.last_stable_offset),
        )
