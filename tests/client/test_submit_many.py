"""Many records handed over at once: the same as one by one, told of together."""

import asyncio
from random import Random

import pytest
from tests.client.test_accumulator import Bench
from tests.client.test_producer import read_all

from waystation import Admin, Producer
from waystation.client.accumulator import NewRecord
from waystation.client.errors import DeliveryError, NoSuchPartitionError
from waystation.client.outgoing import RecordMetadata, Submitted
from waystation.client.partitioner import partition_of_key
from waystation.model.errors import InvalidRequestError, MessageTooLargeError, UnknownTopicError
from waystation.model.offsets import Millis


def records(count: int, size_bytes: int = 50) -> list[NewRecord]:
    return [(b"%d" % n + b"x" * size_bytes, None, (), 0, None) for n in range(count)]


def take(bench: Bench, wanted: list[NewRecord]) -> Submitted:
    submitted = Submitted(asyncio.get_running_loop())
    route = bench.accumulator.route("orders")
    bench.accumulator.add_many(route, wanted, Millis(7), submitted)
    return submitted


async def test_each_is_told_where_it_was_read_later(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 4)
    chance = Random(9)
    wanted: list[NewRecord] = [
        (
            b"%d" % n,
            chance.choice([None, b"key %d" % chance.randrange(9)]),
            (("trace", b"%d" % n),) if n % 3 == 0 else (),
            n % 4 if n % 5 == 0 else None,
            1_700_000_000_000 + n if n % 2 else None,
        )
        for n in range(500)
    ]
    async with Producer(bootstrap, batch_bytes=1_000, linger_ms=0) as producer:
        await producer.partitions_of(topic)
        submitted = producer.submit_many(topic, wanted)
        beside = producer.submit(topic, b"beside", partition=0)
        told = await submitted.outcomes()
        alone = await beside
    assert submitted.taken == len(told) == 500

    read = {(one.partition, one.offset): one for one in await read_all(bootstrap, topic)}
    assert len(read) == 501
    assert read[alone.partition, alone.offset].value == b"beside"
    for (value, key, headers, partition, timestamp), place in zip(wanted, told, strict=True):
        assert isinstance(place, RecordMetadata)
        found = read[place.partition, place.offset]
        assert (found.value, found.key, tuple(found.headers)) == (value, key, headers)
        assert found.timestamp == place.timestamp
        if timestamp is not None:
            assert found.timestamp == timestamp
        if partition is not None:
            assert place.partition == partition
        elif key is not None:
            assert place.partition == partition_of_key(key, 4)


async def test_batches_over_the_topics_limit_are_cut_and_told_of_whole(
    bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "2000"})
    async with Producer(bootstrap) as producer:
        await producer.partitions_of(topic)
        wanted = [*records(40, 300), (b"y" * 3_000, None, (), 0, None), *records(1)]
        told = await producer.submit_many(topic, wanted).outcomes()
        with pytest.raises(DeliveryError, match="1 record was not delivered"):
            await producer.flush()

    assert isinstance(told.pop(40), MessageTooLargeError)
    assert [one.offset for one in told if isinstance(one, RecordMetadata)] == list(range(41))
    values = [one.value for one in await read_all(bootstrap, topic)]
    assert values == [value for value, *_ in wanted if value != b"y" * 3_000]


async def test_what_has_no_room_is_left_with_the_caller() -> None:
    bench = Bench(buffer_bytes=10_000, max_request_bytes=1_000)
    bench.know()
    submitted = take(bench, records(100, 100))

    assert 0 < submitted.taken < 100
    assert bench.accumulator.buffered_bytes <= 10_000
    for batch in list(bench.accumulator.batches):
        bench.accumulator.acknowledged(batch, 5, -1)
    told = await submitted.outcomes()
    assert [one.offset for one in told if isinstance(one, RecordMetadata)] == list(
        range(5, 5 + submitted.taken)
    )
    assert bench.accumulator.buffered_bytes == 0


async def test_one_that_cannot_be_sent_fails_by_itself() -> None:
    bench = Bench(max_request_bytes=1_000)
    bench.know()
    wrong: list[NewRecord] = [
        (b"v", None, (), 3, None),
        (b"x" * 2_000, None, (), 0, None),
        (b"v", None, (("n", b"x" * 2_000),), 0, None),
    ]
    submitted = take(bench, [*records(2), *wrong, *records(1)])
    bench.accumulator.acknowledged(bench.opened[0], 10, 99)

    told = await submitted.outcomes()
    assert isinstance(told[2], NoSuchPartitionError)
    assert all(isinstance(one, MessageTooLargeError) for one in told[3:5])
    assert [told[0], told[1], told[5]] == [
        RecordMetadata("orders", 0, offset, 99)  # type: ignore[arg-type]  # plain numbers
        for offset in (10, 11, 12)
    ]


async def test_halves_are_both_waited_for_and_may_fare_differently() -> None:
    bench = Bench()
    bench.know()
    submitted = take(bench, records(5))
    lane, (batch,) = bench.lane(), bench.opened
    lane.close_batch()
    lane.sent(batch)
    first, second = bench.accumulator.halved(batch)
    lane.cut(batch, [first, second])
    telling = asyncio.ensure_future(submitted.outcomes())
    bench.accumulator.gave_up(second, UnknownTopicError("gone"))
    await asyncio.sleep(0)
    assert not telling.done()
    bench.accumulator.acknowledged(first, 4, -1)

    told = await telling
    assert [one.offset for one in told if isinstance(one, RecordMetadata)] == [4, 5]
    assert [isinstance(one, UnknownTopicError) for one in told] == [False, False, True, True, True]
    assert bench.accumulator.take_failures()[0] == 3


async def test_none_at_all_are_told_of_at_once() -> None:
    bench = Bench()
    bench.know()
    assert await take(bench, []).outcomes() == []


async def test_a_topic_must_have_been_asked_about(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        with pytest.raises(InvalidRequestError, match="partitions_of"):
            producer.submit_many(topic, records(1))
