"""The questions that tests of groups ask, each in any version, and groups made by hand."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from tests.apis.asking import Asking
from tests.support.group_members import written_assignment, written_subscription
from waystation.broker.group_records import GroupRecordReader
from waystation.groups.records import Fact
from waystation.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from waystation.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from waystation.messages.delete_groups import DeleteGroupsRequest
from waystation.messages.describe_groups import DescribeGroupsRequest
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.heartbeat import HeartbeatRequest
from waystation.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from waystation.messages.leave_group import LeaveGroupRequest, MemberIdentity
from waystation.messages.list_groups import ListGroupsRequest
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_TOPIC_ID
from waystation.wire.versions import ApiKey

SESSION_MS, REBALANCE_MS = 10_000, 30_000
CONSUMER, RANGE = "consumer", "range"
SEVERAL_GROUPS_FROM, COMMIT_IDS_FROM, FETCH_IDS_FROM = 8, 10, 10
OFFSETS_TOPIC = "__consumer_offsets"


class Seat(NamedTuple):
    """A member's place in a classic group."""

    group: str
    member_id: str
    generation: int


class Grouping(Asking):
    """A connection that knows how to ask a group's coordinator."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.address = host, port

    def find(self, group: str, *, version: int = 6) -> Any:
        """Who coordinates the group."""
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        reply = self.ask(request, version)
        return reply.coordinators[0] if version >= 4 else reply

    # --- the classic protocol ---------------------------------------------------------------

    def join(self, group: str, member_id: str = "", *, version: int = 9, **asked: Any) -> Any:
        """One JoinGroup, whatever comes of it."""
        return self.ask(join_request(group, member_id, **asked), version)

    def start_join(self, group: str, member_id: str = "", **asked: Any) -> None:
        """A JoinGroup of a new member as far as its wait; ``end_join`` gives its answer."""
        if not member_id and asked.get("instance_id") is None:
            told = self.join(group, **asked)
            assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED, told
            member_id = told.member_id
        self.send(join_request(group, member_id, **asked), 9)

    def interrupt(self, group: str, **asked: Any) -> None:
        """Join a group that has members, so that it must rebalance, and wait until it does."""
        self.start_join(group, **asked)
        with Grouping(*self.address) as other:
            other.await_state(group, "PreparingRebalance")

    def end_join(self) -> Any:
        """The answer to the join that was started."""
        return self.receive(ApiKey.JOIN_GROUP, 9)

    def enter(self, group: str, **asked: Any) -> Any:
        """Join as a new member, and wait for the generation."""
        self.start_join(group, **asked)
        joined = self.end_join()
        assert joined.error_code == 0, joined
        return joined

    def sit_alone(self, group: str, *topics: str, **asked: Any) -> Seat:
        """Be the only member of a stable group."""
        joined = self.enter(group, topics=topics, **asked)
        seat = Seat(group, joined.member_id, joined.generation_id)
        owned = [(topic, 0) for topic in topics]
        synced = self.sync(seat, {seat.member_id: written_assignment(owned)})
        assert synced.error_code == 0, synced
        return seat

    def sync(
        self, seat: Seat, shares: dict[str, bytes] | None = None, *, version: int = 5, **asked: Any
    ) -> Any:
        """One SyncGroup, whatever comes of it."""
        return self.ask(sync_request(seat, shares, **asked), version)

    def heartbeat(self, seat: Seat, *, version: int = 4, instance_id: str | None = None) -> int:
        """The error code of one heartbeat."""
        request = HeartbeatRequest(
            group_id=seat.group,
            generation_id=seat.generation,
            member_id=seat.member_id,
            group_instance_id=instance_id,
        )
        return int(self.ask(request, version).error_code)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        """One LeaveGroup; members by their id and instance id."""
        request = LeaveGroupRequest(
            group_id=group,
            member_id=members[0][0] if members else "",
            members=[
                MemberIdentity(member_id=member, group_instance_id=instance)
                for member, instance in members
            ],
        )
        return self.ask(request, version)

    # --- the server-side protocol -----------------------------------------------------------

    def beat(self, group: str, member_id: str, epoch: int, *, version: int = 1, **said: Any) -> Any:
        """One ConsumerGroupHeartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, **said
        )
        return self.ask(request, version)

    def beat_first(self, group: str, member_id: str, *topics: str, **said: Any) -> Any:
        """The heartbeat of one who joins."""
        first = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.beat(group, member_id, 0, **{**first, **said})

    # --- offsets ----------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        metadata: str | None = "",
        version: int = 9,
        seat: Seat | None = None,
        topic_id: UUID | None = None,
        **asked: Any,
    ) -> int:
        """The error code of committing one position."""
        if version >= COMMIT_IDS_FROM and topic_id is None:
            topic_id = self.topic_id(topic)
        one = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=asked.pop("leader_epoch", -1),
        )
        named = OffsetCommitRequestTopic(
            name=topic, topic_id=topic_id or NO_TOPIC_ID, partitions=[one]
        )
        request = commit_request(group, [named], seat, **asked)
        (answer,) = self.ask(request, version).topics
        assert (answer.name, answer.topic_id) == (
            (topic, NO_TOPIC_ID) if version < COMMIT_IDS_FROM else ("", topic_id)
        )
        (told,) = answer.partitions
        assert told.partition_index == partition
        return int(told.error_code)

    def committed(self, group: str, topic: str, partition: int = 0, *, version: int = 9) -> Any:
        """One position of one group."""
        topic_id = self.topic_id(topic) if version >= FETCH_IDS_FROM else NO_TOPIC_ID
        named = OffsetFetchRequestTopic(
            name=topic, topic_id=topic_id, partition_indexes=[partition]
        )
        (told,) = self.fetch_offsets(group, [named], version=version).topics
        (one,) = told.partitions
        assert one.partition_index == partition
        return one

    def fetch_offsets(
        self,
        group: str,
        topics: list[OffsetFetchRequestTopic] | None,
        *,
        version: int = 9,
        **asked: Any,
    ) -> Any:
        """What is told of one group; its topics and error are in the same place in all versions."""
        request = OffsetFetchRequest(
            group_id=group,
            topics=topics,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics, **asked)],
        )
        reply = self.ask(request, version)
        if version < SEVERAL_GROUPS_FROM:
            return reply
        (told,) = reply.groups
        assert told.group_id == group
        return told

    def delete_offsets(self, group: str, topic: str, *partitions: int) -> Any:
        """One OffsetDelete."""
        wanted = [OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
        named = OffsetDeleteRequestTopic(name=topic, partitions=wanted)
        return self.ask(OffsetDeleteRequest(group_id=group, topics=[named]), 0)

    # --- administration ---------------------------------------------------------------------

    def describe(self, group: str, *, version: int = 6, **asked: Any) -> Any:
        """One group, as classic tools see it."""
        request = DescribeGroupsRequest(groups=[group], **asked)
        (told,) = self.ask(request, version).groups
        return told

    def describe_server_side(self, group: str, *, version: int = 1, **asked: Any) -> Any:
        """One group of the server-side protocol."""
        request = ConsumerGroupDescribeRequest(group_ids=[group], **asked)
        (told,) = self.ask(request, version).groups
        return told

    def await_state(self, group: str, state: str) -> None:
        """Wait until a group is in a state: requests of others may still be on their way."""
        until = time.monotonic() + 9
        while (found := self.describe(group, version=5).group_state) != state:
            assert time.monotonic() < until, f"{group} is {found}, not {state}"

    def listed(self, *, version: int = 5, **asked: Any) -> dict[str, Any]:
        """Groups by their id."""
        reply = self.ask(ListGroupsRequest(**asked), version)
        assert reply.error_code == 0, reply
        return {one.group_id: one for one in reply.groups}

    def delete_groups(self, *groups: str, version: int = 2) -> list[tuple[str, int]]:
        """Each group and its error code."""
        reply = self.ask(DeleteGroupsRequest(groups_names=list(groups)), version)
        return [(one.group_id, one.error_code) for one in reply.results]

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; none if it is not there."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        return len(self.ask(request, 9).topics[0].partitions)

    def remembered(self, group: str) -> list[Fact]:
        """All that is written down about a group, oldest first."""
        read, found = GroupRecordReader().read, []
        for number in range(self.partitions_of(OFFSETS_TOPIC)):
            for record in self.read(OFFSETS_TOPIC, partition=number):
                assert record.key is not None, "compacted topics have keys"
                fact = read(record.key, record.value)
                if fact is not None and fact.group_id == group:
                    found.append(fact)
        return found


def join_request(
    group: str,
    member_id: str = "",
    *,
    topics: Iterable[str] = (),
    protocols: Iterable[tuple[str, bytes]] | None = None,
    protocol_type: str = CONSUMER,
    instance_id: str | None = None,
    session_timeout_ms: int = SESSION_MS,
    rebalance_timeout_ms: int = REBALANCE_MS,
    reason: str | None = None,
) -> JoinGroupRequest:
    """A member that subscribes to ``topics``, unless its protocols are given."""
    spoken = [(RANGE, written_subscription(topics))] if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=said) for name, said in spoken],
        reason=reason,
    )


def sync_request(
    seat: Seat,
    shares: dict[str, bytes] | None = None,
    *,
    instance_id: str | None = None,
    protocol_type: str | None = CONSUMER,
    protocol: str | None = RANGE,
) -> SyncGroupRequest:
    """A member's question, or a leader's answer, for what everyone shall read."""
    return SyncGroupRequest(
        group_id=seat.group,
        generation_id=seat.generation,
        member_id=seat.member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=share)
            for member, share in (shares or {}).items()
        ],
    )


def commit_request(
    group: str, topics: list[OffsetCommitRequestTopic], seat: Seat | None = None, **asked: Any
) -> OffsetCommitRequest:
    """A commit of a member, or of one who is none."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if seat is None else seat.generation,
        member_id="" if seat is None else seat.member_id,
        topics=topics,
        **asked,
    )
