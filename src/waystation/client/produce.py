"""Produce requests from batches, and each batch's answer out of a response.

Since v13 topics go by id.  A topic whose id is not known is sent by name, in the last version
that had names.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from waystation.client.connection import Connection
from waystation.client.metadata import ClusterView
from waystation.client.outgoing import Outgoing
from waystation.client.standing import Standing
from waystation.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.wire.versions import ApiKey

__all__ = ["answers_in", "produce_request"]

_LAST_WITH_NAMES = 12
_LAST_EXPLICIT = 11
"""From the next one on, to write to a partition makes it part of the transaction."""


def produce_request(
    batches: Sequence[Outgoing],
    view: ClusterView,
    acks: int,
    timeout_ms: int,
    connection: Connection,
    standing: Standing | None = None,
) -> tuple[ProduceRequest, int]:
    """One request with all of ``batches``, which are for different partitions."""
    topics: dict[str, TopicProduceData] = {}
    version = connection.version_of(ApiKey.PRODUCE)
    if standing is not None and not standing.implicit:
        version = min(version, _LAST_EXPLICIT)
    for batch in batches:
        name, partition = batch.lane.partition
        topic = topics.get(name)
        if topic is None:
            id_ = _id_of(name, view)
            topic = topics[name] = TopicProduceData(name=name, topic_id=id_)
            if id_ == NO_TOPIC_ID:
                version = min(version, _LAST_WITH_NAMES)
        batch.topic_id = TopicId(topic.topic_id)
        records = memoryview(batch.encode())
        topic.partition_data.append(PartitionProduceData(index=partition, records=records))
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))
    if standing is not None:
        request.transactional_id = standing.transactional_id
    return request, version


def answers_in(
    response: ProduceResponse, request: ProduceRequest, batches: Sequence[Outgoing]
) -> Iterator[tuple[Outgoing, PartitionProduceResponse | None]]:
    """Each batch with what the broker says of it, in the order they were sent."""
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    told: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            told[(name, answer.index)] = answer
    for batch in batches:
        yield batch, told.get(batch.lane.partition)


def _id_of(name: str, view: ClusterView) -> UUID:
    topic = view.topics.get(name)
    return NO_TOPIC_ID if topic is None else topic.id
