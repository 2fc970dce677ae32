"""Fetch: whole committed batches from many partitions, waiting for them if asked to.

From version 7 a session remembers what a consumer reads; from 13 topics go by id.  Records
are handed on as regions of files: the bytes never enter this process.  Who reads only committed
records is told which transactions to leave out; what is still open is not sent.  One that names
its rack may be told of a replica nearer by, and reads from that.  What views show is looked for
first (``broker/view_fetching.py``), and is bytes.

What followers fetch is in ``replica_fetch.py``.
"""

from collections.abc import Iterator
from typing import cast

from waystation.apis.call import Call
from waystation.apis.endpoints import endpoints_of
from waystation.apis.replica_fetch import answer_replica, replicas_questions
from waystation.broker.broker import Broker
from waystation.broker.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH, NO_SESSION, FetchSession
from waystation.broker.fetching import READ_COMMITTED, Fetch, Found, Limits, Wanted
from waystation.broker.replica_wire import Questions, read_questions
from waystation.broker.view_fetching import ViewFetch
from waystation.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from waystation.model.errors import NotLeaderError, WaystationError
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset

_IDS_FROM_VERSION = 13
_SESSIONS_FROM_VERSION = 7


def decode(view: memoryview, version: int) -> FetchRequest | Questions:
    """What a follower asks, if it does so in the usual way, without the detour of a message."""
    return read_questions(view, version) or FetchRequest.decode(view, version)


def answer(broker: Broker, call: Call[FetchRequest] | Call[Questions]) -> None:
    """HOT: once per fetch request; the reply leaves from here or from the end of a long poll."""
    request = call.message
    questions = request if isinstance(request, Questions) else replicas_questions(request)
    if questions is not None:
        answer_replica(broker, call, questions)
    else:
        _answer_consumer(broker, cast("Call[FetchRequest]", call))


def _answer_consumer(broker: Broker, call: Call[FetchRequest]) -> None:
    request = call.message
    try:
        session, wanted = _session(broker, call)
    except WaystationError as error:
        call.reply(FetchResponse(error_code=error.code))
        return

    def done(found: list[Found]) -> None:
        told = found
        if session is not None and request.session_epoch > FIRST_EPOCH:
            told = session.news(found)
        elif session is not None:
            session.news(found)
        session_id = NO_SESSION if session is None else session.id
        response = FetchResponse(
            session_id=session_id, responses=_topics(told, stable_only=limits.stable_only)
        )
        if any(one.error is not None for one in told):
            response.node_endpoints = _endpoints(broker, told)
        call.reply(response)

    limits = Limits(
        request.min_bytes,
        min(request.max_bytes, broker.settings.fetch_max_bytes),
        request.max_wait_ms,
        request.isolation_level == READ_COMMITTED,
        broker.nearest(request.rack_id) if request.rack_id else None,
    )
    polls = broker.long_polls.of(call.connection)
    replicas, timers, views = broker.replicas, broker.timers, broker.views
    if views.are_there and any(views.named(one.topic, one.topic_id) for one in wanted):
        ViewFetch(
            replicas,
            wanted,
            limits,
            done,
            timers=timers,
            polls=polls,
            views=views,
            scanner=broker.scanner,
        ).start()
    else:
        Fetch(replicas, wanted, limits, done, timers=timers, polls=polls).start()


def _session(broker: Broker, call: Call[FetchRequest]) -> tuple[FetchSession | None, list[Wanted]]:
    """The session that this request opens, continues or does without, and what to read."""
    request, by_id = call.message, call.version >= _IDS_FROM_VERSION
    changed = _wanted(request)
    if call.version < _SESSIONS_FROM_VERSION or request.session_epoch == FINAL_EPOCH:
        broker.fetch_sessions.close(request.session_id)
        return None, changed
    now_s = broker.clock.monotonic()
    if request.session_epoch == FIRST_EPOCH:
        broker.fetch_sessions.close(request.session_id)
        return broker.fetch_sessions.open(changed, now_s, by_id=by_id), changed
    session = broker.fetch_sessions.next(
        request.session_id, request.session_epoch, now_s, by_id=by_id
    )
    session.update(changed, _forgotten(request))
    if not session.wanted:
        broker.fetch_sessions.close(session.id)
        return None, []
    return session, list(session.wanted.values())


def _wanted(request: FetchRequest) -> list[Wanted]:
    return [
        Wanted(
            topic.topic,
            one.partition,
            Offset(one.fetch_offset),
            one.partition_max_bytes,
            TopicId(topic.topic_id),
            one.current_leader_epoch,
            one.last_fetched_epoch,
        )
        for topic in request.topics
        for one in topic.partitions
    ]


def _forgotten(request: FetchRequest) -> Iterator[tuple[str | TopicId, int]]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield (topic.topic or TopicId(topic.topic_id), partition)


def _topics(found: list[Found], *, stable_only: bool) -> list[FetchableTopicResponse]:
    """Group what was found by topic; the order within a response is the order of reading."""
    topics: dict[str | TopicId, FetchableTopicResponse] = {}
    for one in found:
        key = one.wanted.key[0]
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=one.wanted.topic, topic_id=one.wanted.topic_id
            )
        told = _partition(one)
        if stable_only:
            told.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in one.aborted
            ]
        topic.partitions.append(told)
    return list(topics.values())


def _endpoints(broker: Broker, told: list[Found]) -> list[NodeEndpoint]:
    """Where those are whom refusals name as leaders."""
    strays = (one.error for one in told if isinstance(one.error, NotLeaderError))
    leaders = {error.leader for error in strays if error.leader is not None}
    return [NodeEndpoint(**one._asdict()) for one in endpoints_of(broker.image, leaders)]


def _partition(found: Found) -> PartitionData:
    if found.error is not None:
        return _refused(found.wanted.partition, found.error)
    found.counted()
    told = PartitionData(
        partition_index=found.wanted.partition,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable,
        log_start_offset=found.log_start,
        preferred_read_replica=found.nearer,
        records=b"" if found.region is None else found.region,
    )
    if found.diverging is not None:
        told.diverging_epoch = EpochEndOffset(
            epoch=found.diverging.epoch, end_offset=found.diverging.end
        )
    return told


def _refused(partition: int, error: WaystationError) -> PartitionData:
    told = PartitionData(
        partition_index=partition,
        error_code=error.code,
        high_watermark=-1,
        records=b"",
    )
    if isinstance(error, NotLeaderError):
        told.current_leader = LeaderIdAndEpoch(
            leader_id=-1 if error.leader is None else error.leader, leader_epoch=error.epoch
        )
    return told
