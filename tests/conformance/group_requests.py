"""Requests about groups, made in one line, and answers that others must bring about first."""

import time
from typing import Any
from uuid import UUID

from tests.apis.grouping import Seat, join_request
from tests.conformance.interview import Interview
from waystation.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from waystation.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from waystation.messages.describe_groups import DescribeGroupsRequest
from waystation.messages.heartbeat import HeartbeatRequest
from waystation.messages.leave_group import LeaveGroupRequest, MemberIdentity
from waystation.messages.list_groups import ListGroupsRequest
from waystation.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from waystation.messages.offset_fetch import OffsetFetchRequestTopic
from waystation.model.errors import ErrorCode
from waystation.wire.versions import SPOKEN, ApiKey

TWO, ONE, ABSENT = "q-two", "q-one", "q-absent"
UNKNOWN_ID = UUID(int=7)
BYE = -1
WITHIN_S = 60.0
_NAMES = {"two": TWO, "one": ONE, "absent": ABSENT}


def versions(key: ApiKey) -> range:
    """All that we speak."""
    low, high = SPOKEN[key].versions
    return range(low, high + 1)


def until(true: Any) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline, "the broker does not become ready"
        time.sleep(0.05)


def heartbeat(seat: Seat, instance_id: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=seat.group,
        generation_id=seat.generation,
        member_id=seat.member_id,
        group_instance_id=instance_id,
    )


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        member_id=members[0][0] if members else "",
        members=[MemberIdentity(member_id=one, group_instance_id=two) for one, two in members],
    )


def describe(*groups: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)


def position(partition: int, offset: int, metadata: str | None = "") -> Any:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_metadata=metadata,
        committed_leader_epoch=0,
    )


def commits(ids: dict[str, UUID], **topics: list[Any]) -> list[OffsetCommitRequestTopic]:
    return [
        OffsetCommitRequestTopic(
            name=_NAMES[name], topic_id=ids.get(_NAMES[name], UNKNOWN_ID), partitions=partitions
        )
        for name, partitions in topics.items()
    ]


def fetched(ids: dict[str, UUID], **topics: list[int]) -> list[OffsetFetchRequestTopic]:
    return [
        OffsetFetchRequestTopic(
            name=_NAMES[name], topic_id=ids.get(_NAMES[name], UNKNOWN_ID), partition_indexes=indexes
        )
        for name, indexes in topics.items()
    ]


def beat(
    group: str, member_id: str, epoch: int, *topics: str, **said: Any
) -> ConsumerGroupHeartbeatRequest:
    first = {
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }
    given = {**first, **said} if epoch == 0 else said
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **given
    )


def owned(topic_id: UUID, *partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))] if partitions else []


def seen(*groups: str, operations: bool = False) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=operations
    )


def list_groups(
    interview: Interview, question: str, version: int, request: ListGroupsRequest | None = None
) -> None:
    """Only our own groups count; and none that Kafka makes when it refuses a first member."""
    told = interview.line().ask(request or ListGroupsRequest(), version)
    ours = [one for one in told.groups if one.group_id.startswith("q-")]
    told.groups = [one for one in ours if one.group_id != "q-none"]
    interview.note(question, told, version)


def enter(
    interview: Interview, question: str, group: str, version: int = 9, **asked: Any
) -> tuple[Seat, Any]:
    """Join as the first or only member, also where an id must be fetched first."""
    line = asked.pop("line", "ann")
    told = interview.ask(question, join_request(group, **asked), version, line)
    if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = join_request(group, told.member_id, **asked)
        told = interview.ask(f"{question}, again", request, version, line)
    return Seat(group, told.member_id, told.generation_id), told


def member_ids(interview: Interview, group: str) -> list[str]:
    (told,) = interview.line("cid").ask(describe(group), 5).groups
    return [one.member_id for one in told.members]
