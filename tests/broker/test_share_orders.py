"""What share groups have done at share coordinators that are slow, away, or interrupted."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.runtime.tally import ScriptedLog
from tests.support.memory_persister import MemoryPersister
from waystation.broker.all_groups import AllGroups
from waystation.broker.coordinators import TopicsNow
from waystation.broker.share_orders import ShareOrders
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import UNBORN, TopicImage
from waystation.groups.machine import _ANY_PRODUCER
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    NonEmptyGroupError,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.runtime.clock import SteadyClock, SystemClock
from waystation.runtime.host import Host
from waystation.runtime.timers import Timers
from waystation.sharing.group_commands import ShareHeartbeat, ShareHeartbeatDone, flat
from waystation.sharing.group_machine import ShareGroups
from waystation.sharing.persister import StateSummary, Write
from waystation.sharing.settings import ShareSettings
from waystation.sharing.state_records import QueueId

TOPIC = TopicId(UUID(int=7))
GROUPS = GroupSettings()


def image(partitions: int) -> ClusterImage:
    topic = TopicImage("orders", TOPIC, (UNBORN,) * partitions, 1)
    return replace(ClusterImage(), topics={"orders": topic}, topics_by_id={TOPIC: topic})


class Desk:
    """One machine of groups, its orders, and the share coordinators."""

    def __init__(self) -> None:
        self.persister = MemoryPersister()
        self.orders = ShareOrders(self.persister)
        self.topics = TopicsNow()
        self.topics.adopt(image(2))
        self.log = ScriptedLog()
        self.log.commits_at_once = True
        self.host = self._begin()

    def _begin(self) -> Host[Any]:
        clerk = self.orders.clerk()
        shares = ShareGroups(ShareSettings, self.topics, lambda: "id", clerk.hear)
        machine = AllGroups(
            lambda: GROUPS, self.topics, lambda: "id", _ANY_PRODUCER, shares, lambda _: GROUPS
        )
        for record in self.log.records:
            machine.apply(record)
        clock = SystemClock()
        host: Host[Any] = Host(
            machine,
            self.log,
            clock=SteadyClock(clock),
            timers=Timers(clock),
            failed=lambda error: None,
        )
        clerk.begin(host)
        return host

    def again(self) -> None:
        """Another broker takes over."""
        self.host = self._begin()

    async def beat(self, epoch: int = 0, member: str = "ann") -> ShareHeartbeatDone:
        topics = ("orders",) if epoch == 0 else None
        command = ShareHeartbeat("g", member, epoch, "c", "h", None, topics)
        done: ShareHeartbeatDone = await self.host.ask(
            lambda now, to: self.host.machine.share_heartbeat(now, command, to)
        )
        return done

    async def settled(self) -> None:
        await self.orders.settled("g", 5)

    async def joined(self) -> int:
        """Somebody reads both partitions; the epoch."""
        done = await self.beat()
        await self.settled()
        done = await self.beat(done.member_epoch)
        assert done.assigned == ((TOPIC, (0, 1)),)
        return done.member_epoch

    def kept(self) -> list[int]:
        """The partitions of which a queue's state is kept."""
        return sorted(queue.partition for queue in self.persister.states.queues())

    def begun(self) -> list[int]:
        """The partitions of which the group has a queue."""
        return sorted(queue.partition for queue in self.host.machine.shares.begun())


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    await made.orders.aclose()


async def test_queues_that_could_not_begin_are_ordered_again(desk: Desk) -> None:
    desk.persister.be_away(1)

    done = await desk.beat()
    await desk.settled()

    assert desk.begun() == desk.kept() == [1]
    done = await desk.beat(done.member_epoch)
    assert done.assigned == ((TOPIC, (1,)),)
    await desk.settled()
    done = await desk.beat(done.member_epoch)
    assert done.assigned == ((TOPIC, (0, 1)),)


