"""Ends of transactions reach every partition, however often it takes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apis.kit import batch_of
from tests.broker.test_coordinators import make_topic, running
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.broker.markers import Ended
from waystation.model.errors import (
    InvalidProducerEpochError,
    NotLeaderError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition
from waystation.records.control import Marker

PRODUCER = ProducerId(7)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        await make_topic(started, "orders")
        yield started


def marker(epoch: int = 0, *, coordinator: int = 0, committed: bool = True) -> Marker:
    return Marker(PRODUCER, ProducerEpoch(epoch), coordinator, committed)


def begin(broker: Broker, epoch: int = 0, sequence: int = 0) -> Partition:
    """Let a transaction be open in the topic's partition."""
    partition = broker.replicas.get(*ORDERS)
    batch = batch_of(b"x", producer=(PRODUCER, epoch, sequence), transactional=True)
    partition.append(memoryview(bytearray(batch)), 1, broker.clock.now())
    assert partition.in_transaction(PRODUCER, ProducerEpoch(epoch))
    return partition


async def write(broker: Broker, name: TopicPartition, wanted: Marker) -> WaystationError | None:
    told: asyncio.Future[WaystationError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.markers.write(name, wanted, told.set_result)
    return await asyncio.wait_for(told, 10)


class Decision:
    """What a coordinator decided, and whether it heard that it is done."""

    def __init__(self, broker: Broker, wanted: Marker, *names: TopicPartition) -> None:
        self.written = asyncio.Event()
        self.is_wanted = True
        ended = Ended(wanted, names, self.written.set, lambda: self.is_wanted)
        broker.transactions.markers.carry_out(ended)


def follow(partition: Partition) -> None:
    """Take leadership from this node, as the store would."""
    epoch = partition.leadership.epoch
    partition.follow_store(Leadership(None, epoch, ()))


def waiting(broker: Broker) -> float:
    (family,) = [
        one
        for one in broker.registry.snapshot()
        if one.name == "waystation_transaction_markers_waiting"
    ]
    return family.samples[0].value


async def test_a_marker_is_told_of_once_it_is_committed(broker: Broker) -> None:
    partition = begin(broker)

    assert await write(broker, ORDERS, marker()) is None
    assert partition.high_watermark == partition.last_stable == 2


async def test_one_that_cannot_be_written_is_told_why(broker: Broker) -> None:
    begin(broker, epoch=5)

    absent = TopicPartition("absent", 0)
    assert isinstance(await write(broker, absent, marker()), UnknownTopicError)
    assert isinstance(await write(broker, ORDERS, marker(4)), InvalidProducerEpochError)
    follow(broker.replicas.get(*ORDERS))
    assert isinstance(await write(broker, ORDERS, marker(5)), NotLeaderError)


async def test_a_decision_is_done_once_all_partitions_have_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "orders")
        await broker.groups.find("any")
        partition = begin(broker)
        offsets = TopicPartition(OFFSETS_TOPIC, 1)
        decision = Decision(broker, marker(), ORDERS, offsets)
        await asyncio.wait_for(decision.written.wait(), 10)

        assert partition.last_stable == 2
        assert broker.replicas.get(*offsets).log_end == 1


async def test_a_partition_that_is_not_led_gets_its_marker_when_it_is(broker: Broker) -> None:
    partition = begin(broker)
    leadership = partition.leadership
    follow(partition)
    decision = Decision(broker, marker(), ORDERS)

    assert waiting(broker) == 1
    await asyncio.sleep(0.2)
    assert not decision.written.is_set()

    partition.follow_store(leadership)
    broker.transactions.markers.try_now()
    await asyncio.wait_for(decision.written.wait(), 10)

    assert partition.last_stable == 2
    assert waiting(broker) == 0


async def test_what_is_gone_needs_no_marker(broker: Broker) -> None:
    partition = begin(broker)
    leadership = partition.leadership
    follow(partition)
    absent = TopicPartition("absent", 0)
    decision = Decision(broker, marker(), ORDERS, absent, TopicPartition("orders", 9))
    assert waiting(broker) == 1
    partition.follow_store(leadership)
    await broker.topics.delete("orders")
    await asyncio.wait_for(decision.written.wait(), 10)

    assert waiting(broker) == 0


async def test_a_producer_that_moved_on_holds_up_no_decision(broker: Broker) -> None:
    begin(broker, epoch=5)
    decision = Decision(broker, marker(4), ORDERS)

    assert decision.written.is_set()


async def test_nobody_writes_for_a_coordinator_that_is_gone(broker: Broker) -> None:
    partition = begin(broker)
    leadership = partition.leadership
    follow(partition)
    decision = Decision(broker, marker(), ORDERS)
    decision.is_wanted = False
    partition.follow_store(leadership)
    broker.transactions.markers.try_now()
    async with asyncio.timeout(10):
        while waiting(broker):
            await asyncio.sleep(0.005)

    assert partition.log_end == 1
    assert not decision.written.is_set()


async def test_many_that_wait_are_tried_in_parts(broker: Broker) -> None:
    partition = begin(broker)
    leadership = partition.leadership
    follow(partition)
    decisions = [Decision(broker, marker(), ORDERS) for _ in range(1_000)]
    assert waiting(broker) == 1_000
    partition.follow_store(leadership)
    async with asyncio.timeout(20):
        await asyncio.gather(*(one.written.wait() for one in decisions))

    assert partition.log_end == 1_001
