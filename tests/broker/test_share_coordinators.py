"""Share groups and the states of their queues through kill -9, and on several brokers."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.apis.share_grouping import ACKNOWLEDGED, GROUP, ShareGrouping, assigned, batches_of
from waystation import Admin
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.broker.share_orders import asked
from waystation.broker.share_states import QUEUES_TOPIC, coordinator_key
from waystation.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRequestError,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.persister import (
    Delete,
    Initialize,
    Read,
    StateRead,
    StateSummary,
    Summarize,
    Write,
)
from waystation.sharing.state_records import Notes, QueueId
from waystation.sharing.states import StateBatch
from waystation.testing.cluster import LocalCluster
from waystation.testing.process import BrokerProcess

OPTIONS = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
FIRST, SECOND = LeaderEpoch(0), LeaderEpoch(1)
SETTLED = StateBatch(Offset(3), Offset(5), ACKNOWLEDGED, 1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3, options=OPTIONS) as running:
        nodes = list(running.nodes.values())
        await running.until(lambda: all(len(one.broker.image.brokers) == 3 for one in nodes))
        broker = nodes[0].broker
        await broker.groups.find("any")
        await broker.share_states.find("any")
        await running.until(
            lambda: all(
                len(one.broker.groups.machines()) == len(one.broker.share_states.machines()) == 1
                for one in nodes
            )
        )
        yield running


def queue_kept_by(broker: Broker, node: int) -> QueueId:
    while True:
        queue = QueueId("g", TopicId(uuid4()), 0)
        if broker.share_states.leader_of(coordinator_key(queue)) == node:
            return queue


def group_led_by(broker: Broker, node: int) -> str:
    names = map("group-{}".format, range(100))
    return next(name for name in names if broker.groups.leader_of(name) == node)


async def one(ask: object, command: object) -> object:
    (answer,) = await asked(ask, [command])  # type: ignore[arg-type]
    return answer


# --- several brokers ----------------------------------------------------------------------------


async def test_every_broker_reaches_the_coordinator_of_a_queue(cluster: LocalCluster) -> None:
    for node in (1, 2, 3):
        persister = cluster.nodes[node].broker.share_persister
        queue = queue_kept_by(cluster.nodes[node].broker, 2)

        assert await one(persister.initialize, Initialize(queue, 4, Offset(3))) is None
        write = Write(queue, 4, FIRST, Offset(3), (SETTLED,), Notes(2, b"note"))
        assert await one(persister.write, write) is None
        found = await one(persister.read, Read(queue, SECOND))
        assert found == StateRead(4, Offset(3), (SETTLED,), Notes(2, b"note"))
        summary = await one(persister.summarize, Summarize(queue))
        assert summary == StateSummary(4, SECOND, Offset(3), 2)
        assert isinstance(await one(persister.write, write), FencedLeaderEpochError)
        elsewhere = Write(queue, 3, SECOND, Offset(3), ())
        assert isinstance(await one(persister.write, elsewhere), FencedStateEpochError)
        assert await one(persister.delete, Delete(queue)) is None
        assert isinstance(await one(persister.read, Read(queue, SECOND)), InvalidRequestError)


async def test_what_is_asked_together_is_answered_in_order(cluster: LocalCluster) -> None:
    persister = cluster.nodes[1].broker.share_persister
    topic = TopicId(uuid4())
    queues = [QueueId("g", topic, number) for number in range(30)]
    begun = [Initialize(queue, 1, Offset(queue.partition)) for queue in queues]

    assert await asked(persister.initialize, begun) == [None] * 30

    found = await asked(persister.summarize, [Summarize(queue) for queue in queues])
    assert [one.start for one in found if isinstance(one, StateSummary)] == list(range(30))


async def test_states_outlive_the_broker_that_kept_them(cluster: LocalCluster) -> None:
    broker = cluster.nodes[1].broker
    queue = queue_kept_by(broker, 3)
    await one(broker.share_persister.initialize, Initialize(queue, 1, Offset(3)))
    write = Write(queue, 1, FIRST, Offset(3), (SETTLED,))
    assert await one(broker.share_persister.write, write) is None

    killed = asyncio.create_task(cluster.kill(3))
    later = write._replace(batches=(SETTLED._replace(first=Offset(7), end=Offset(8)),))
    answer = await one(broker.share_persister.write, later)

    await killed
    assert answer is None
    assert broker.share_states.leader_of(coordinator_key(queue)) != 3
    found = await one(broker.share_persister.read, Read(queue, SECOND))
    assert isinstance(found, StateRead)
    assert [(first, end) for first, end, *_ in found.batches] == [(3, 5), (7, 8)]


async def test_a_share_group_goes_on_at_another_broker(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("orders", partitions=3, replication_factor=3)
    broker = cluster.nodes[1].broker
    group = group_led_by(broker, 3)

    def joined() -> tuple[int, object]:
        with ShareGrouping(*cluster.nodes[3].address) as client:
            told = client.shared(group, "orders")
            return told.member_epoch, assigned(told)

    epoch, share = await asyncio.to_thread(joined)
    await cluster.kill(3)
    await cluster.until(lambda: cluster.leader(OFFSETS_TOPIC, broker.groups.number_of(group)) != 3)
    leader = broker.groups.leader_of(group)

    def went_on() -> tuple[int, int, object]:
        with ShareGrouping(*cluster.nodes[leader].address) as client:
            told = client.share(group, None, epoch)
            starts = client.starts(group)
            again = client.share(group, ["orders"], epoch)
            return told.error_code, len(starts), assigned(again)

    assert await asyncio.to_thread(went_on) == (0, 3, share)
    assert cluster.image.topics[QUEUES_TOPIC]


async def test_queues_begin_once_their_coordinator_can_be_reached(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("orders", partitions=6, replication_factor=1)
    broker = cluster.nodes[1].broker
    group = group_led_by(broker, 1)
    cluster.cut(1, 2)

    def join() -> object:
        with ShareGrouping(*cluster.nodes[1].address) as client:
            told = client.share(group, ["orders"])
            return told.error_code, told.heartbeat_interval_ms

    joining = asyncio.create_task(asyncio.to_thread(join))
    await cluster.until(partial(_is_ordered, broker, group))

    # It is told in time to come again soon.
    assert await joining == (0, 500)
    cluster.mend()
    machine = broker.groups.host_of(group).machine
    await cluster.until(lambda: len(machine.shares.begun()) == 6)


def _is_ordered(broker: Broker, group: str) -> bool:
    return bool(broker.groups.host_of(group).machine.shares.is_ordered(group))


# --- kill -9 ------------------------------------------------------------------------------------


def test_kill_minus_nine_takes_nothing_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", options=OPTIONS, volatile=True) as broker:
        host, port = broker.bootstrap.split(":")
        with ShareGrouping(host, int(port)) as client:
            assert client.find("g").error_code == 0
            client.create("t", 2)
            before = client.shared("g", "t")
            topic_id = client.topic_id("t")
            client.move("idle", "t", {1: 9})
            epoch = client.load("g", topic_id, 1).state_epoch
            told = client.write(
                "g", topic_id, (3, 4, ACKNOWLEDGED, 1), number=1, epoch=epoch, start=3, leader=2
            )
            assert told.error_code == 0, told
            client.configure(GROUP, "g", share_order="key")
        broker.kill()
        broker.start()

        with ShareGrouping(host, int(port)) as client:
            found = client.load("g", topic_id, 1, leader=2)
            assert (found.state_epoch, found.start_offset) == (epoch, 3)
            assert batches_of(found) == [(3, 4, ACKNOWLEDGED, 1)]
            assert (
                client.load("g", topic_id, 1, leader=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
            )
            client.find("g")
            told = client.share("g", ["t"], before.member_epoch)
            assert (told.error_code, assigned(told)) == (0, assigned(before))
            assert client.starts("idle") == {("t", 1): (9, 0)}
            assert client.alter(GROUP, "g", {"share.order": None}).error_code == 0
