"""Reads and writes a group's committed offsets; each function asks the coordinator once.

Since v10 topics go by id, so that an offset of a topic that was deleted is not taken for one of
the topic that was made anew under its name.  Where an id is not known, the last version that had
names is used, as for fetches.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from waystation.client.coordinator import Coordinator
from waystation.client.errors import error_of
from waystation.client.metadata import ClusterView
from waystation.messages.offset_commit import (
    NO_GENERATION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from waystation.messages.offset_fetch import (
    NO_COMMITTED_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, TopicPartition
from waystation.model.offsets import Offset

__all__ = [
    "NOBODY",
    "CommittedOffset",
    "Identity",
    "commit_offsets",
    "committed_at",
    "fetch_offsets",
]

_LAST_WITH_NAMES = 9
_OF_THE_PARTITION = (
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


class CommittedOffset(NamedTuple):
    """A group has processed everything before ``offset``; ``metadata`` is its own note on that."""

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


def committed_at(position: int | CommittedOffset) -> CommittedOffset:
    """A position as whoever gives one may give it."""
    if isinstance(position, CommittedOffset):
        return position
    return CommittedOffset(Offset(position))


class Identity(NamedTuple):
    """Who commits: a member in its generation, or in its epoch."""

    member_id: str
    generation: int
    instance_id: str | None = None


NOBODY = Identity("", NO_GENERATION)
"""Who commits without being a member: an administrator, or who assigns partitions by hand."""


async def commit_offsets(
    coordinator: Coordinator,
    who: Identity,
    offsets: Mapping[TopicPartition, CommittedOffset],
    view: ClusterView | None = None,
) -> None:
    """Keep ``offsets``; raises the first error that any of them met."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, number), committed in offsets.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetCommitRequestTopic(name=name, topic_id=_id(view, name))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=coordinator.group_id,
        generation_id_or_member_epoch=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        topics=list(topics.values()),
    )
    newest = _newest(topic.topic_id for topic in topics.values())
    told = await coordinator.ask(request, OffsetCommitResponse, newest=newest)
    names = {topic.topic_id: topic.name for topic in topics.values()}
    for answer in told.topics:
        for one in answer.partitions:
            where = TopicPartition(
                answer.name or names.get(answer.topic_id, ""), one.partition_index
            )
            _raise_if(coordinator, one.error_code, where)


async def fetch_offsets(
    coordinator: Coordinator,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool = False,
    view: ClusterView | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """What the group has committed, of these partitions or of all; others are left out."""
    topics: dict[str, OffsetFetchRequestTopic] = {}
    for name, number in partitions or ():
        topic = topics.setdefault(name, OffsetFetchRequestTopic(name=name))
        topic.topic_id = _id(view, name)
        topic.partition_indexes.append(number)
    wanted = None if partitions is None else list(topics.values())
    group = OffsetFetchRequestGroup(group_id=coordinator.group_id, topics=wanted)
    request = OffsetFetchRequest(
        group_id=coordinator.group_id,
        topics=wanted,
        groups=[group],
        require_stable=require_stable,
    )
    newest = _newest(topic.topic_id for topic in topics.values()) if topics else _LAST_WITH_NAMES
    told = await coordinator.ask(request, OffsetFetchResponse, newest=newest)
    names = {topic.topic_id: topic.name for topic in topics.values()}
    return dict(_found_in(coordinator, told, names))


def _found_in(
    coordinator: Coordinator, told: OffsetFetchResponse, names: Mapping[UUID, str]
) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    answer = told.groups[0] if told.groups else told
    coordinator.raise_if(answer.error_code)
    for topic in answer.topics:
        for one in topic.partitions:
            where = TopicPartition(topic.name or names.get(topic.topic_id, ""), one.partition_index)
            _raise_if(coordinator, one.error_code, where)
            if one.committed_offset != NO_COMMITTED_OFFSET:
                yield (
                    where,
                    CommittedOffset(
                        Offset(one.committed_offset),
                        one.metadata or "",
                        LeaderEpoch(one.committed_leader_epoch),
                    ),
                )


def _raise_if(coordinator: Coordinator, code: int, where: TopicPartition) -> None:
    """An error of the whole group comes with each of its partitions."""
    if code in _OF_THE_PARTITION:
        raise _of_partition(code, where)
    coordinator.raise_if(code)


def _of_partition(code: int, where: TopicPartition) -> WaystationError:
    return error_of(code, f"partition {where}")


def _id(view: ClusterView | None, name: str) -> UUID:
    topic = None if view is None else view.topics.get(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _newest(ids: Iterable[UUID]) -> int | None:
    return _LAST_WITH_NAMES if NO_TOPIC_ID in ids else None
