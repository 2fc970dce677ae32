"""The answer to a ShareAcknowledge: what became of each partition, and who leads instead."""

from collections.abc import Iterable

from waystation.apis.call import Call
from waystation.apis.endpoints import endpoints_of
from waystation.apis.share_acknowledging import code_of
from waystation.broker.broker import Broker
from waystation.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from waystation.model.errors import NotLeaderError, WaystationError
from waystation.model.ids import TopicId
from waystation.sharing.sessions import PartitionOf


def partition_told(partition: int, error: WaystationError | None) -> PartitionData:
    """What is said of one partition."""
    if error is None:
        return PartitionData(partition_index=partition)
    told = PartitionData(
        partition_index=partition, error_code=code_of(error), error_message=str(error)
    )
    if isinstance(error, NotLeaderError):
        told.current_leader = LeaderIdAndEpoch(
            leader_id=-1 if error.leader is None else error.leader, leader_epoch=error.epoch
        )
    return told


def response_of(
    broker: Broker,
    call: Call[ShareAcknowledgeRequest],
    group_id: str,
    told: Iterable[tuple[PartitionOf, PartitionData]],
    errors: Iterable[WaystationError | None],
) -> ShareAcknowledgeResponse:
    """All of it; ``errors`` may name leaders, whose addresses go with them."""
    topics: dict[TopicId, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, _), one in told:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(one)
    response = ShareAcknowledgeResponse(
        responses=list(topics.values()), node_endpoints=_endpoints(broker, errors)
    )
    if call.message.is_renew_ack:
        lock_ms = broker.queues.options_of(group_id).share_record_lock_duration_ms
        response.acquisition_lock_timeout_ms = call.message.for_ms or lock_ms
    return response


def _endpoints(broker: Broker, errors: Iterable[WaystationError | None]) -> list[NodeEndpoint]:
    """Where those are whom refusals name as leaders."""
    leaders = {
        error.leader
        for error in errors
        if isinstance(error, NotLeaderError) and error.leader is not None
    }
    if not leaders:
        return []
    return [NodeEndpoint(**one._asdict()) for one in endpoints_of(broker.image, leaders)]
