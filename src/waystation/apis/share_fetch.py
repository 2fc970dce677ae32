"""ShareFetch: a consumer of a queue says what became of messages, and is given others.

What it says counts before anything is given, so that what it lets go makes room.  The answer
leaves when that is stored and there is something to give, or the time is up.  Records are handed
on as regions of files; which of them are the consumer's is said by ranges of offsets.
"""

from collections.abc import Sequence

from waystation.apis.call import Call
from waystation.apis.endpoints import endpoints_of
from waystation.apis.share_acknowledging import Outcomes, acknowledge, check_ids, code_of
from waystation.broker.broker import Broker
from waystation.broker.share_fetching import ShareFetch, ShareLimits, Taken
from waystation.messages.share_fetch import (
    BY_LIMIT,
    AcknowledgementBatch,
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from waystation.model.errors import InvalidRequestError, NotLeaderError, WaystationError
from waystation.model.ids import TopicId
from waystation.sharing.sessions import PartitionOf, Turn
from waystation.sharing.states import Acquired

_RENEWS_FROM_VERSION = 2

Said = dict[PartitionOf, list[AcknowledgementBatch]]


def answer(broker: Broker, call: Call[ShareFetchRequest]) -> None:
    """HOT: once per request; the reply leaves from here or from the end of a long poll."""
    request, queues = call.message, broker.queues
    said = _said(request)
    try:
        group_id, member_id = check_ids(request.group_id, request.member_id)
        turn = _turn(broker, call, group_id, member_id, said)
    except WaystationError as error:
        call.reply(ShareFetchResponse(error_code=code_of(error), error_message=str(error)))
        return
    answering = _Answering(broker, call, group_id)
    may_renew = call.version >= _RENEWS_FROM_VERSION and request.is_renew_ack
    acknowledge(queues, group_id, member_id, said, answering.acknowledged, may_renew=may_renew)
    queues.follow(group_id, member_id, turn)
    if turn.is_last or may_renew:
        answering.took([])
        return
    limits = ShareLimits(
        request.max_records,
        request.min_bytes,
        min(request.max_bytes, broker.settings.fetch_max_bytes),
        request.max_wait_ms,
        request.share_acquire_mode == BY_LIMIT,
    )
    polls = broker.long_polls.of(call.connection)
    ShareFetch(
        queues,
        group_id,
        member_id,
        turn.reads,
        limits,
        answering.took,
        timers=broker.timers,
        polls=polls,
        is_reader=not request.by_receipt,
    ).start()


def _turn(
    broker: Broker, call: Call[ShareFetchRequest], group_id: str, member_id: str, said: Said
) -> Turn:
    """What the session reads with this request."""
    request = call.message
    named = [
        (TopicId(topic.topic_id), one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    ]
    forgotten = [
        (TopicId(topic.topic_id), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    queues = broker.queues
    if request.by_receipt:
        if said:
            raise InvalidRequestError("what was acquired by receipt is settled by ShareAcknowledge")
        return Turn(tuple(named))
    turn = queues.sessions.fetch(
        group_id,
        member_id,
        request.share_session_epoch,
        named,
        forgotten,
        acknowledges=bool(said),
        connection=call.connection,
    )
    queues.connected(call.connection)
    return turn


def _said(request: ShareFetchRequest) -> Said:
    return {
        (TopicId(topic.topic_id), one.partition_index): one.acknowledgement_batches
        for topic in request.topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


class _Answering:
    """The two halves of an answer, which come in any order: what was stored, what was taken."""

    __slots__ = ("_broker", "_call", "_group_id", "_outcomes", "_taken")

    def __init__(self, broker: Broker, call: Call[ShareFetchRequest], group_id: str) -> None:
        self._broker, self._call = broker, call
        self._group_id = group_id
        self._outcomes: Outcomes | None = None
        self._taken: list[Taken] | None = None

    def acknowledged(self, outcomes: Outcomes) -> None:
        """What became of the acknowledgements."""
        self._outcomes = outcomes
        self._reply()

    def took(self, taken: list[Taken]) -> None:
        """What the consumer is given."""
        self._taken = taken
        self._reply()

    def _reply(self) -> None:
        if self._outcomes is None or self._taken is None:
            return
        broker, call = self._broker, self._call
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=broker.queues.options_of(
                self._group_id
            ).share_record_lock_duration_ms,
            responses=_topics(self._taken, self._outcomes, call.message.batch_size),
        )
        errors = [one.error for one in self._taken] + list(self._outcomes.values())
        if any(error is not None for error in errors):
            response.node_endpoints = _endpoints(broker, errors)
        call.reply(response)


def _topics(
    taken: list[Taken], outcomes: Outcomes, batch_size: int
) -> list[ShareFetchableTopicResponse]:
    """By topic: partitions that gave something, and those that something was said about."""
    topics: dict[TopicId, ShareFetchableTopicResponse] = {}
    unsaid = dict(outcomes)
    partitions = [
        (one.place, _partition(one, unsaid.pop(one.place, None), batch_size)) for one in taken
    ]
    partitions += [
        (place, _partition(Taken(place), error, batch_size)) for place, error in unsaid.items()
    ]
    for (topic_id, _), told in partitions:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
        topic.partitions.append(told)
    return list(topics.values())


def _partition(taken: Taken, refusal: WaystationError | None, batch_size: int) -> PartitionData:
    told = PartitionData(
        partition_index=taken.place[1],
        records=taken.given.records,
        acquired_records=_ranges(taken.given.acquired, batch_size),
    )
    if taken.error is not None:
        told.error_code, told.error_message = code_of(taken.error), str(taken.error)
    if refusal is not None:
        told.acknowledge_error_code = code_of(refusal)
        told.acknowledge_error_message = str(refusal)
    for error in (taken.error, refusal):
        if isinstance(error, NotLeaderError):
            told.current_leader = LeaderIdAndEpoch(
                leader_id=-1 if error.leader is None else error.leader, leader_epoch=error.epoch
            )
    return told


def _ranges(acquired: Sequence[Acquired], size: int) -> list[AcquiredRecords]:
    """The ranges that are the consumer's, none longer than it wants to acknowledge at once."""
    return [
        AcquiredRecords(
            first_offset=begin, last_offset=min(begin + step, end) - 1, delivery_count=deliveries
        )
        for first, end, deliveries in acquired
        for step in (size if 0 < size < end - first else end - first,)
        for begin in range(first, end, step)
    ]


def _endpoints(broker: Broker, errors: list[WaystationError | None]) -> list[NodeEndpoint]:
    """Where those are whom refusals name as leaders."""
    strays = (error for error in errors if isinstance(error, NotLeaderError))
    leaders = {error.leader for error in strays if error.leader is not None}
    return [NodeEndpoint(**one._asdict()) for one in endpoints_of(broker.image, leaders)]
