"""OffsetCommit: keep positions of partitions that exist; the others are told so one by one."""

from typing import NamedTuple

from waystation.apis.call import Call
from waystation.apis.coordinated import ask, replying
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import TopicImage
from waystation.cluster.views import shown, shown_by_id
from waystation.groups.commands import Commit, Committed, OffsetToCommit
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from waystation.model.errors import (
    ErrorCode,
    GroupNotFoundError,
    StaleMemberEpochError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import TopicId

_EPOCHS_FROM_VERSION = 9
_IDS_FROM_VERSION = 10


class _Plan(NamedTuple):
    """What will be answered, and which parts of it the coordinator has still to fill in."""

    response: OffsetCommitResponse
    offsets: list[OffsetToCommit]
    waiting: list[OffsetCommitResponsePartition]


def answer(broker: Broker, call: Call[OffsetCommitRequest]) -> OffsetCommitResponse | None:
    """The outcome for each partition."""
    request = call.message
    plan = _plan(broker.image, request, by_id=call.version >= _IDS_FROM_VERSION)
    if not plan.offsets:
        return plan.response
    command = Commit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        offsets=tuple(plan.offsets),
    )
    ask(
        broker,
        request.group_id,
        lambda groups, now, to: groups.commit(now, command, to),
        replying(call, lambda answer: _response(plan, call.version, answer)),
    )
    return None


def _plan(image: ClusterImage, request: OffsetCommitRequest, *, by_id: bool) -> _Plan:
    plan = _Plan(OffsetCommitResponse(), [], [])
    for topic in request.topics:
        outcome = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        plan.response.topics.append(outcome)
        for one in topic.partitions:
            result = OffsetCommitResponsePartition(partition_index=one.partition_index)
            outcome.partitions.append(result)
            try:
                known = _topic(image, topic, by_id=by_id)
                check_partition(known, one.partition_index)
            except WaystationError as error:
                result.error_code = error.code
                continue
            plan.offsets.append(_offset(known, one))
            plan.waiting.append(result)
    return plan


def _topic(image: ClusterImage, topic: OffsetCommitRequestTopic, *, by_id: bool) -> TopicImage:
    return shown_by_id(image, TopicId(topic.topic_id)) if by_id else shown(image, topic.name)


def check_partition(topic: TopicImage, partition: int) -> None:
    """Raise unless the topic has that partition."""
    if not 0 <= partition < len(topic.partitions):
        raise UnknownTopicError(f"{topic.name} has no partition {partition}")


def _offset(topic: TopicImage, one: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        one.partition_index,
        one.committed_offset,
        one.committed_leader_epoch,
        one.committed_metadata or "",
        topic.id,
    )


def _response(
    plan: _Plan, version: int, answer: Committed | WaystationError
) -> OffsetCommitResponse:
    if isinstance(answer, WaystationError):
        code = _code(answer, version)
        for result in plan.waiting:
            result.error_code = code
    else:
        for result, error in zip(plan.waiting, answer.errors, strict=True):
            result.error_code = told(error).code
    return plan.response


def _code(error: WaystationError, version: int) -> int:
    """What clients are told who may know nothing of epochs, nor of groups that can be gone."""
    if version < _EPOCHS_FROM_VERSION:
        if isinstance(error, GroupNotFoundError):
            return ErrorCode.ILLEGAL_GENERATION
        if isinstance(error, StaleMemberEpochError):
            return ErrorCode.UNSUPPORTED_VERSION
    return error.code
