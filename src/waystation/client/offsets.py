"""Asks brokers for offsets: the ends of a partition, or the first record at or after a time."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from waystation.client.errors import error_of
from waystation.client.router import Router
from waystation.messages.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "OffsetAndTime", "list_offsets"]


class OffsetAndTime(NamedTuple):
    """An offset and its record's timestamp; -1 where the question was about an end of the log."""

    offset: Offset
    timestamp: Millis


async def list_offsets(
    router: Router, wanted: Mapping[TopicPartition, int], isolation_level: int = 0
) -> dict[TopicPartition, OffsetAndTime]:
    """The offset for each partition's time, or for ``EARLIEST``, ``LATEST``, ``MAX_TIMESTAMP``.

    An offset of -1 says that no record is that young.
    """
    found: dict[TopicPartition, OffsetAndTime] = {}

    async def ask_the_rest() -> None:
        left = {where: time for where, time in wanted.items() if where not in found}
        by_node = await _by_leader(router, left)
        answers = await asyncio.gather(
            *(_ask(router, node, part, isolation_level) for node, part in by_node.items()),
            return_exceptions=True,
        )
        trouble: BaseException | None = None
        for answer in answers:
            if isinstance(answer, BaseException):
                trouble = answer
                continue
            for where, told in answer:
                if told.error_code:
                    trouble = error_of(told.error_code, f"partition {where}")
                else:
                    found[where] = OffsetAndTime(Offset(told.offset), Millis(told.timestamp))
        if trouble is not None:
            raise trouble

    if wanted:
        await router.retrying(ask_the_rest, router.settings.metadata_timeout_ms)
    return found


async def _by_leader(
    router: Router, wanted: Mapping[TopicPartition, int]
) -> dict[NodeId, dict[TopicPartition, int]]:
    by_node: dict[NodeId, dict[TopicPartition, int]] = {}
    for where, time in wanted.items():
        by_node.setdefault(await router.leader_of(where), {})[where] = time
    return by_node


async def _ask(
    router: Router, node: NodeId, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> list[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, partition), time in wanted.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=time))
    request = ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=router.settings.request_timeout_ms,
    )
    response = await router.ask(router.to_node(node), request, ListOffsetsResponse)
    return [
        (TopicPartition(topic.name, told.partition_index), told)
        for topic in response.topics
        for told in topic.partitions
    ]
