"""What an admin does with groups: list, describe, delete, and move their offsets.

Each question goes to the group's coordinator and is repeated while it fails retriably; all of
them may be asked twice.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from waystation.client.admin_shares import ShareAdministration, describe_share_group
from waystation.client.admin_views import MatchCount, ViewAdministration
from waystation.client.coordinator import Coordinator
from waystation.client.errors import error_of
from waystation.client.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupMember,
    OffsetMove,
    PartitionLag,
)
from waystation.client.group_offsets import (
    NOBODY,
    CommittedOffset,
    commit_offsets,
    committed_at,
    fetch_offsets,
)
from waystation.client.offsets import EARLIEST, LATEST, list_offsets
from waystation.client.oldest import timestamps_at
from waystation.client.protocols import assigned_in, topics_in
from waystation.client.resets import Ends, ResetTo, moment_of, planned
from waystation.client.router import Router
from waystation.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from waystation.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from waystation.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from waystation.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from waystation.model.errors import (
    ErrorCode,
    GroupNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    UnknownMemberError,
)
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock
from waystation.wire.versions import ApiKey

__all__ = ["GroupAdministration"]

_NOT_OF_THAT_KIND = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_READING_MS = 10_000

T = TypeVar("T")


class GroupAdministration(ViewAdministration, ShareAdministration):
    """The part of an admin that is about groups."""

    _router: Router
    _clock: Clock

    async def list_groups(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Every group by name, or those in some states and of some kinds."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))

        async def attempt() -> list[GroupListing]:
            # When one is missing its groups may be anywhere: everybody is asked anew.
            found = []
            for node in sorted(self._router.view.brokers):
                found += await self._listed_by(node, request)
            return sorted(found)

        return await self._patiently(attempt)

    async def describe_groups(self, group_ids: str | Iterable[str]) -> dict[str, GroupDescription]:
        """These groups and their members; ``GroupNotFoundError`` if one does not exist."""
        return {one: await self._described(one) for one in _listed(group_ids)}

    async def delete_groups(self, group_ids: str | Iterable[str]) -> None:
        """Delete groups with all their offsets or queues; a group that has members is refused."""
        for group_id in _listed(group_ids):
            coordinator = Coordinator(self._router, group_id)

            async def attempt(coordinator: Coordinator = coordinator) -> None:
                request = DeleteGroupsRequest(groups_names=[coordinator.group_id])
                told = await coordinator.ask(request, DeleteGroupsResponse)
                coordinator.raise_if(told.results[0].error_code)

            await self._patiently(attempt)

    async def check_without_members(self, group_id: str) -> None:
        """Raise ``NonEmptyGroupError``, which names them, if the group has members."""
        try:
            found = await self._described(group_id)
        except GroupNotFoundError:
            return
        if found.members:
            named = ", ".join(sorted({f"{one.client_id} at {one.host}" for one in found.members}))
            count = f"{len(found.members)} member{'s' if len(found.members) > 1 else ''}"
            raise NonEmptyGroupError(
                f"group {group_id} has {count} ({named}): stop them, then reset it"
            )

    # --- offsets --------------------------------------------------------------------------------

    async def group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, of these partitions or of all."""
        wanted = None if partitions is None else [TopicPartition(*one) for one in partitions]
        coordinator = Coordinator(self._router, group_id)
        return await self._patiently(lambda: fetch_offsets(coordinator, wanted))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]
    ) -> None:
        """Let a group that has no members go on elsewhere; makes the group if it is not there."""
        wanted = {TopicPartition(*where): committed_at(at) for where, at in offsets.items()}
        coordinator = Coordinator(self._router, group_id)
        try:
            await self._patiently(lambda: commit_offsets(coordinator, NOBODY, wanted))
        except UnknownMemberError as error:
            raise NonEmptyGroupError(
                f"group {group_id} has members, who know better: stop them first"
            ) from error

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> None:
        """Forget what a group has committed of partitions that no member reads."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, number in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=number))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        coordinator = Coordinator(self._router, group_id)

        async def attempt() -> None:
            told = await coordinator.ask(request, OffsetDeleteResponse)
            coordinator.raise_if(told.error_code)
            for topic in told.topics:
                for one in topic.partitions:
                    coordinator.raise_if(one.error_code)

        await self._patiently(attempt)

    async def reset_group_offsets(
        self,
        group_id: str,
        to: ResetTo,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetMove]:
        """Move a group that has no members, in these partitions or in all it has committed.

        A share group's queues begin there.  A dry run only says what would happen.
        """
        is_shared = await self.is_share_group(group_id)
        committed = await (self._starts if is_shared else self.group_offsets)(group_id)
        wanted = [TopicPartition(*one) for one in partitions or committed]
        if not wanted:
            raise InvalidRequestError(
                f"group {group_id} has committed nothing that could be reset: name partitions"
            )
        moves = await self._planned(to, wanted, committed)
        if not dry_run:
            await self.check_without_members(group_id)
            if is_shared:
                starts: dict[tuple[str, int], int] = {
                    where: move.after for where, move in moves.items()
                }
                await self.alter_share_group_offsets(group_id, starts)
            else:
                await self.alter_group_offsets(
                    group_id, {where: move.after for where, move in moves.items()}
                )
        return moves

    async def group_lag(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] = (),
        found_more: Callable[[int], None] = lambda _: None,
    ) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind, where it has committed and in ``partitions``.

        ``found_more`` is told how many partitions more have been looked at.  Those that are no
        longer there are left out.
        """
        committed = await self.group_offsets(group_id)
        every = {*committed, *(TopicPartition(*one) for one in partitions)}
        wanted = await self._existing(sorted(every))
        starts = await list_offsets(self._router, dict.fromkeys(wanted, EARLIEST))
        ends = await list_offsets(self._router, dict.fromkeys(wanted, LATEST))
        behind = {
            where: Offset(max(found.offset, starts[where].offset))
            for where, found in committed.items()
            if where in ends and found.offset < ends[where].offset
        }
        found_more(len(wanted) - len(behind))
        oldest = await timestamps_at(
            self._router,
            behind,
            {where: told.offset for where, told in ends.items()},
            self._clock,
            _READING_MS,
            found_more,
        )
        views = await self._views_among(where.topic for where in behind)
        ahead: dict[tuple[str, int], int] = {
            where: offset for where, offset in behind.items() if where.topic in views
        }
        counts = await self.count_matching(ahead)
        return {
            where: _lag_of(
                PartitionLag(
                    committed[where].offset if where in committed else None,
                    starts[where].offset,
                    ends[where].offset,
                    oldest.get(where),
                ),
                counts.get(where),
            )
            for where in wanted
        }

    # --- behind the scenes ----------------------------------------------------------------------

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """A coordinator that died is missed when its lease has ended, and loads elsewhere."""
        return await self._router.retrying(attempt, self._router.settings.request_timeout_ms)

    async def _listed_by(self, node: NodeId, request: ListGroupsRequest) -> list[GroupListing]:
        told = await self._router.ask(self._router.to_node(node), request, ListGroupsResponse)
        if told.error_code:
            raise error_of(told.error_code, f"node {node}")
        return [
            GroupListing(
                one.group_id, one.group_state, one.group_type.lower(), one.protocol_type, node
            )
            for one in told.groups
        ]

    async def _described(self, group_id: str) -> GroupDescription:
        coordinator = Coordinator(self._router, group_id)

        async def attempt() -> GroupDescription:
            if await coordinator.offers(ApiKey.CONSUMER_GROUP_DESCRIBE):
                found = await _describe_consumer_group(coordinator)
                if found is not None:
                    return found
            shared = await describe_share_group(coordinator)
            if shared is not None:
                return shared
            return await _describe_classic_group(coordinator)

        return await self._patiently(attempt)

    async def _starts(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Where the queues of a share group begin, as what it has committed."""
        found = await self.share_group_offsets(group_id)
        return {
            where: committed_at(one.start) for where, one in found.items() if one.start is not None
        }

    async def _planned(
        self,
        to: ResetTo,
        wanted: list[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, OffsetMove]:
        moment = moment_of(to, self._clock.now())
        starts = await list_offsets(self._router, dict.fromkeys(wanted, EARLIEST))
        ends = await list_offsets(self._router, dict.fromkeys(wanted, LATEST))
        since = {}
        if moment is not None:
            since = await list_offsets(self._router, dict.fromkeys(wanted, moment))
        return planned(
            to,
            {
                where: Ends(
                    committed[where].offset if where in committed else None,
                    starts[where].offset,
                    ends[where].offset,
                    since[where].offset if where in since and since[where].offset >= 0 else None,
                )
                for where in wanted
            },
        )

    async def _existing(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        names = {where.topic for where in partitions}
        view = await self._patiently(lambda: self._router.look_up(names))
        return [where for where in partitions if view.find(where) is not None]


async def _describe_consumer_group(coordinator: Coordinator) -> GroupDescription | None:
    """A group of the server-side protocol; ``None`` if it is none."""
    request = ConsumerGroupDescribeRequest(group_ids=[coordinator.group_id])
    told = (await coordinator.ask(request, ConsumerGroupDescribeResponse)).groups[0]
    if told.error_code in _NOT_OF_THAT_KIND:
        return None
    coordinator.raise_if(told.error_code, told.error_message)
    members = tuple(
        GroupMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host.removeprefix("/"),
            tuple(one.subscribed_topic_names),
            _flat(one.assignment),
        )
        for one in told.members
    )
    where = await coordinator.find()
    return GroupDescription(
        told.group_id, "consumer", told.group_state, told.assignor_name, where, members
    )


async def _describe_classic_group(coordinator: Coordinator) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    told = (await coordinator.ask(request, DescribeGroupsResponse)).groups[0]
    coordinator.raise_if(told.error_code)
    if told.group_state == "Dead":
        coordinator.raise_if(ErrorCode.GROUP_ID_NOT_FOUND)
    members = tuple(
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host.removeprefix("/"),
            topics_in(one.member_metadata),
            assigned_in(one.member_assignment),
        )
        for one in told.members
    )
    where = await coordinator.find()
    return GroupDescription(
        told.group_id, "classic", told.group_state, told.protocol_data, where, members
    )


def _lag_of(lag: PartitionLag, count: MatchCount | None) -> PartitionLag:
    if count is None:
        return lag
    return lag._replace(matches=count.matches, counted_to=count.next_offset)


def _flat(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _listed(group_ids: str | Iterable[str]) -> list[str]:
    return [group_ids] if isinstance(group_ids, str) else list(group_ids)
