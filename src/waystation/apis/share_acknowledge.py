"""ShareAcknowledge: what became of messages, answered when it is stored."""

from waystation.apis.call import Call
from waystation.apis.endpoints import endpoints_of
from waystation.apis.share_acknowledging import (
    Outcomes,
    acknowledge,
    check_for_ms,
    check_ids,
    code_of,
)
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
from waystation.sharing.sessions import Turn

_RENEWS_FROM_VERSION = 2


def answer(broker: Broker, call: Call[ShareAcknowledgeRequest]) -> None:
    """HOT: once per request; the reply leaves when what it says is stored."""
    request, queues = call.message, broker.queues
    try:
        group_id, member_id = check_ids(request.group_id, request.member_id)
        for_ms = check_for_ms(request.for_ms)
        turn = Turn(())
        if not request.by_receipt:
            turn = queues.sessions.acknowledge(group_id, member_id, request.share_session_epoch)
    except WaystationError as error:
        call.reply(ShareAcknowledgeResponse(error_code=code_of(error), error_message=str(error)))
        return

    def done(outcomes: Outcomes) -> None:
        response = ShareAcknowledgeResponse(
            responses=_topics(outcomes), node_endpoints=_endpoints(broker, outcomes)
        )
        if request.is_renew_ack:
            lock_ms = queues.options_of(group_id).share_record_lock_duration_ms
            response.acquisition_lock_timeout_ms = for_ms or lock_ms
        call.reply(response)

    said = {
        (TopicId(topic.topic_id), one.partition_index): one.acknowledgement_batches
        for topic in request.topics
        for one in topic.partitions
    }
    may_renew = call.version >= _RENEWS_FROM_VERSION and request.is_renew_ack
    acknowledge(queues, group_id, member_id, said, done, may_renew=may_renew, for_ms=for_ms)
    queues.follow(group_id, member_id, turn)


def _topics(outcomes: Outcomes) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[TopicId, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, partition), error in outcomes.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(_partition(partition, error))
    return list(topics.values())


def _partition(partition: int, error: WaystationError | None) -> PartitionData:
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


def _endpoints(broker: Broker, outcomes: Outcomes) -> list[NodeEndpoint]:
    """Where those are whom refusals name as leaders."""
    strays = (error for error in outcomes.values() if isinstance(error, NotLeaderError))
    leaders = {error.leader for error in strays if error.leader is not None}
    if not leaders:
        return []
    return [NodeEndpoint(**one._asdict()) for one in endpoints_of(broker.image, leaders)]
