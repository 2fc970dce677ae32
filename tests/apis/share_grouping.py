"""The questions that tests of share groups and of queues' states ask."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.apis.grouping import Grouping
from waystation.messages import delete_share_group_state as deleting
from waystation.messages import initialize_share_group_state as initializing
from waystation.messages import read_share_group_state as reading
from waystation.messages import read_share_group_state_summary as summarizing
from waystation.messages import write_share_group_state as writing
from waystation.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from waystation.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from waystation.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from waystation.messages.find_coordinator import SHARE, FindCoordinatorRequest
from waystation.messages.share_group_describe import ShareGroupDescribeRequest
from waystation.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from waystation.model.errors import ErrorCode
from waystation.model.ids import uuid_text

GROUP = 32
AVAILABLE, ACKNOWLEDGED = 0, 2
STATES_TOPIC = "__share_group_state"
_LATER = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class ShareGrouping(Grouping):
    """A connection that knows how to ask about share groups."""

    # --- groups -----------------------------------------------------------------------------

    def share(
        self, group: str, topics: Sequence[str] | None = None, epoch: int = 0, member: str = "ann"
    ) -> Any:
        """One ShareGroupHeartbeat, once the group's coordinator has loaded."""
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        until = time.monotonic() + 9
        while (told := self.ask(request, 1)).error_code in _LATER:
            assert time.monotonic() < until, told
        return told

    def shared(self, group: str, *topics: str, member: str = "ann") -> Any:
        """Join, and go on until something is assigned."""
        told = self.share(group, topics, member=member)
        assert told.error_code == 0, told
        until = time.monotonic() + 9
        while told.assignment is None or not told.assignment.topic_partitions:
            assert time.monotonic() < until, told
            told = self.share(group, None, told.member_epoch, member)
            assert told.error_code == 0, told
        return told

    def left(self, group: str, member: str = "ann") -> None:
        """Leave."""
        told = self.share(group, None, -1, member)
        assert (told.error_code, told.member_epoch) == (0, -1), told

    def described(self, group: str, **asked: Any) -> Any:
        """One ShareGroupDescribe."""
        (told,) = self.ask(ShareGroupDescribeRequest(group_ids=[group], **asked), 1).groups
        return told

    # --- positions --------------------------------------------------------------------------

    def positions(
        self, group: str, topics: dict[str, list[int]] | None = None, *, version: int = 1
    ) -> Any:
        """One DescribeShareGroupOffsets."""
        named = DescribeShareGroupOffsetsRequestTopic
        asked = DescribeShareGroupOffsetsRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [named(topic_name=topic, partitions=some) for topic, some in topics.items()],
        )
        (told,) = self.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
        return told

    def starts(self, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        """Where each queue begins, and its lag."""
        told = self.positions(group)
        assert told.error_code == 0, told
        return {
            (topic.topic_name, one.partition_index): (one.start_offset, one.lag)
            for topic in told.topics
            for one in topic.partitions
        }

    def move(self, group: str, topic: str, starts: dict[int, int]) -> Any:
        """One AlterShareGroupOffsets."""
        named = AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
                for number, start in starts.items()
            ],
        )
        return self.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[named]), 0)

    def forget(self, group: str, *topics: str) -> Any:
        """One DeleteShareGroupOffsets."""
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
        return self.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=named), 0)

    # --- states -----------------------------------------------------------------------------

    def find_queue(self, group: str, topic_id: UUID, number: int = 0, *, version: int = 6) -> Any:
        """Who keeps a queue's state."""
        key = f"{group}:{uuid_text(topic_id)}:{number}"
        request = FindCoordinatorRequest(key=key, key_type=SHARE, coordinator_keys=[key])
        reply = self.ask(request, version)
        return reply.coordinators[0] if version >= 4 else reply

    def initialize(
        self, group: str, topic_id: UUID, number: int = 0, *, epoch: int = 1, start: int = 0
    ) -> Any:
        """One InitializeShareGroupState."""
        of = initializing.PartitionData(partition=number, state_epoch=epoch, start_offset=start)
        topic = initializing.InitializeStateData(topic_id=topic_id, partitions=[of])
        request = initializing.InitializeShareGroupStateRequest(group_id=group, topics=[topic])
        return self._asked(request)

    def load(self, group: str, topic_id: UUID, number: int = 0, *, leader: int = 0) -> Any:
        """One ReadShareGroupState."""
        of = reading.PartitionData(partition=number, leader_epoch=leader)
        topic = reading.ReadStateData(topic_id=topic_id, partitions=[of])
        return self._asked(reading.ReadShareGroupStateRequest(group_id=group, topics=[topic]))

    def write(
        self,
        group: str,
        topic_id: UUID,
        *batches: tuple[int, int, int, int],
        number: int = 0,
        epoch: int = 1,
        leader: int = 0,
        start: int = -1,
        version: int = 1,
        notes: tuple[int, bytes] = (0, b""),
    ) -> Any:
        """One WriteShareGroupState; batches are first, last, state and deliveries."""
        of = writing.PartitionData(
            partition=number,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            state_batches=[
                writing.StateBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=state,
                    delivery_count=deliveries,
                )
                for first, last, state, deliveries in batches
            ],
            notes_version=notes[0],
            notes=notes[1],
        )
        topic = writing.WriteStateData(topic_id=topic_id, partitions=[of])
        request = writing.WriteShareGroupStateRequest(group_id=group, topics=[topic])
        return self._asked(request, version)

    def erase(self, group: str, topic_id: UUID, number: int = 0) -> Any:
        """One DeleteShareGroupState."""
        topic = deleting.DeleteStateData(
            topic_id=topic_id, partitions=[deleting.PartitionData(partition=number)]
        )
        return self._asked(deleting.DeleteShareGroupStateRequest(group_id=group, topics=[topic]))

    def summary(self, group: str, topic_id: UUID, number: int = 0, *, version: int = 1) -> Any:
        """One ReadShareGroupStateSummary."""
        of = summarizing.PartitionData(partition=number, leader_epoch=0)
        topic = summarizing.ReadStateSummaryData(topic_id=topic_id, partitions=[of])
        request = summarizing.ReadShareGroupStateSummaryRequest(group_id=group, topics=[topic])
        return self._asked(request, version)

    def _asked(self, request: Any, version: int = 0) -> Any:
        """What is told of the one partition, once its coordinator has loaded."""
        until = time.monotonic() + 9
        while True:
            (topic,) = self.ask(request, version).results
            (told,) = topic.partitions
            if told.error_code not in _LATER:
                return told
            assert time.monotonic() < until, told


def batches_of(told: Any) -> list[tuple[int, int, int, int]]:
    """First, last, state and deliveries of each."""
    return [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in told.state_batches
    ]


def assigned(told: Any) -> dict[UUID, list[int]]:
    """What a member shall read."""
    return {one.topic_id: one.partitions for one in told.assignment.topic_partitions}
