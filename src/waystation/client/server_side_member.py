"""A member of a group by the server-side protocol (KIP-848): the broker shares partitions out.

The whole protocol is one request: the member says what it wants and owns, and is told what to
read.  It gives up what it is not told, takes what is new and says so with the next heartbeat;
partitions that stay are read on.  Promises:

1. a partition that it shall give up is reported as given up only when it is;
2. heartbeats go on while it waits for the application; if that stays away too long, it leaves.
"""

import asyncio
from contextlib import suppress
from random import Random

from waystation.client.errors import is_retriable
from waystation.client.group_offsets import Identity
from waystation.client.member import Surroundings, without
from waystation.messages.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    UNCHANGED,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from waystation.model.errors import (
    FencedMemberEpochError,
    GroupNotFoundError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import TopicId, TopicPartition, uuid_text
from waystation.runtime.chance import SeededChance
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

__all__ = ["ServerSideMember"]

_events = get_logger("client")


class ServerSideMember:
    """One member; ``run`` is its life."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._member_id = _new_id(around.router.chance)
        self._epoch = JOIN
        self._interval_ms = around.settings.heartbeat_interval_ms
        self._target: dict[TopicId, list[int]] = {}
        self._told_topics: tuple[str, ...] | None = None
        self._told_owned: tuple[TopicPartition, ...] | None = None
        self._assigned = asyncio.Event()
        self._news = asyncio.Event()
        self._unknown = False  # whether an assigned topic is not in view yet
        self._is_lost = False
        self._is_late = False
        self._trouble: WaystationError | None = None
        self._tasks = Tasks()

    @property
    def identity(self) -> Identity | None:
        """Who commits; ``None`` while it is no member."""
        if self._epoch <= JOIN:
            return None
        return Identity(self._member_id, self._epoch, self._around.settings.group_instance_id)

    def resubscribe(self) -> None:
        """Tell the broker at once."""
        self._news.set()

    async def run(self) -> None:
        """Join and stay, until cancelled or told something that only the application can mend."""
        router = self._around.router
        router.on_change.append(self._look_at_topics)
        self._tasks.spawn(self._reconcile(), f"group-reconcile {self._around.coordinator.group_id}")
        failures = 0
        try:
            while self._trouble is None:
                wait_s = self._interval_ms / 1_000
                try:
                    await self._stay()
                    failures = 0
                except WaystationError as error:
                    self._take_note(error)
                    failures += 1
                    wait_s = min(wait_s, router.backoff.delay_s(failures))
                await self._until_news(wait_s)
            raise self._trouble
        finally:
            router.on_change.remove(self._look_at_topics)
            await self._tasks.aclose()

    async def leave(self) -> None:
        """Go at once; a static member says that it may be back."""
        if self._epoch <= JOIN:
            return
        static = self._around.settings.group_instance_id is not None
        self._epoch = LEAVE_FOR_A_WHILE if static else LEAVE
        request = self._named()
        self._epoch = JOIN
        with suppress(WaystationError):  # then it is missed, in the end
            await self._around.coordinator.ask(request, ConsumerGroupHeartbeatResponse)

    # --- heartbeats -----------------------------------------------------------------------------

    async def _stay(self) -> None:
        """One heartbeat, unless what was lost is still being put away."""
        if self._is_lost:
            return
        if self._epoch > JOIN and self._around.is_late:
            await self._give_way()
            return
        request = self._named()
        topics, owned = self._around.subscription.topics, self._around.ownership.owned
        if self._epoch == JOIN:
            request.topic_partitions = []
        elif owned != self._told_owned:
            request.topic_partitions = self._by_topic(owned)
        if self._told_topics is None:
            request.rebalance_timeout_ms = self._around.rebalance_timeout_ms
            request.server_assignor = self._around.settings.remote_assignor
        if topics != self._told_topics:
            request.subscribed_topic_names = sorted(topics)
        told = await self._around.coordinator.ask(request, ConsumerGroupHeartbeatResponse)
        self._around.coordinator.raise_if(told.error_code, told.error_message)
        self._told_topics, self._told_owned = topics, owned
        self._take(told)

    def _named(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat that says nothing new."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self._around.coordinator.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=self._around.settings.group_instance_id,
            rebalance_timeout_ms=UNCHANGED,
        )

    def _take(self, told: ConsumerGroupHeartbeatResponse) -> None:
        if self._epoch == JOIN:
            _events.debug("group.joined", member=self._member_id, epoch=told.member_epoch)
        self._member_id = told.member_id or self._member_id
        self._epoch = told.member_epoch
        self._interval_ms = told.heartbeat_interval_ms or self._interval_ms
        if told.assignment is not None:
            self._target = {
                TopicId(one.topic_id): list(one.partitions)
                for one in told.assignment.topic_partitions
            }
            self._assigned.set()

    async def _until_news(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        self._news.clear()

    def _by_topic(self, owned: tuple[TopicPartition, ...]) -> list[TopicPartitions]:
        topics: dict[str, TopicPartitions] = {}
        for name, number in owned:
            view = self._around.router.view.topics.get(name)
            if view is not None:
                topic = topics.setdefault(name, TopicPartitions(topic_id=view.id))
                topic.partitions.append(number)
        return list(topics.values())

    # --- reconciliation -------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        """Bring what is read in line with what was told, whenever that changes."""
        while self._trouble is None:
            await self._assigned.wait()
            self._assigned.clear()
            try:
                await self._move()
            except WaystationError as error:
                self._trouble = error  # ``run`` raises it
            self._news.set()

    async def _move(self) -> None:
        ownership = self._around.ownership
        wanted = [] if self._is_lost else await self._resolved()
        await self._around.progress.at_rest()
        if self._is_lost:
            await self._put_away()
            return
        await ownership.revoke(without(ownership.owned, set(wanted)))
        await ownership.assign(wanted)
        self._told_owned = None  # say so, even if nothing changed

    async def _put_away(self) -> None:
        await self._around.ownership.lose()
        if self._is_late:
            await self._around.progress.polled()
        self._is_lost = self._is_late = False

    async def _resolved(self) -> list[TopicPartition]:
        """What to read, by name; topics that are not in view yet follow when they are."""
        names = self._names()
        if not self._target.keys() <= names.keys():
            with suppress(WaystationError):
                await self._around.router.refresh()
            names = self._names()
        self._unknown = not self._target.keys() <= names.keys()
        return [
            TopicPartition(names[topic_id], number)
            for topic_id, numbers in self._target.items()
            if topic_id in names
            for number in numbers
        ]

    def _names(self) -> dict[TopicId, str]:
        return {topic.id: name for name, topic in self._around.router.view.topics.items()}

    def _look_at_topics(self) -> None:
        if self._unknown:
            self._assigned.set()

    # --- trouble --------------------------------------------------------------------------------

    async def _give_way(self) -> None:
        """The application stays away: let others have the partitions until it is back."""
        _events.warning(
            "group.late", member=self._member_id, limit=self._around.settings.max_poll_interval_ms
        )
        self._is_late = True
        await self.leave()
        self._forget()

    def _take_note(self, error: WaystationError) -> None:
        """Go on after ``error``, or raise it."""
        match error:
            case FencedMemberEpochError() | UnknownMemberError():
                self._forget()
            case GroupNotFoundError() if self._epoch > JOIN:
                self._forget()  # deleted meanwhile, or classic since its others left this one out
            case _ if is_retriable(error):
                self._told_topics = self._told_owned = None  # who knows what has arrived
            case _:
                raise error

    def _forget(self) -> None:
        """The group goes on without this member: what it owns is others' by now."""
        self._epoch = JOIN
        self._told_topics = self._told_owned = None
        self._target = {}
        self._is_lost = True
        self._around.ownership.halt()
        self._assigned.set()


def _new_id(chance: Random) -> str:
    """An id as Kafka's clients make them: 22 characters that nobody else has."""
    return uuid_text(SeededChance(chance.getrandbits(128)).new_id())
