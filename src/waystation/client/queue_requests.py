"""The requests of a share session, made of what is to be said, and their answers by partition."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waystation.client.bootstrap import Address
from waystation.client.metadata import BrokerView
from waystation.client.queue_settings import ReceivingSettings
from waystation.client.queue_settling import NO_REASONS, Batch, Kinds, Reasons, ranges_of
from waystation.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from waystation.messages.share_acknowledge import PartitionData as Acknowledged
from waystation.messages.share_fetch import (
    BY_BATCH,
    BY_LIMIT,
    CLOSE_SESSION,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from waystation.messages.share_fetch import PartitionData as Fetched
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.sharing.states import RENEW

__all__ = [
    "Named",
    "Place",
    "Places",
    "acknowledge_request",
    "end_request",
    "fetch_request",
    "fetched_in",
    "settled_in",
    "where_leaders_are",
]

Place = tuple[TopicId, int]
"""A partition as sessions name it."""
Places = dict[Place, TopicPartition]


class Named(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


def fetch_request(
    name: Named,
    epoch: int,
    messages: int,
    wait_ms: int,
    settings: ReceivingSettings,
    new: Mapping[Place, TopicPartition],
    gone: Iterable[Place],
    batch: Batch,
    reasons: Reasons,
    places: Mapping[Place, TopicPartition],
) -> ShareFetchRequest:
    """Ask for messages; name only partitions that are new, gone, or acknowledged in.

    Without prefetching it is meant to the message how many are asked for.  With it, whole batches
    are welcome: each is then sent once.
    """
    request = ShareFetchRequest(
        group_id=name.group_id,
        member_id=name.member_id,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1 if messages else 0,
        max_bytes=settings.fetch_max_bytes if messages else 0,
        max_records=messages,
        batch_size=messages,
        share_acquire_mode=BY_BATCH if settings.prefetch_messages else BY_LIMIT,
    )
    topics: dict[TopicId, FetchTopic] = {}
    for place, where in places.items():
        kinds = batch.kinds.get(where)
        if place in new or kinds is not None:
            topic = topics.setdefault(place[0], FetchTopic(topic_id=place[0]))
            listed = [] if kinds is None else ranges_of(kinds, reasons.get(where))
            topic.partitions.append(
                FetchPartition(partition_index=place[1], acknowledgement_batches=listed)
            )
    request.topics = list(topics.values())
    forgotten: dict[TopicId, ForgottenTopic] = {}
    for topic_id, index in gone:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    request.forgotten_topics_data = list(forgotten.values())
    return request


def acknowledge_request(
    name: Named,
    epoch: int,
    told: Mapping[TopicPartition, Kinds],
    places: Mapping[Place, TopicPartition],
    reasons: Reasons = NO_REASONS,
) -> ShareAcknowledgeRequest:
    """Say what became of messages, and no more."""
    topics: dict[TopicId, AcknowledgeTopic] = {}
    for (topic_id, index), where in places.items():
        kinds = told.get(where)
        if kinds is not None:
            topic = topics.setdefault(topic_id, AcknowledgeTopic(topic_id=topic_id))
            listed = ranges_of(kinds, reasons.get(where))
            topic.partitions.append(
                AcknowledgePartition(partition_index=index, acknowledgement_batches=listed)
            )
    return ShareAcknowledgeRequest(
        group_id=name.group_id,
        member_id=name.member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(RENEW in kinds.values() for kinds in told.values()),
        topics=list(topics.values()),
    )


def end_request(
    name: Named, batch: Batch, reasons: Reasons, places: Mapping[Place, TopicPartition]
) -> ShareAcknowledgeRequest:
    """The last request: what is held and not settled by it is given back."""
    settled = {
        where: {offset: kind for offset, kind in kinds.items() if kind != RENEW}
        for where, kinds in batch.kinds.items()
    }
    kept = {where: kinds for where, kinds in settled.items() if kinds}
    return acknowledge_request(name, CLOSE_SESSION, kept, places, reasons)


def fetched_in(response: ShareFetchResponse) -> dict[Place, Fetched]:
    """What each partition gave."""
    return {
        (TopicId(topic.topic_id), one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def settled_in(response: ShareAcknowledgeResponse) -> dict[Place, Acknowledged]:
    """What each partition says to its acknowledgements."""
    return {
        (TopicId(topic.topic_id), one.partition_index): one
        for topic in response.responses
        for one in topic.partitions
    }


def where_leaders_are(
    response: ShareFetchResponse | ShareAcknowledgeResponse,
) -> dict[int, BrokerView]:
    """Where those are whom refusals name as leaders."""
    return {
        told.node_id: BrokerView(NodeId(told.node_id), Address(told.host, told.port), told.rack)
        for told in response.node_endpoints
    }
