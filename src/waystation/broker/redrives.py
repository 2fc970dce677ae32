"""The redrives at partitions that this broker leads: made when somebody asks, or to go on.

A new leader of a topic that some group names for its dead letters looks whether an order was being
carried out there, and goes on with it.  Of other topics it hears when somebody asks again.
"""

import asyncio
from collections.abc import Mapping

from waystation.broker.dead_letter_topics import DeadLetterTopics
from waystation.broker.group_options import GroupOptions
from waystation.broker.redrive_desk import RedriveDesk, RedriveServices
from waystation.broker.replicas import Replicas
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicId, TopicPartition
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Persister
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

__all__ = ["Redrives"]

_RETRY_S, _RETRY_MAX_S = 0.2, 10.0

_Term = tuple[TopicId, int, LeaderEpoch]

_events = get_logger("redrive")


class Redrives:
    """One desk for each partition whose dead letters were ever sent back."""

    def __init__(
        self,
        replicas: Replicas,
        persister: Persister,
        topics: DeadLetterTopics,
        options: GroupOptions,
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        self._replicas = replicas
        self._options = options
        self._services = RedriveServices(
            persister,
            topics.courier,
            clock,
            timers,
            topics.partitions_of,
            topics.batch_bytes,
            registry.counter("waystation_redriven_total", "Dead letters that were sent back."),
        )
        self._desks: dict[TopicPartition, RedriveDesk] = {}
        self._looked: dict[_Term, None] = {}
        self._tasks = Tasks()

    def desk(self, topic: str, number: int) -> RedriveDesk:
        """The desk of a partition; raises where another leads."""
        partition = self._replicas.get(topic, number)
        partition.check_epoch(NO_LEADER_EPOCH)
        found = self._desks.get(partition.name)
        if found is None or not _is_current(found, partition):
            if found is not None:
                self._tasks.spawn(found.aclose(), f"redrive-{partition.name}-over")
            found = self._desks[partition.name] = RedriveDesk(partition, self._services)
        return found

    def follow(self) -> None:
        """Leaders or options may have changed: give up what others lead, go on with what is new."""
        for name, desk in list(self._desks.items()):
            held = self._replicas.find(*name)
            if held is None or not _is_current(desk, held):
                del self._desks[name]
                self._tasks.spawn(desk.aclose(), f"redrive-{name}-over")
        looked = dict(self._looked)
        self._looked.clear()
        for topic in sorted(self._options.dead_letter_topics()):
            for partition in self._replicas.of_topic(topic):
                if partition.leading:
                    self._look(partition, looked)

    async def aclose(self) -> None:
        """Send nothing more; whoever leads next goes on."""
        for desk in list(self._desks.values()):
            await desk.aclose()
        await self._tasks.aclose()

    def _look(self, partition: Partition, looked: Mapping[_Term, None]) -> None:
        term = partition.topic_id, partition.name.partition, partition.leadership.epoch
        self._looked[term] = None
        if term not in looked:
            self._tasks.spawn(self._resume(partition.name), f"redrive-{partition.name}")

    async def _resume(self, name: TopicPartition) -> None:
        """Find out whether an order is to be gone on with, however long that takes."""
        failures = 0
        while True:
            try:
                desk = self.desk(*name)
                await desk.load(begin=False)
            except WaystationError as error:
                held = self._replicas.find(*name)
                if held is None or not held.leading:
                    return
                _events.debug("redrive.unknown", partition=str(name), reason=str(error))
            else:
                return
            await asyncio.sleep(min(_RETRY_S * 2**failures, _RETRY_MAX_S))
            failures = min(failures + 1, 10)


def _is_current(desk: RedriveDesk, partition: Partition) -> bool:
    return (
        not desk.closed
        and desk.partition is partition
        and partition.leading
        and desk.epoch == partition.leadership.epoch
    )
