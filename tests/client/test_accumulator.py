"""Where records wait: batches by size, a budget, and topics that are not known yet."""

import asyncio
from random import Random
from uuid import UUID

import pytest

from waystation.client.accumulator import Accumulator
from waystation.client.errors import BufferFullError, NoSuchPartitionError
from waystation.client.metadata import PartitionView, TopicView
from waystation.client.outgoing import Delivered, OutgoingBatch, OutgoingLane
from waystation.client.settings import ProducerSettings
from waystation.model.errors import MessageTooLargeError, UnknownTopicError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import Millis
from waystation.records.batch import records_of
from waystation.runtime.clock import ManualClock


class Bench:
    """An accumulator, and notes of what it reported."""

    def __init__(self, **options: int | str) -> None:
        self.opened: list[OutgoingBatch] = []
        self.filled: list[OutgoingLane] = []
        self.accumulator = Accumulator(
            ProducerSettings(**options),  # type: ignore[arg-type]
            ManualClock(),
            Random(7),
            lane_limit=5,
            opened=self.opened.append,
            filled=self.filled.append,
        )

    def know(self, partitions: int = 1, leader: int = 1) -> None:
        self.accumulator.route("orders")
        views = tuple(
            PartitionView(index, NodeId(leader), LeaderEpoch(0), (), ())
            for index in range(partitions)
        )
        self.accumulator.learn(TopicView("orders", TopicId(UUID(int=1)), False, views))

    def add(
        self, value: bytes, key: bytes | None = None, partition: int | None = None
    ) -> Delivered:
        charged = self.accumulator.charge("orders", key, value, ())
        delivered: Delivered = asyncio.get_running_loop().create_future()
        route = self.accumulator.route("orders")
        self.accumulator.add(route, partition, key, value, (), Millis(1), charged, delivered)
        return delivered

    def fill(self) -> None:
        while True:
            self.add(b"x" * 100)

    def lane(self, partition: int = 0) -> OutgoingLane:
        return self.accumulator.routes["orders"].lanes[partition]


async def test_records_join_the_open_batch_until_the_next_does_not_fit() -> None:
    bench = Bench(batch_bytes=300)
    bench.know()
    for _ in range(7):
        bench.add(b"x" * 50)

    assert [batch.count for batch in bench.opened] == [4, 3]
    assert [batch.count for batch in bench.lane().queued] == [4]
    assert bench.filled == [bench.lane()]
    assert all(batch.builder.size_bytes <= 300 for batch in bench.opened)


async def test_a_record_larger_than_a_batch_gets_one_of_its_own() -> None:
    bench = Bench(batch_bytes=300)
    bench.know()
    bench.add(b"small")
    bench.add(b"x" * 10_000)
    bench.add(b"small")

    assert [batch.count for batch in bench.opened] == [1, 1, 1]


async def test_a_record_over_the_limit_is_refused_by_its_exact_size() -> None:
    bench = Bench(max_request_bytes=1_000)
    bench.know()
    bench.add(b"x" * (1_000 - 61 - 9))

    with pytest.raises(MessageTooLargeError, match=r"topic orders takes 1001 bytes"):
        bench.add(b"x" * (1_000 - 61 - 8))


async def test_keys_decide_the_partition_and_a_wish_decides_over_keys() -> None:
    bench = Bench()
    bench.know(partitions=8)
    for number in range(50):
        bench.add(b"v", key=b"k%d" % (number % 5))
    used = [lane for lane in bench.accumulator.routes["orders"].lanes if lane.open]

    assert sum(lane.open.count for lane in used if lane.open) == 50
    assert 1 < len(used) <= 5

    bench.add(b"v", key=b"k1", partition=7)

    assert bench.lane(7).open is not None
    with pytest.raises(NoSuchPartitionError, match="0 to 7"):
        bench.add(b"v", partition=8)


async def test_keyless_records_move_on_when_a_batch_is_full() -> None:
    bench = Bench(batch_bytes=300)
    bench.know(partitions=64)
    for _ in range(40):
        bench.add(b"x" * 50)

    assert len({batch.lane.partition for batch in bench.opened}) > 5
    assert {batch.count for batch in bench.opened} == {4}


async def test_the_budget_is_taken_and_given_back() -> None:
    bench = Bench(buffer_bytes=10_000)
    bench.know()
    with pytest.raises(BufferFullError, match="drain"):
        bench.fill()
    waiting = asyncio.ensure_future(bench.accumulator.room())
    await asyncio.sleep(0)

    assert not waiting.done()
    assert bench.accumulator.buffered_bytes <= 10_000

    for batch in list(bench.accumulator.batches):
        bench.accumulator.acknowledged(batch, 0, -1)
    await waiting

    assert bench.accumulator.buffered_bytes == 0


async def test_records_for_an_unknown_topic_are_parked_in_order() -> None:
    bench = Bench()
    futures = [bench.add(b"v%d" % number) for number in range(10)]

    assert bench.opened == []
    assert bench.accumulator.buffered_bytes > 0

    bench.know()
    (batch,) = bench.opened

    assert batch.futures == futures
    assert [one.value for one in records_of(batch.encode())] == [b"v%d" % n for n in range(10)]


async def test_records_for_a_topic_that_is_not_there_are_refused() -> None:
    bench = Bench()
    delivered = bench.add(b"v")
    bench.accumulator.refuse("orders", UnknownTopicError("no orders"))

    with pytest.raises(UnknownTopicError):
        await delivered
    assert bench.accumulator.buffered_bytes == 0
    assert bench.accumulator.take_failures()[0] == 1


async def test_a_due_batch_stays_open_while_it_cannot_leave() -> None:
    bench = Bench()
    bench.know()
    bench.add(b"first")
    bench.opened[0].due = True
    bench.lane().limit = 0
    bench.accumulator.close_if_due(bench.lane())
    bench.add(b"second")

    assert [batch.count for batch in bench.opened] == [2]

    bench.lane().limit = 1
    bench.accumulator.close_if_due(bench.lane())

    assert list(bench.lane().queued) == bench.opened


async def test_halves_keep_records_futures_and_order() -> None:
    bench = Bench()
    bench.know()
    futures = [bench.add(b"v%d" % number) for number in range(5)]
    (batch,) = bench.opened
    charged = bench.accumulator.buffered_bytes
    lane = bench.lane()
    lane.close_batch()
    lane.sent(batch)
    halves = bench.accumulator.halved(batch)
    lane.cut(batch, halves)
    quarters = bench.accumulator.halved(halves[1])
    lane.cut(halves[1], quarters)

    parts = [halves[0], *quarters]
    assert lane.under_way == parts
    assert [one for part in parts for one in part.futures] == futures
    values = [record.value for part in parts for record in records_of(part.encode())]
    assert values == [b"v%d" % number for number in range(5)]
    assert sum(part.charged_bytes for part in parts) == charged
