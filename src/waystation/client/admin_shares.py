"""What an admin does with share groups: describe them, and see and move where their queues begin.

A queue is what a share group makes of one partition.  Everything before its start is settled; of
what comes behind, some may be.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from waystation.client.coordinator import Coordinator
from waystation.client.errors import error_of
from waystation.client.group_descriptions import GroupDescription, GroupMember
from waystation.client.router import Router
from waystation.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from waystation.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from waystation.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from waystation.messages.share_group_describe import (
    Assignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.wire.versions import ApiKey

__all__ = ["QueuePosition", "ShareAdministration", "describe_share_group"]

KIND = "share"

T = TypeVar("T")


class QueuePosition(NamedTuple):
    """Where a queue begins, ``None`` if no leader has decided yet, and how many messages wait."""

    start: Offset | None
    lag: int | None


class ShareAdministration:
    """The part of an admin that is about share groups."""

    _router: Router

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, QueuePosition]:
        """Where each queue of a share group begins; ``GroupNotFoundError`` if it is none."""
        coordinator = Coordinator(self._router, group_id)
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[wanted])

        async def attempt() -> dict[TopicPartition, QueuePosition]:
            reply = await coordinator.ask(request, DescribeShareGroupOffsetsResponse)
            (told,) = reply.groups
            coordinator.raise_if(told.error_code, told.error_message)
            found = {}
            for topic in told.topics:
                for one in topic.partitions:
                    where = TopicPartition(topic.topic_name, one.partition_index)
                    _raise_if(one.error_code, where, one.error_message)
                    found[where] = _position(one.start_offset, one.lag)
            return found

        return await self._repeated(attempt)

    async def alter_share_group_offsets(
        self, group_id: str, starts: Mapping[tuple[str, int], int]
    ) -> None:
        """Let queues of a group that has no members begin elsewhere; makes the group if need be.

        What was settled behind the new start is delivered again.
        """
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for (name, number), start in starts.items():
            topic = topics.setdefault(name, AlterShareGroupOffsetsRequestTopic(topic_name=name))
            topic.partitions.append(
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=start)
            )
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        coordinator = Coordinator(self._router, group_id)

        async def attempt() -> None:
            told = await coordinator.ask(request, AlterShareGroupOffsetsResponse)
            coordinator.raise_if(told.error_code, told.error_message)
            for topic in told.responses:
                for one in topic.partitions:
                    where = TopicPartition(topic.topic_name, one.partition_index)
                    _raise_if(one.error_code, where, one.error_message)

        await self._repeated(attempt)

    async def delete_share_group_offsets(self, group_id: str, topics: str | Iterable[str]) -> None:
        """Forget the queues of a group over topics that no member reads."""
        names = [topics] if isinstance(topics, str) else list(topics)
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=named)
        coordinator = Coordinator(self._router, group_id)

        async def attempt() -> None:
            told = await coordinator.ask(request, DeleteShareGroupOffsetsResponse)
            coordinator.raise_if(told.error_code, told.error_message)
            for topic in told.responses:
                if topic.error_code:
                    raise error_of(
                        topic.error_code, f"topic {topic.topic_name}", topic.error_message
                    )

        await self._repeated(attempt)

    async def is_share_group(self, group_id: str) -> bool:
        """Whether there is a share group of that name."""
        coordinator = Coordinator(self._router, group_id)
        return await self._repeated(lambda: describe_share_group(coordinator)) is not None

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._router.retrying(attempt, self._router.settings.request_timeout_ms)


async def describe_share_group(coordinator: Coordinator) -> GroupDescription | None:
    """A share group; ``None`` if it is none."""
    if not await coordinator.offers(ApiKey.SHARE_GROUP_DESCRIBE):
        return None
    request = ShareGroupDescribeRequest(group_ids=[coordinator.group_id])
    told = (await coordinator.ask(request, ShareGroupDescribeResponse)).groups[0]
    if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    coordinator.raise_if(told.error_code, told.error_message)
    members = tuple(
        GroupMember(
            one.member_id,
            None,
            one.client_id,
            one.client_host.removeprefix("/"),
            tuple(one.subscribed_topic_names),
            _flat(one.assignment),
        )
        for one in told.members
    )
    where = await coordinator.find()
    return GroupDescription(
        told.group_id, KIND, told.group_state, told.assignor_name, where, members
    )


def _flat(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _position(start: int, lag: int) -> QueuePosition:
    return QueuePosition(None if start < 0 else Offset(start), None if lag < 0 else lag)


def _raise_if(code: int, where: TopicPartition, said: str | None) -> None:
    if code:
        raise error_of(code, f"partition {where}", said)
