"""The redrives at partitions that this broker leads: made when somebody asks, or to go on.

A new leader asks the share coordinator whether dead letters of its partition were ever sent back,
once per term, and goes on with an order that is not over.  Where nobody ever had a queue, there is
nobody to ask.
"""

import asyncio
from collections.abc import Callable, Sequence

from waystation.broker.dead_letter_topics import DeadLetterTopics
from waystation.broker.far_redrives import FarRedrives
from waystation.broker.redrive_desk import RedriveDesk, RedriveServices
from waystation.broker.replicas import Replicas
from waystation.client.errors import is_retriable
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicId, TopicPartition
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Persister, StateSummary, Summarize
from waystation.sharing.redriven import REDRIVE_GROUP
from waystation.sharing.state_records import QueueId
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

__all__ = ["Redrives"]

_RETRY_S, _RETRY_MAX_S = 0.2, 10.0
_PER_TURN = 200
"""How many partitions are looked at before others get their turn of the loop."""

_Term = tuple[TopicId, int, LeaderEpoch]

_events = get_logger("redrive")


class Redrives:
    """One desk for each partition whose dead letters were ever sent back."""

    def __init__(
        self,
        replicas: Replicas,
        persister: Persister,
        topics: DeadLetterTopics,
        elsewhere: FarRedrives,
        is_known: Callable[[], bool],
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        """``is_known`` says whether any queue's state is kept."""
        self._replicas = replicas
        self._elsewhere = elsewhere
        self._is_known = is_known
        self._services = RedriveServices(
            persister,
            topics.courier,
            clock,
            timers,
            topics.partitions_of,
            topics.batch_bytes,
            self._done,
            registry.counter("waystation_redriven_total", "Dead letters that were sent back."),
        )
        self._desks: dict[TopicPartition, RedriveDesk] = {}
        self._looked: dict[_Term, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
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
        """Leaders may have changed: give up what others lead, go on with what is led here now."""
        for name, desk in list(self._desks.items()):
            held = self._replicas.find(*name)
            if held is None or not _is_current(desk, held):
                del self._desks[name]
                self._tasks.spawn(desk.aclose(), f"redrive-{name}-over")
        self._look_again = True
        if self._is_known() and (self._looking is None or self._looking.done()):
            self._looking = self._tasks.spawn(self._look(), "redrives")

    async def aclose(self) -> None:
        """Send nothing more; whoever leads next goes on."""
        for desk in list(self._desks.values()):
            await desk.aclose()
        await self._tasks.aclose()

    async def _look(self) -> None:
        """Ask of everything that is led here since the last look, some at a time."""
        while self._look_again:
            self._look_again = False
            looked: dict[_Term, None] = {}
            for number, partition in enumerate(list(self._replicas)):
                if number % _PER_TURN == _PER_TURN - 1:
                    await asyncio.sleep(0)
                if not partition.leading or partition.name.topic in INTERNAL_TOPICS:
                    continue
                term = partition.topic_id, partition.name.partition, partition.leadership.epoch
                looked[term] = None
                if term not in self._looked:
                    self._ask(partition.name, term)
            self._looked = looked

    def _ask(self, name: TopicPartition, term: _Term) -> None:
        queue = QueueId(REDRIVE_GROUP, term[0], term[1])

        def heard(answer: object) -> None:
            if isinstance(answer, StateSummary):
                self._tasks.spawn(self._resume(name), f"redrive-{name}")
            elif isinstance(answer, WaystationError) and is_retriable(answer):
                self._looked.pop(term, None)
                self._services.timers.call_later(_RETRY_MAX_S, self.follow)

        self._services.persister.summarize(Summarize(queue), heard)

    async def _done(
        self, numbers: Sequence[int], name: TopicPartition, redrive_id: str
    ) -> list[int]:
        names = [TopicPartition(name.topic, number) for number in numbers]
        return await self._elsewhere.done(names, redrive_id)

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
