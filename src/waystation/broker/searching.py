"""Whether a batch is in a partition, by its producer and sequence; led here, or elsewhere.

Asked only when nobody remembers, and after a newer epoch of the producer was made known to the
partition, so that nothing can arrive while one looks.  The search goes through the headers of what
was appended since shortly before the batch was decided upon, up to the end that is committed.
"""

import asyncio
from typing import Final

from waystation.broker.peers import Peers
from waystation.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from waystation.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.partition.partition import Partition
from waystation.records.header import Buffer, batches
from waystation.runtime.regions import FileRegion
from waystation.scheduling.mover import Outcome
from waystation.scheduling.records import Decided

__all__ = ["look_far", "look_here"]

_CLOCKS_DIFFER_MS: Final = 3_600_000
_CHUNK_BYTES: Final = 1 << 20
_PURPOSE: Final = "searching"
# Topics have names up to this version, and ids from then on.
_FETCH_BY_NAME: Final = 12
_WAIT_MS: Final = 500


async def look_here(partition: Partition, batch: Decided) -> Outcome:
    """Search a partition that this broker leads."""
    partition.check_epoch(-1)
    if not partition.settled:
        return Outcome.NOT_NOW
    end, found = partition.high_watermark, partition.log.find_by_time(_since(batch))
    if found is None:
        return Outcome.ABSENT
    offset = found[0]
    while offset < end:
        region, behind = partition.read(offset, _CHUNK_BYTES, at_least_one=True)
        if region is None:
            return Outcome.NOT_NOW
        if await asyncio.to_thread(_reads, region, batch):
            return Outcome.DONE
        offset = behind
    return Outcome.ABSENT


async def look_far(peers: Peers, leader: NodeId, batch: Decided) -> Outcome:
    """Search a partition that another broker leads."""
    end = await _offset(peers, leader, batch.target, LATEST)
    offset = await _offset(peers, leader, batch.target, _since(batch))
    if end is None or offset is None:
        return Outcome.NOT_NOW
    if offset == NO_OFFSET:
        return Outcome.ABSENT
    while offset < end:
        chunk = await _fetch(peers, leader, batch.target, offset)
        if not chunk:
            return Outcome.NOT_NOW
        if await asyncio.to_thread(_holds, chunk, batch):
            return Outcome.DONE
        behind = [header.next_offset for _, header in batches(chunk)]
        if not behind:
            return Outcome.NOT_NOW
        offset = behind[-1]
    return Outcome.ABSENT


def _since(batch: Decided) -> Millis:
    return Millis(max(batch.at - _CLOCKS_DIFFER_MS, 0))


def _reads(region: FileRegion, batch: Decided) -> bool:
    return _holds(region.read(), batch)


def _holds(chunk: Buffer, batch: Decided) -> bool:
    wanted = (batch.producer_id, batch.producer_epoch, batch.sequence)
    return any(
        (header.producer_id, header.producer_epoch, header.base_sequence) == wanted
        for _, header in batches(chunk)
        if not header.is_control
    )


async def _offset(peers: Peers, leader: NodeId, name: TopicPartition, moment: int) -> Offset | None:
    asked = ListOffsetsPartition(partition_index=name.partition, timestamp=moment)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name.topic, partitions=[asked])])
    answer = await peers.ask(leader, request, ListOffsetsResponse)
    for topic in answer.topics:
        for one in topic.partitions:
            return None if one.error_code else Offset(one.offset)
    return None


async def _fetch(peers: Peers, leader: NodeId, name: TopicPartition, offset: Offset) -> bytes:
    """Whole batches from ``offset`` on, and perhaps a part of one; nothing if it cannot be had."""
    asked = FetchPartition(
        partition=name.partition, fetch_offset=offset, partition_max_bytes=_CHUNK_BYTES
    )
    request = FetchRequest(
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=_CHUNK_BYTES,
        topics=[FetchTopic(topic=name.topic, partitions=[asked])],
    )
    answer = await peers.ask(
        leader, request, FetchResponse, version=_FETCH_BY_NAME, purpose=_PURPOSE
    )
    if answer.error_code:
        raise WaystationError(
            f"node {leader} refused to be searched: {ErrorCode(answer.error_code)}"
        )
    for topic in answer.responses:
        for one in topic.partitions:
            if one.error_code or not isinstance(one.records, bytes | bytearray | memoryview):
                return b""
            return bytes(one.records)
    return b""
