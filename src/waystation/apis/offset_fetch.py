"""OffsetFetch: positions of one group or, since version 8, of several.

Nothing committed, a topic that does not exist and a group nobody has heard of are no errors: the
position is -1.  Who requires stable positions is told to ask again where an open transaction may
still move one, for to begin at the old one would be to process twice.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import Decide, ask_each, replying
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import find_shown, find_shown_by_id
from waystation.groups.commands import FetchedOffset, FetchedOffsets, FetchOffsets
from waystation.messages.offset_fetch import (
    NO_COMMITTED_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import TopicId

_GROUP_ERROR_FROM_VERSION = 2
_SEVERAL_FROM_VERSION = 8
_IDS_FROM_VERSION = 10


class _Question(NamedTuple):
    """One group's part of the request; topics without a name have an id that nobody knows."""

    group: OffsetFetchRequestGroup
    topics: list[OffsetFetchRequestTopic] | None


def answer(broker: Broker, call: Call[OffsetFetchRequest]) -> None:
    """The positions of each group asked about."""
    questions = [_question(broker.image, call, one) for one in _groups(call)]
    reply = replying(
        call,
        lambda answers: _response(
            call.version,
            [
                _group(broker.image, call.version, question, answer)
                for question, answer in zip(questions, answers, strict=True)
            ],
        ),
    )
    stable = call.message.require_stable
    asked = [(one.group.group_id, _decide(one, require_stable=stable)) for one in questions]
    ask_each(broker, asked, reply)


def _groups(call: Call[OffsetFetchRequest]) -> list[OffsetFetchRequestGroup]:
    request = call.message
    if call.version >= _SEVERAL_FROM_VERSION:
        return request.groups
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]


def _question(
    image: ClusterImage, call: Call[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> _Question:
    if call.version >= _IDS_FROM_VERSION:
        for topic in group.topics or ():
            known = find_shown_by_id(image, TopicId(topic.topic_id))
            topic.name = "" if known is None else known.name
    return _Question(group, group.topics)


def _decide(question: _Question, *, require_stable: bool) -> Decide:
    group, topics = question
    command = FetchOffsets(
        group.group_id,
        None
        if topics is None
        else tuple((one.name, tuple(one.partition_indexes)) for one in topics if one.name),
        group.member_id,
        group.member_epoch,
        require_stable,
    )
    return lambda groups, now, to: groups.fetch_offsets(now, command, to)


def _response(version: int, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if version >= _SEVERAL_FROM_VERSION:
        return OffsetFetchResponse(groups=groups)
    (only,) = groups
    return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)


def _group(
    image: ClusterImage,
    version: int,
    question: _Question,
    answer: FetchedOffsets | WaystationError,
) -> OffsetFetchResponseGroup:
    told = OffsetFetchResponseGroup(group_id=question.group.group_id)
    if isinstance(answer, WaystationError):
        told.error_code = answer.code
        if version < _GROUP_ERROR_FROM_VERSION:
            told.topics = [_refused(one, answer.code) for one in question.topics or ()]
    elif question.topics is None:
        told.topics = _all(image, answer, by_id=version >= _IDS_FROM_VERSION)
    else:
        found = iter(answer.offsets)
        told.topics = [_asked(one, found) for one in question.topics]
    return told


def _all(
    image: ClusterImage, answer: FetchedOffsets, *, by_id: bool
) -> list[OffsetFetchResponseTopic]:
    """Every topic with a position; one that was deleted has no id to be told by."""
    topics = []
    for name, offsets in groupby(answer.offsets, lambda one: one.topic):
        partitions = [_partition(one) for one in offsets]
        known = find_shown(image, name)
        if known is not None:
            topics.append(
                OffsetFetchResponseTopic(name=name, topic_id=known.id, partitions=partitions)
            )
        elif not by_id:
            topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return topics


def _asked(
    topic: OffsetFetchRequestTopic, found: Iterator[FetchedOffset]
) -> OffsetFetchResponseTopic:
    """The next positions, which come in the order of the question."""
    if not topic.name:
        return _refused(topic, ErrorCode.UNKNOWN_TOPIC_ID)
    return OffsetFetchResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(next(found)) for _ in topic.partition_indexes],
    )


def _partition(one: FetchedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=one.partition,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=ErrorCode.NONE if one.error is None else one.error.code,
    )


def _refused(topic: OffsetFetchRequestTopic, code: int) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=NO_COMMITTED_OFFSET,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
    )
