"""Fetch requests from feeds, and each feed's answer out of a response.

Since v13 topics go by id.  A topic whose id is not known is asked for by name, in the last
version that had names.  No fetch session is opened: an answer that names every partition is
simpler, and cheap up to some hundred of them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waystation.client.connection import Connection
from waystation.client.feed import Feed
from waystation.client.metadata import ClusterView
from waystation.client.settings import ConsumerSettings
from waystation.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from waystation.model.ids import NO_TOPIC_ID
from waystation.model.offsets import Offset
from waystation.wire.versions import ApiKey

__all__ = ["ISOLATION", "Asked", "answers_in", "fetch_request"]

ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_LAST_WITH_NAMES = 12


class Asked(NamedTuple):
    """A feed as it was when a fetch left."""

    feed: Feed
    life: int
    offset: Offset


def fetch_request(
    asked: Sequence[Asked],
    view: ClusterView,
    settings: ConsumerSettings,
    wait_ms: int,
    connection: Connection,
    rack: str = "",
) -> tuple[FetchRequest, int]:
    """One request for all of ``asked``, in that order."""
    topics: dict[str, FetchTopic] = {}
    version = connection.version_of(ApiKey.FETCH)
    for feed, _, offset in asked:
        name, partition = feed.partition
        topic = topics.get(name)
        if topic is None:
            known = view.topics.get(name)
            topic = topics[name] = FetchTopic(
                topic=name, topic_id=NO_TOPIC_ID if known is None else known.id
            )
            if topic.topic_id == NO_TOPIC_ID:
                version = min(version, _LAST_WITH_NAMES)
        led = view.find(feed.partition)
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=-1 if led is None else led.epoch,
                fetch_offset=offset,
                partition_max_bytes=settings.fetch_partition_bytes,
            )
        )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=ISOLATION[settings.isolation],
        topics=list(topics.values()),
        rack_id=rack,
    )
    return request, version


def answers_in(
    response: FetchResponse, request: FetchRequest, asked: Sequence[Asked]
) -> Iterator[tuple[Asked, PartitionData]]:
    """What was asked, each with what came for it; partitions without news may be missing."""
    names = {topic.topic_id: topic.topic for topic in request.topics}
    told = {
        (topic.topic or names.get(topic.topic_id, ""), data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }
    for one in asked:
        data = told.get(one.feed.partition)
        if data is not None:
            yield one, data
