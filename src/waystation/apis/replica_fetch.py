"""Fetch, as a follower asks it: everything up to the log's end, committed or not.

Followers say which of their lives asks, from version 15 on in ``ReplicaState``.  One of ours also
says how far it has flushed, in a tagged field of its own; one that does not has flushed nothing.
In another it says which changes of the cluster it knows of: a copy that it was told to give up,
and does not know of yet, is not taken for the one that it was asked to make since.
"""

from collections.abc import Iterator

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.broker.fetch_sessions import FIRST_EPOCH
from waystation.broker.replica_sessions import Asked, Key, ReplicaSession, Told
from waystation.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from waystation.model.errors import ErrorCode, NotLeaderError, StaleBrokerEpochError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import Offset

_SESSION = "replica session"


def replica_of(request: FetchRequest) -> tuple[NodeId, BrokerEpoch] | None:
    """Which follower asks, in which of its lives; ``None``: a consumer does."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return NodeId(state.replica_id), BrokerEpoch(state.replica_epoch)
    if request.replica_id >= 0:
        return NodeId(request.replica_id), BrokerEpoch(-1)
    return None


def answer_replica(
    broker: Broker, call: Call[FetchRequest], node: NodeId, life: BrokerEpoch
) -> None:
    """HOT: once per fetch of a follower; the reply leaves when there is something to say."""
    request = call.message
    try:
        broker.check_life(node, life)
    except StaleBrokerEpochError as error:
        call.reply(FetchResponse(error_code=error.code))
        return
    session = _session(broker, call, node, life)
    if isinstance(session, ErrorCode):
        call.reply(FetchResponse(error_code=session))
        return

    def done(told: list[Told]) -> None:
        call.reply(FetchResponse(session_id=session.id, responses=_topics(told)))

    session.acted_on = request.acted_on
    session.fetch(
        _asked(request), _forgotten(request), request.max_wait_ms, request.max_bytes, done
    )


def _session(
    broker: Broker, call: Call[FetchRequest], node: NodeId, life: BrokerEpoch
) -> ReplicaSession | ErrorCode:
    request, sessions = call.message, broker.replica_sessions
    if request.session_epoch > FIRST_EPOCH:
        return sessions.next(node, life, request.session_id, request.session_epoch)
    session = sessions.open(node, life)
    known = call.connection.session
    if _SESSION not in known:
        call.connection.when_closed(lambda: sessions.close(known[_SESSION]))
    known[_SESSION] = session
    return session


def _asked(request: FetchRequest) -> Iterator[Asked]:
    for topic in request.topics:
        topic_id = TopicId(topic.topic_id)
        for one in topic.partitions:
            yield Asked(
                (topic_id, one.partition),
                one.current_leader_epoch,
                Offset(one.fetch_offset),
                LeaderEpoch(one.last_fetched_epoch),
                Offset(one.flushed_end),
                one.partition_max_bytes,
            )


def _forgotten(request: FetchRequest) -> Iterator[Key]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield TopicId(topic.topic_id), partition


def _topics(told: list[Told]) -> list[FetchableTopicResponse]:
    topics: dict[TopicId, FetchableTopicResponse] = {}
    for one in told:
        topic_id, _ = one.key
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchableTopicResponse(topic="", topic_id=topic_id)
        topic.partitions.append(_partition(one))
    return list(topics.values())


def _partition(told: Told) -> PartitionData:
    answer = PartitionData(
        partition_index=told.key[1],
        high_watermark=told.high_watermark,
        log_start_offset=told.log_start,
        records=b"" if told.region is None else told.region,
    )
    if told.error is not None:
        answer.error_code = told.error.code
        if isinstance(told.error, NotLeaderError):
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=-1 if told.error.leader is None else told.error.leader,
                leader_epoch=told.error.epoch,
            )
    elif told.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=told.diverging.epoch, end_offset=told.diverging.end
        )
    return answer
