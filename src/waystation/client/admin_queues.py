"""What an admin does with queues: create, list, describe, delete.

A queue is a topic and the share group that reads it, of the same name unless told.  What a group is
to do with its messages is said by configs of the group, which it may have before anybody joins it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from waystation.client.coordinator import Coordinator
from waystation.client.descriptions import ConfigEntry, CreatedTopic, TopicDescription
from waystation.client.errors import error_of
from waystation.client.group_descriptions import GroupListing
from waystation.client.offsets import EARLIEST, LATEST, list_offsets
from waystation.client.queue_descriptions import (
    QueueDescription,
    QueueListing,
    QueuePartition,
)
from waystation.client.queue_errors import unknown_queue
from waystation.client.router import Router
from waystation.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from waystation.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from waystation.messages.queue_status import (
    QueueStatusPartition,
    QueueStatusRequest,
    QueueStatusResponse,
)
from waystation.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from waystation.model.errors import (
    ErrorCode,
    GroupNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    TopicExistsError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock
from waystation.wire.versions import ApiKey

__all__ = ["QueueAdministration"]

T = TypeVar("T")

SHARE_KIND = "share"
_DEAD_LETTERS = "share.dead.letter.topic"
_RESET = "share.auto.offset.reset"
_NO_START = -1
_GROUP = 32
_HEARD_WITHIN_S, _LOOK_AGAIN_S = 5.0, 0.02


class _Wanted(NamedTuple):
    """The topic of a queue."""

    name: str
    partitions: int | None
    replicas: int | None
    configs: Mapping[str, str]


class QueueAdministration:
    """The part of an admin that is about queues."""

    _router: Router
    _clock: Clock
    create_topic: Callable[..., Awaitable[CreatedTopic]]
    describe_topic: Callable[[str], Awaitable[TopicDescription]]
    describe_configs: Callable[..., Awaitable[dict[str, ConfigEntry]]]
    alter_configs: Callable[..., Awaitable[None]]
    list_groups: Callable[..., Awaitable[list[GroupListing]]]
    delete_groups: Callable[..., Awaitable[None]]

    async def create_queue(
        self,
        name: str,
        partitions: int | None = None,
        *,
        group: str | None = None,
        replication_factor: int | None = None,
        order_by_key: bool | None = None,
        priority: bool | None = None,
        max_deliveries: int | None = None,
        lock_ms: int | None = None,
        retry_backoff_ms: int | None = None,
        dead_letter_topic: str | None = None,
        delays: bool = False,
        from_start: bool = True,
        topic_configs: Mapping[str, str] | None = None,
        group_configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a queue of the topic ``name``; true if the topic was made too.

        What is not given is left as it is.  A topic that exists is kept, with its messages, which
        the queue delivers too unless ``from_start`` is false.  The dead-letter topic is made by
        the brokers when the first message dies.  ``delays`` lets messages be sent for later.
        """
        said: dict[str, object | None] = {
            "share.order": None if order_by_key is None else "key" if order_by_key else "none",
            "share.priority": None if priority is None else str(priority).lower(),
            "max.deliveries": max_deliveries,
            "share.record.lock.duration.ms": lock_ms,
            "share.retry.backoff.ms": retry_backoff_ms,
            _DEAD_LETTERS: dead_letter_topic,
            _RESET: "earliest" if from_start else "latest",
        }
        configs = {option: str(value) for option, value in said.items() if value is not None}
        configs |= group_configs or {}
        of_topic = dict(topic_configs or {})
        if delays:
            of_topic["schedule.enable"] = "true"
        topic = _Wanted(name, partitions, replication_factor, of_topic)
        # Nothing is made before it is known that all of it can be, and no topic before its group
        # knows where to begin.
        await self.alter_configs(group=group or name, set=configs, validate_only=True)
        is_new = await self._is_new(topic)
        await self.alter_configs(group=group or name, set=configs)
        await self._known_everywhere(group or name, configs)
        return await self._made(topic) if is_new else False

    async def list_queues(self) -> list[QueueListing]:
        """Every share group by name, and the topics it has queues of."""
        found = []
        for one in await self.list_groups(kinds=[SHARE_KIND]):
            topics = await self._share_offsets(one.group_id)
            names = sorted(topic.topic_name for topic in topics)
            found.append(QueueListing(one.group_id, one.state, tuple(names)))
        return found

    async def describe_queue(self, name: str, *, group: str | None = None) -> QueueDescription:
        """How many messages of a queue wait, are out, and were given up."""
        group_id = group or name
        try:
            described = await self.describe_topic(name)
        except UnknownTopicError:
            raise unknown_queue(name) from None
        every = [TopicPartition(name, one.partition) for one in described.partitions]
        ends = await list_offsets(self._router, dict.fromkeys(every, LATEST))
        topics = {one.topic_name: one for one in await self._share_offsets(group_id)}
        told = {} if name not in topics else _by_number(topics[name])
        at_leaders = await self._at_leaders(group_id, described)
        partitions = tuple(
            _stands(
                told.get(where.partition),
                at_leaders.get(where.partition),
                where,
                ends[where].offset,
            )
            for where in every
        )
        state, members = await self._state_of(group_id)
        options = await self._options_of(group_id)
        if options.get(_RESET) == "earliest":
            partitions = await self._with_all_that_waits(name, partitions)
        dead_letter_topic = options.get(_DEAD_LETTERS) or None
        dead = None if dead_letter_topic is None else await self._messages_in(dead_letter_topic)
        return QueueDescription(name, group_id, state, members, partitions, dead_letter_topic, dead)

    async def passes_over(self, name: str, *, group: str | None = None) -> bool:
        """Whether what is in the topic now will never be received.

        So it is where nobody has received yet, and the group begins at the end, as Kafka's groups
        do unless told.
        """
        options = await self._options_of(group or name)
        if options.get(_RESET) != "latest":
            return False
        begun = [one.topic_name for one in await self._share_offsets(group or name)]
        return name not in begun

    async def delete_queue(self, name: str, *, group: str | None = None) -> None:
        """Forget what was settled, by deleting the group; the topic and its messages stay."""
        await self.delete_groups(group or name)

    # --- behind the scenes ----------------------------------------------------------------------

    async def _is_new(self, wanted: "_Wanted") -> bool:
        """Whether the topic is still to be made; raises if it cannot be, or is another one."""
        try:
            found = await self.describe_topic(wanted.name)
        except UnknownTopicError:
            await self._create(wanted, validate_only=True)
            return True
        count = len(found.partitions)
        if wanted.partitions not in (None, count):
            raise InvalidPartitionsError(
                f"topic {wanted.name} exists, with {count} partitions, not {wanted.partitions}: "
                f"leave their number away, or raise it with `waystation topic alter {wanted.name}`"
            )
        if wanted.configs:
            await self.alter_configs(wanted.name, set=wanted.configs)
        return False

    async def _made(self, wanted: "_Wanted") -> bool:
        try:
            await self._create(wanted)
        except TopicExistsError:
            return False  # somebody was faster
        return True

    async def _create(self, wanted: "_Wanted", *, validate_only: bool = False) -> None:
        await self.create_topic(
            wanted.name,
            wanted.partitions,
            replication_factor=wanted.replicas,
            configs=wanted.configs,
            validate_only=validate_only,
        )

    async def _known_everywhere(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Wait until every broker that answers has heard of the group's configs.

        One that has not would begin a queue elsewhere than was said, for good.
        """
        wanted = DescribeConfigsResource(
            resource_type=_GROUP, resource_name=group_id, configuration_keys=list(configs)
        )
        request = DescribeConfigsRequest(resources=[wanted])
        ends_at = self._clock.monotonic() + _HEARD_WITHIN_S
        for node in list(self._router.view.brokers):
            while self._clock.monotonic() < ends_at:
                try:
                    to = self._router.to_node(node)
                    told = await self._router.ask(to, request, DescribeConfigsResponse)
                except WaystationError:
                    break  # it is away, and reads everything when it is back
                known = {one.name: one.value for one in told.results[0].configs}
                if told.results[0].error_code or configs.items() <= known.items():
                    break
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _share_offsets(self, group_id: str) -> list[DescribeShareGroupOffsetsResponseTopic]:
        """Where the queues of a group begin; none, if it has none."""
        coordinator = Coordinator(self._router, group_id)
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[wanted])

        async def attempt() -> list[DescribeShareGroupOffsetsResponseTopic]:
            told = await coordinator.ask(request, DescribeShareGroupOffsetsResponse)
            group = told.groups[0]
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return []
            coordinator.raise_if(group.error_code, group.error_message)
            return group.topics

        return await self._asked(attempt)

    async def _at_leaders(
        self, group_id: str, topic: TopicDescription
    ) -> dict[int, QueueStatusPartition]:
        """What leaders know of their queues; nothing, where they are not Waystation's."""
        found: dict[int, QueueStatusPartition] = {}
        by_leader: dict[NodeId, list[int]] = {}
        for one in topic.partitions:
            by_leader.setdefault(one.leader, []).append(one.partition)
        for leader, numbers in by_leader.items():
            if leader not in self._router.view.brokers:
                continue
            connection = await self._router.to_node(leader)
            if not connection.speaks(ApiKey.QUEUE_STATUS):
                continue
            request = QueueStatusRequest(group_id=group_id, topic_id=topic.id, partitions=numbers)
            told = await self._router.ask(
                self._router.to_node(leader), request, QueueStatusResponse
            )
            found |= {one.partition_index: one for one in told.partitions if not one.error_code}
        return found

    async def _state_of(self, group_id: str) -> tuple[str, int]:
        coordinator = Coordinator(self._router, group_id)
        request = ShareGroupDescribeRequest(group_ids=[group_id])

        async def attempt() -> tuple[str, int]:
            told = (await coordinator.ask(request, ShareGroupDescribeResponse)).groups[0]
            try:
                coordinator.raise_if(told.error_code, told.error_message)
            except GroupNotFoundError:
                return "Dead", 0
            return told.group_state, len(told.members)

        return await self._asked(attempt)

    async def _options_of(self, group_id: str) -> dict[str, str | None]:
        try:
            configs = await self.describe_configs(group=group_id)
        except InvalidConfigError:
            return {}  # a broker whose groups have no configs
        return {name: one.value for name, one in configs.items()}

    async def _with_all_that_waits(
        self, name: str, partitions: tuple[QueuePartition, ...]
    ) -> tuple[QueuePartition, ...]:
        """Where nobody has received anything, the queue will begin with the oldest message."""
        unread = [TopicPartition(name, one.partition) for one in partitions if one.start is None]
        starts = await list_offsets(self._router, dict.fromkeys(unread, EARLIEST))
        return tuple(
            one
            if one.start is not None
            else one._replace(
                unsettled=one.end - starts[TopicPartition(name, one.partition)].offset,
                in_flight=0,
                waiting=0,
            )
            for one in partitions
        )

    async def _messages_in(self, topic: str) -> int | None:
        """How many messages a topic holds, as far as offsets tell."""
        try:
            described = await self.describe_topic(topic)
        except UnknownTopicError:
            return 0
        every = [TopicPartition(topic, one.partition) for one in described.partitions]
        starts = await list_offsets(self._router, dict.fromkeys(every, EARLIEST))
        ends = await list_offsets(self._router, dict.fromkeys(every, LATEST))
        return sum(ends[where].offset - starts[where].offset for where in every)

    async def _asked(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._router.retrying(attempt, self._router.settings.request_timeout_ms)


def _by_number(
    topic: DescribeShareGroupOffsetsResponseTopic,
) -> dict[int, DescribeShareGroupOffsetsResponsePartition]:
    for one in topic.partitions:
        if one.error_code:
            where = TopicPartition(topic.topic_name, one.partition_index)
            raise error_of(one.error_code, f"partition {where}", one.error_message)
    return {one.partition_index: one for one in topic.partitions}


def _stands(
    stored: DescribeShareGroupOffsetsResponsePartition | None,
    at_leader: QueueStatusPartition | None,
    where: TopicPartition,
    end: Offset,
) -> QueuePartition:
    if at_leader is not None and at_leader.in_use:
        # What it has in memory is newer than what is stored.
        start, seen = at_leader.start_offset, at_leader.end_offset
        unsettled = seen - start - at_leader.settled + max(end - seen, 0)
        out, waiting = at_leader.in_flight, at_leader.waiting + at_leader.dying
        return QueuePartition(where.partition, Offset(start), end, unsettled, out, waiting)
    if stored is None or stored.start_offset == _NO_START:
        return QueuePartition(where.partition, None, end, None)
    unsettled = stored.lag if stored.lag >= 0 else max(end - stored.start_offset, 0)
    out_or_unknown = None if at_leader is None else 0
    return QueuePartition(
        where.partition,
        Offset(stored.start_offset),
        end,
        unsettled,
        out_or_unknown,
        out_or_unknown,
    )
