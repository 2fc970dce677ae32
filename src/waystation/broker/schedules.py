"""The schedules of one broker: one for each partition of a companion topic that it holds.

A topic ``orders`` with ``schedule.enable`` has a companion ``orders.delay`` (``companions.py``).
Each replica of it keeps a book (``schedule_keeper.py``); its leader delivers
(``schedule_leader.py``), and answers what people ask about what waits:

1. an answer to a wish comes once the wish is committed and applied: no crash takes it back;
2. one wish that cannot be granted spoils no other;
3. what is asked of a broker that does not lead the partition is answered with who does.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from waystation.broker.companions import Companions, in_force
from waystation.broker.moving import Courier
from waystation.broker.picking import rows_at
from waystation.broker.replicas import Replicas
from waystation.broker.schedule_keeper import ScheduleKeeper
from waystation.broker.schedule_leader import ScheduleMeters
from waystation.model.errors import CoordinatorLoadingError, InvalidTopicError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.partition import Partition
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.records import Cancelled, Retimed
from waystation.scheduling.schedule import Pending, Schedule
from waystation.scheduling.settings import ScheduleSettings
from waystation.scheduling.topics import target_of
from waystation.scheduling.wheel import Due
from waystation.telemetry.metrics import Reading, Registry

__all__ = ["Schedules"]

Outcomes = list[WaystationError | None]

_SLICE_S: Final = 0.002


class Schedules:
    """The keepers, by partition; and the wishes of those who look after what waits."""

    def __init__(
        self,
        replicas: Replicas,
        settings: Callable[[], ScheduleSettings],
        settings_of: Callable[[str], TopicSettings],
        courier: Courier,
        companions: Companions,
        clock: Clock,
        registry: Registry,
    ) -> None:
        """``settings_of`` tells a topic's options as its operators set them."""
        self._replicas = replicas
        self._settings = settings
        self._settings_of = settings_of
        self._courier = courier
        self._companions = companions
        self._clock = clock
        self._keepers: dict[TopicPartition, ScheduleKeeper] = {}
        self._meters = ScheduleMeters(registry)
        self._tasks = Tasks()
        registry.computed(
            "waystation_schedule_pending",
            "Messages that wait for their time, in partitions led here.",
            "gauge",
            self._pending_by_topic,
        )
        registry.computed(
            "waystation_schedule_overdue_seconds",
            "For how long the earliest message of a topic has been due and not been decided upon.",
            "gauge",
            self._overdue_by_topic,
        )

    # --- what is held here --------------------------------------------------------------

    def follow(self) -> None:
        """Act on a new image: keep what this broker holds of companion topics, and only that."""
        self._companions.follow()
        is_companion = cache(self.is_companion)
        held = {one.name: one for one in self._replicas if is_companion(one.name.topic)}
        for name, keeper in list(self._keepers.items()):
            if held.get(name) is not keeper.partition:
                del self._keepers[name]
                self._let_go(keeper)
        for name, partition in held.items():
            if name in self._keepers:
                self._keepers[name].wake()
            else:
                self._keepers[name] = self._keeper(partition)
            # Another topic's option makes it a companion, so nobody else tells the partition.
            partition.reconfigure(self.settings_of(name.topic))

    def settings_of(self, topic: str) -> TopicSettings:
        """A topic's options as they are in force.  Any thread."""
        settings = self._settings_of(topic)
        return in_force(settings) if self.is_companion(topic) else settings

    def is_companion(self, topic: str) -> bool:
        """Whether messages wait in ``topic`` for a topic that has scheduling enabled."""
        target = target_of(topic)
        return target is not None and self._settings_of(target).schedule_enable

    async def aclose(self) -> None:
        """Keep nothing any more."""
        await self._companions.aclose()
        keepers, self._keepers = self._keepers, {}
        await asyncio.gather(*(keeper.aclose() for keeper in keepers.values()))
        await self._tasks.aclose()

    def keepers(self) -> list[ScheduleKeeper]:
        """Those of all companions that this broker holds."""
        return list(self._keepers.values())

    def _let_go(self, keeper: ScheduleKeeper) -> None:
        """The partition is here no more, or its topic is not scheduled any more."""
        partition = keeper.partition
        partition.rule = None
        if self._replicas.find(*partition.name) is partition:
            partition.reconfigure(self.settings_of(partition.name.topic))
        self._tasks.spawn(keeper.aclose(), f"schedule-end-{partition.name}")

    def _keeper(self, partition: Partition) -> ScheduleKeeper:
        target = target_of(partition.name.topic)
        assert target is not None, f"{partition.name} is no companion"
        keeper = ScheduleKeeper(
            partition,
            TopicPartition(target, partition.name.partition),
            self._settings,
            lambda: self._settings_of(target).max_message_bytes,
            self._courier,
            self._clock,
            self._meters,
        )
        partition.rule = keeper.check
        return keeper

    def _pending_by_topic(self) -> Reading:
        waiting: dict[str, int] = {}
        for name, keeper in self._keepers.items():
            if keeper.schedule is not None and keeper.leader is not None:
                waiting[name.topic] = waiting.get(name.topic, 0) + keeper.schedule.index.pending
        return [({"topic": topic}, count) for topic, count in waiting.items()]

    def _overdue_by_topic(self) -> Reading:
        now, overdue = self._clock.now(), dict[str, float]()
        for name, keeper in self._keepers.items():
            if keeper.schedule is not None and keeper.leader is not None:
                first = keeper.schedule.next_due()
                late_s = 0.0 if first is None else max(now - first, 0) / 1_000
                overdue[name.topic] = max(overdue.get(name.topic, 0.0), late_s)
        return [({"topic": topic}, late_s) for topic, late_s in overdue.items()]

    # --- what people ask ----------------------------------------------------------------

    def pending(
        self, topic: str, partition: int, start: Due | None, limit: int
    ) -> tuple[list[Pending], Due | None]:
        """About ``limit`` of what waits, by time, from ``start`` on, and where to go on."""
        return self._led(topic, partition)[1].pending(start, limit)

    def count(self, topic: str, partition: int) -> int:
        """How many messages wait."""
        return self._led(topic, partition)[1].index.pending

    async def rows(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Row]:
        """The committed records of the companion at ``offsets``, those that are still there."""
        keeper, _ = self._led(topic, partition)
        return await rows_at(keeper.partition, offsets, self._clock)

    async def row(self, topic: str, partition: int, offset: Offset) -> Row | None:
        """One of them."""
        return (await self.rows(topic, partition, [offset])).get(offset)

    async def look_up(
        self, topic: str, partition: int, offset: Offset
    ) -> tuple[Pending, Row | None]:
        """A message that waits, and its record; raises if it does not wait."""
        row = await self.row(topic, partition, offset)
        return self._led(topic, partition)[1].look_up(offset, row), row

    async def cancel(self, topic: str, partition: int, offsets: Sequence[Offset]) -> Outcomes:
        """Let messages never be delivered; for each, why not, if that is so."""

        def decide(schedule: Schedule, at: int, row: Row | None) -> Cancelled:
            return schedule.cancel(offsets[at], row)

        return await self._grant(topic, partition, offsets, decide)

    async def retime(
        self, topic: str, partition: int, wishes: Sequence[tuple[Offset, Millis]]
    ) -> Outcomes:
        """Let messages be delivered at other times; for each, why not, if that is so."""

        def decide(schedule: Schedule, at: int, row: Row | None) -> Retimed:
            offset, to = wishes[at]
            return schedule.retime(offset, row, to, self._clock.now())

        return await self._grant(topic, partition, [offset for offset, _ in wishes], decide)

    async def _grant(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[Offset],
        decide: Callable[[Schedule, int, Row | None], Cancelled | Retimed],
    ) -> Outcomes:
        rows = await self.rows(topic, partition, offsets)
        keeper, schedule = self._led(topic, partition)
        leader = keeper.leader
        assert leader is not None, f"{topic}-{partition} is led by nobody here"
        outcomes: Outcomes = []
        end: Offset | None = None
        until_s = self._clock.monotonic() + _SLICE_S
        for at, offset in enumerate(offsets):
            if self._clock.monotonic() >= until_s:
                await asyncio.sleep(0)
                self._led(topic, partition)
                if keeper.leader is not leader:
                    raise self._loading(keeper.partition)
                until_s = self._clock.monotonic() + _SLICE_S
            try:
                decision = decide(schedule, at, rows.get(offset))
            except WaystationError as error:
                outcomes.append(error)
                continue
            try:
                end = leader.append(decision)
            except WaystationError:
                keeper.begin_anew()
                raise
            outcomes.append(None)
        if end is not None:
            await keeper.applied(schedule, end)
        return outcomes

    def _led(self, topic: str, partition: int) -> tuple[ScheduleKeeper, Schedule]:
        held = self._replicas.get(topic, partition)
        if not self.is_companion(topic):
            raise InvalidTopicError(
                f"no messages are scheduled in {topic!r}: the place is <topic>.delay, once the "
                "topic has schedule.enable=true"
            )
        held.check_epoch(-1)
        keeper = self._keepers.get(held.name)
        if keeper is None or keeper.schedule is None or keeper.leader is None:
            raise self._loading(held)
        return keeper, keeper.schedule

    def _loading(self, partition: Partition) -> CoordinatorLoadingError:
        return CoordinatorLoadingError(
            f"the schedule of {partition.name} is not loaded yet; ask again in a moment"
        )
