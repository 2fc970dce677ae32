"""DescribeShareGroupOffsets: how far the queues of share groups have come.

What is told of a queue is what its share coordinator has stored.  The lag is what is not settled of
what can be read; -1 where the queue has not begun, or nobody says where the partition ends.
"""

import asyncio
from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import nameless
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.broker.far_ends import Ends
from waystation.cluster.image import ClusterImage
from waystation.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.sharing.group_commands import ShareGroupDescription, flat
from waystation.sharing.persister import StateSummary

_UNKNOWN = -1


class _Asked(NamedTuple):
    topic: str
    topic_id: TopicId
    partitions: list[int]


async def answer(
    broker: Broker, call: Call[DescribeShareGroupOffsetsRequest]
) -> DescribeShareGroupOffsetsResponse:
    """Each group asked for."""
    groups = await asyncio.gather(*(_group(broker, one) for one in call.message.groups))
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    try:
        if not group_id:
            raise nameless()
        host = broker.groups.host_of(group_id)
        group: ShareGroupDescription = await host.ask(
            lambda now, to: host.machine.describe_share(now, group_id, to)
        )
    except WaystationError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=error.code, error_message=str(error)
        )
    topics = _topics(broker.image, asked, group)
    begun = flat(group.begun)
    places = [(one.topic_id, index) for one in topics for index in one.partitions]
    summaries = await broker.share_orders.summaries(
        group_id, [place for place in places if place in begun]
    )
    ends = await _ends(
        broker, [TopicPartition(one.topic, index) for one in topics for index in one.partitions]
    )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id,
        topics=[
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=one.topic,
                topic_id=one.topic_id,
                partitions=[
                    _partition(
                        broker.image,
                        one.topic,
                        index,
                        summaries.get((one.topic_id, index)),
                        ends.get(TopicPartition(one.topic, index)),
                    )
                    for index in one.partitions
                ],
            )
            for one in topics
        ],
    )


async def _ends(broker: Broker, names: list[TopicPartition]) -> Ends:
    """Where what can be read ends, as far as that can be known."""
    led = {
        name: held.high_watermark
        for name in names
        if (held := broker.replicas.find(*name)) is not None and held.leading
    }
    return {**led, **await broker.far_ends.ask([name for name in names if name not in led])}


def _topics(
    image: ClusterImage,
    asked: DescribeShareGroupOffsetsRequestGroup,
    group: ShareGroupDescription,
) -> list[_Asked]:
    """What is asked about; without topics, all that the group has queues of."""
    if asked.topics is None:
        return [
            _Asked(image.topics_by_id[topic_id].name, topic_id, list(indexes))
            for topic_id, indexes in group.begun
            if topic_id in image.topics_by_id
        ]
    return [
        _Asked(one.topic_name, _id_of(image, one.topic_name), list(dict.fromkeys(one.partitions)))
        for one in asked.topics
    ]


def _id_of(image: ClusterImage, name: str) -> TopicId:
    topic = image.topics.get(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _partition(
    image: ClusterImage,
    topic: str,
    index: int,
    found: StateSummary | WaystationError | None,
    end: Offset | None,
) -> DescribeShareGroupOffsetsResponsePartition:
    known = image.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        found = UnknownTopicError(f"there is no partition {topic}-{index}")
    told_of = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=NO_OFFSET, lag=_UNKNOWN
    )
    if isinstance(found, WaystationError):
        told_of.error_code, told_of.error_message = told(found)
    elif found is not None:
        told_of.start_offset = found.start
        told_of.leader_epoch = max(found.leader_epoch, 0)
        if found.start != NO_OFFSET and end is not None:
            told_of.lag = max(end - found.start - found.settled, 0)
    return told_of
