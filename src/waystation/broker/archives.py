"""How far topics are archived, by the groups that they name in ``retention.after.archive``.

Such a topic keeps what its group has not committed, however old it is and however much.

1. What is told here is committed itself: no crash takes a position back after records were
   deleted on its word.
2. Whatever keeps a position from being known, be it that the group has none yet, that its
   coordinator still loads or, on another broker, does not answer, lets nothing go.
3. A position counts for the topic it was committed for, not for a namesake made since.
4. The cluster's own topics wait for nobody.

Positions are asked for when somebody is about to delete; the bytes that were kept back then are
shown to whoever scrapes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from waystation.broker.coordinators import GroupCoordinators
from waystation.broker.peers import Peers
from waystation.broker.replicas import Replicas
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.groups.offsets import Position
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from waystation.model.errors import NotCoordinatorError, WaystationError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Reading, Registry

_events = get_logger("archives")

# A coordinator that cannot commit answers nobody; those who would delete ask again later.
_PATIENCE_S = 1.0

# The first version in which topics are asked about by their ids.
_BY_ID = 10

_Place = tuple[str, TopicId, int]
"""Group, topic and partition."""
Positions = dict[tuple[TopicId, int], Offset]


class Archives:
    """The positions as they were last asked for, and what was kept for their sake."""

    def __init__(
        self,
        groups: GroupCoordinators,
        replicas: Replicas,
        peers: Peers,
        label: Callable[[str], str],
        registry: Registry,
    ) -> None:
        """``label`` is the name under which a topic is counted."""
        self._groups = groups
        self._replicas = replicas
        self._peers = peers
        self._label = label
        self._positions: dict[_Place, Offset] = {}
        self._held: dict[TopicPartition, int] = {}
        registry.computed(
            "waystation_retention_held_bytes",
            "Bytes past retention that wait for an archive.",
            "gauge",
            self._held_by_topic,
        )

    async def look(self) -> None:
        """Ask the groups that topics wait for how far they are; no topic waits, nobody is asked."""
        waiting = self._waiting()
        asked = await asyncio.gather(*(self.positions_of(*one) for one in waiting.items()))
        self._positions = {
            (group, *place): offset
            for group, positions in zip(waiting, asked, strict=True)
            for place, offset in positions.items()
        }
        held_back = {one.name for partitions in waiting.values() for one in partitions}
        self._held = {name: size for name, size in self._held.items() if name in held_back}

    def kept_from(self, partition: Partition) -> Offset | None:
        """Where that begins which must be kept; ``None`` if the topic waits for nobody."""
        group = _group_of(partition)
        if not group:
            return None
        place = (group, partition.topic_id, partition.name.partition)
        return self._positions.get(place, Offset(0))

    def held(self, partition: Partition, nbytes: int) -> None:
        """Note what retention would delete if it were archived; said aloud when it begins."""
        before, self._held[partition.name] = self._held.get(partition.name, 0), nbytes
        if nbytes and not before:
            _events.warning(
                "retention.held",
                partition=str(partition.name),
                group=_group_of(partition),
                archived_up_to=self.kept_from(partition),
                held_bytes=nbytes,
            )

    def _waiting(self) -> dict[str, list[Partition]]:
        """The partitions led here that wait, by whom they wait for."""
        waiting: dict[str, list[Partition]] = {}
        for partition in self._replicas:
            group = _group_of(partition)
            if group and partition.leading:
                waiting.setdefault(group, []).append(partition)
        return waiting

    async def positions_of(self, group: str, partitions: list[Partition]) -> Positions:
        """How far a consumer group has committed; nothing where that is not known now."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                try:
                    return await self._positions_here(group)
                except NotCoordinatorError:
                    return await self._positions_elsewhere(group, partitions)
        except (WaystationError, TimeoutError) as error:
            _events.debug("position.unknown", group=group, reason=str(error))
            return {}

    async def _positions_here(self, group: str) -> Positions:
        host = self._groups.host_of(group)
        found: tuple[Position, ...] = await host.ask(
            lambda now, to: host.machine.positions(now, group, to)
        )
        return {(one.topic_id, one.partition): Offset(one.offset) for one in found}

    async def _positions_elsewhere(self, group: str, partitions: list[Partition]) -> Positions:
        """As the coordinator on another broker has them.

        It is asked by topic ids: what it has of a former life of a topic it has forgotten by the
        time it knows the present one.
        """
        by_topic: dict[TopicId, list[int]] = {}
        for partition in partitions:
            by_topic.setdefault(partition.topic_id, []).append(partition.name.partition)
        topics = [
            OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=numbers)
            for topic_id, numbers in by_topic.items()
        ]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
        node = self._groups.leader_of(group)
        answer = await self._peers.ask(node, asked, OffsetFetchResponse, version=_BY_ID)
        return {
            (TopicId(topic.topic_id), one.partition_index): Offset(one.committed_offset)
            for found in answer.groups
            if found.group_id == group and not found.error_code
            for topic in found.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    def _held_by_topic(self) -> Reading:
        sizes: Counter[str] = Counter()
        for name, nbytes in self._held.items():
            sizes[self._label(name.topic)] += nbytes
        return [({"topic": topic}, nbytes) for topic, nbytes in sizes.items()]


def _group_of(partition: Partition) -> str:
    if partition.name.topic in INTERNAL_TOPICS:
        return ""
    return partition.settings.retention_after_archive