async def test_queues_of_which_none_could_begin_are_ordered_again(desk: Desk) -> None:
    desk.persister.be_away(2)
    done = await desk.beat()
    await desk.settled()
    assert desk.begun() == []

    await desk.beat(done.member_epoch)
    await desk.settled()

    assert desk.begun() == [0, 1]


async def test_one_order_is_under_way_at_a_time(desk: Desk) -> None:
    desk.persister.hold()
    await desk.beat()
    await desk.beat(member="bob")
    await asyncio.sleep(0)

    assert len(desk.persister.held or ()) == 2
    desk.persister.answer()
    await desk.settled()
    assert desk.begun() == [0, 1]


async def test_a_topic_that_grows_has_more_queues_begin(desk: Desk) -> None:
    await desk.joined()
    desk.topics.adopt(image(3))
    desk.host.submit(desk.host.machine.topics_changed)
    await asyncio.sleep(0)
    await desk.settled()

    assert desk.begun() == desk.kept() == [0, 1, 2]


async def test_a_group_is_kept_until_its_queues_are_forgotten(desk: Desk) -> None:
    epoch = await desk.joined()
    await desk.beat(-1)
    assert epoch > 0
    desk.persister.be_away(1)

    with pytest.raises(CoordinatorNotAvailableError):
        await desk.orders.delete_group(desk.host, "g")

    assert "g" in desk.host.machine.shares
    await desk.orders.delete_group(desk.host, "g")
    assert "g" not in desk.host.machine.shares
    assert desk.kept() == []


async def test_who_joins_a_group_that_is_being_deleted_finds_its_queues_anew(desk: Desk) -> None:
    await desk.joined()
    await desk.beat(-1)
    desk.persister.hold()
    deleting = asyncio.create_task(desk.orders.delete_group(desk.host, "g"))
    while not desk.persister.held:
        await asyncio.sleep(0)

    done = await desk.beat(member="bob")
    desk.persister.answer()
    with pytest.raises(NonEmptyGroupError):
        await deleting

    assert desk.begun() == []
    await desk.beat(done.member_epoch, "bob")
    await desk.settled()
    assert desk.begun() == desk.kept() == [0, 1]


async def test_states_that_were_lost_are_made_by_whoever_takes_over(desk: Desk) -> None:
    await desk.joined()
    await desk.beat(-1)
    for queue in desk.persister.states.queues():
        for record in desk.persister.states._forgotten(queue):
            desk.persister.states.apply(record)
    assert desk.kept() == []

    desk.again()
    await asyncio.sleep(0.01)

    assert desk.kept() == desk.begun() == [0, 1]


async def test_taking_over_moves_no_queue(desk: Desk) -> None:
    await desk.joined()
    await desk.beat(-1)
    moved = await desk.orders.move_queues(desk.host, "g", {(TOPIC, 0): Offset(5)})
    assert moved == {(TOPIC, 0): None}

    desk.again()
    await asyncio.sleep(0.01)

    found = await desk.orders.summaries("g", [(TOPIC, 0), (TOPIC, 1)])
    starts = {place[1]: one.start for place, one in found.items() if isinstance(one, StateSummary)}
    assert starts == {0: 5, 1: NO_OFFSET}
    assert flat(desk.host.machine.shares._groups["g"].begun) == {(TOPIC, 0), (TOPIC, 1)}


async def test_a_move_fences_the_leader_before(desk: Desk) -> None:
    await desk.joined()
    await desk.beat(-1)
    queue = QueueId("g", TOPIC, 0)
    (before,) = (await desk.orders.summaries("g", [(TOPIC, 0)])).values()
    assert isinstance(before, StateSummary)
    await desk.orders.move_queues(desk.host, "g", {(TOPIC, 0): Offset(5)})
    told: list[object] = []

    desk.persister.write(
        Write(queue, before.state_epoch, LeaderEpoch(0), Offset(9), ()), told.append
    )

    assert isinstance(told[0], FencedStateEpochError)
