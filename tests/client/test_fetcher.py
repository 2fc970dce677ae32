"""A whole consumer against a scripted broker that moves, fails and loses connections."""

import asyncio
from random import Random

import pytest
from tests.support.scripted_broker import Answer
from tests.support.scripted_log import LogBroker

from waystation.client.consumer import Consumer
from waystation.client.errors import ClosedError, ConnectionLostError, PositionOutOfRangeError
from waystation.client.options import ConsumerOptions
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.model.errors import (
    CorruptBatchError,
    InvalidConfigError,
    UnknownTopicError,
)
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey, Versions

FAST: ConsumerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "fetch_max_wait_ms": 5,
}


def consumer_of(broker: LogBroker, **options: object) -> Consumer:
    return Consumer(
        topics=["orders"],
        bootstrap=broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **FAST | options,  # type: ignore[arg-type,operator]
    )


def fill(broker: LogBroker, partition: int, values: range, batch_size: int = 3) -> None:
    for start in range(values.start, values.stop, batch_size):
        builder = BatchBuilder()
        for value in range(start, min(start + batch_size, values.stop)):
            builder.append(None, b"%d" % value, timestamp=Millis(value))
        broker.partitions[partition].append(builder.build())


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        messages = await consumer.poll(timeout_ms=5_000)
        assert messages, f"only {len(found)} of {count} came"
        found += [int(message.value or b"-1") for message in messages]
    return found


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
async def test_every_version_of_the_request_works(version: int) -> None:
    broker = LogBroker()
    broker.versions[ApiKey.FETCH] = Versions(4, version)
    fill(broker, 0, range(10))
    async with consumer_of(broker) as consumer:
        assert await read(consumer, 10) == list(range(10))

    assert {asked for _, api, asked, _ in broker.asked if api is ApiKey.FETCH} == {version}


async def test_a_poll_gives_no_more_than_it_is_asked_for() -> None:
    broker = LogBroker()
    fill(broker, 0, range(10))
    async with consumer_of(broker) as consumer:
        assert len(await consumer.poll(timeout_ms=5_000, max_messages=4)) == 4
        assert consumer.position(("orders", 0)) == 4


async def test_a_poll_without_messages_ends_in_time_with_none() -> None:
    async with consumer_of(LogBroker()) as consumer:
        assert await consumer.poll(timeout_ms=10) == []


async def test_the_loop_form_gives_every_message() -> None:
    broker = LogBroker()
    fill(broker, 0, range(1_000))
    found = []
    async with consumer_of(broker) as consumer:
        async for message in consumer:
            found.append(int(message.value or b"-1"))
            if len(found) == 1_000:
                break

    assert found == list(range(1_000))


async def test_breaking_out_of_the_loop_loses_nothing() -> None:
    broker = LogBroker()
    fill(broker, 0, range(10))
    async with consumer_of(broker) as consumer:
        async for message in consumer:
            if message.offset == 4:
                break
        assert consumer.position(("orders", 0)) == 5
        assert await read(consumer, 5) == [5, 6, 7, 8, 9]


async def test_every_partition_gets_its_turn() -> None:
    broker = LogBroker(leaders=(1, 1, 2))
    for partition in range(3):
        fill(broker, partition, range(partition * 1_000, partition * 1_000 + 300))
    async with consumer_of(broker) as consumer:
        found: list[int] = []
        while len(found) < 900:
            found += await read(consumer, 1)

    for partition in range(3):
        own = [value for value in found if value // 1_000 == partition]
        assert own == sorted(own)
    assert {value // 1_000 for value in found[:300]} == {0, 1, 2}


async def test_a_partition_without_a_leader_is_read_on_once_it_has_one() -> None:
    broker = LogBroker(leaders=(1, 2))
    fill(broker, 0, range(2))
    async with consumer_of(broker) as consumer:
        assert await read(consumer, 2) == [0, 1]
        broker.leaders, broker.epoch = [-1, 2], 1
        await consumer._router.refresh()
        broker.leaders, broker.epoch = [2, 2], 2
        fill(broker, 0, range(2, 4))

        assert await read(consumer, 2) == [2, 3]


async def test_a_new_leader_is_followed() -> None:
    broker = LogBroker(leaders=(1,))
    fill(broker, 0, range(5))
    async with consumer_of(broker) as consumer:
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]

        broker.leaders, broker.epoch = [2], 1
        fill(broker, 0, range(5, 9))
        for transport in broker.transports:
            transport.close()

        assert await read(consumer, 4) == [5, 6, 7, 8]


async def test_lost_connections_lose_no_message() -> None:
    broker, chance = LogBroker(leaders=(1, 2)), Random(7)

    def trouble(request: Message) -> Answer:
        if chance.random() < 0.5:
            raise ConnectionLostError("gone")
        return broker.fetch(request)

    broker.handlers[ApiKey.FETCH] = trouble
    fill(broker, 0, range(100))
    fill(broker, 1, range(100, 200))
    async with consumer_of(broker) as consumer:
        assert sorted(await read(consumer, 200)) == list(range(200))


async def test_partitions_added_later_are_read_from_their_start() -> None:
    broker = LogBroker(leaders=(1,))
    async with consumer_of(broker, start="latest", metadata_max_age_ms=100) as consumer:
        broker.partitions.append(type(broker.partitions[0])())
        fill(broker, 1, range(5))
        broker.leaders = [1, 1]

        assert await read(consumer, 5) == [0, 1, 2, 3, 4]
        assert len(consumer.assignment) == 2


async def test_latest_means_the_end_when_the_consumer_began() -> None:
    broker = LogBroker()
    fill(broker, 0, range(5))
    async with consumer_of(broker, start="latest") as consumer:
        fill(broker, 0, range(5, 7), batch_size=1)

        assert await read(consumer, 2) == [5, 6]


async def test_a_seek_drops_what_was_fetched_for_the_old_place() -> None:
    broker = LogBroker()
    fill(broker, 0, range(30))
    async with consumer_of(broker) as consumer:
        await consumer.poll(timeout_ms=5_000, max_messages=2)
        consumer.seek(("orders", 0), 20)

        assert await read(consumer, 10) == list(range(20, 30))


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 10)])
async def test_an_offset_that_is_not_there_is_mended_by_policy(policy: str, first: int) -> None:
    broker = LogBroker()
    fill(broker, 0, range(10))
    async with consumer_of(broker, auto_offset_reset=policy) as consumer:
        consumer.seek(("orders", 0), 500)
        await consumer.poll(timeout_ms=50, max_messages=1)

        assert consumer.position(("orders", 0)) in (first, first + 1)


async def test_an_offset_that_is_not_there_is_an_error_if_told_so() -> None:
    broker = LogBroker()
    fill(broker, 0, range(10))
    options = {"start": "earliest", "auto_offset_reset": "error"}
    async with consumer_of(broker, **options) as consumer:
        consumer.seek(("orders", 0), 500)
        with pytest.raises(PositionOutOfRangeError, match=r"500 .*orders-0, which holds \[0, 10\)"):
            await consumer.poll(timeout_ms=5_000)
        consumer.seek(("orders", 0), 8)

        assert await read(consumer, 2) == [8, 9]


async def test_a_corrupt_batch_is_told_and_can_be_passed() -> None:
    broker = LogBroker()
    fill(broker, 0, range(9))
    broker.partitions[0].batches[1][-1] ^= 1
    async with consumer_of(broker) as consumer:
        assert await read(consumer, 3) == [0, 1, 2]
        with pytest.raises(CorruptBatchError, match="seek to 6"):
            await consumer.poll(timeout_ms=5_000)
        consumer.seek(("orders", 0), 6)

        assert await read(consumer, 3) == [6, 7, 8]


async def test_what_waits_in_memory_is_bounded() -> None:
    broker = LogBroker(leaders=(1, 1))
    for partition in (0, 1):
        fill(broker, partition, range(100))
    largest = 0

    def fetch(request: Message) -> Answer:
        nonlocal largest
        assert isinstance(request, FetchRequest)
        largest = max(largest, sum(len(topic.partitions) for topic in request.topics))
        return broker.fetch(request)

    broker.handlers[ApiKey.FETCH] = fetch
    async with consumer_of(broker, prefetch_bytes=1) as consumer:
        await consumer.poll(timeout_ms=5_000, max_messages=1)
        asked = len(broker.requests(ApiKey.FETCH))
        for _ in range(20):
            await asyncio.sleep(0)

        assert len(broker.requests(ApiKey.FETCH)) == asked
        assert len(await read(consumer, 199)) == 199


async def test_a_topic_that_does_not_exist_is_told_at_the_start() -> None:
    broker = LogBroker(topic="refunds")

    with pytest.raises(UnknownTopicError, match="topic orders does not exist"):
        await consumer_of(broker).start()


async def test_a_topic_that_goes_away_is_told_in_the_end() -> None:
    broker = LogBroker()
    async with consumer_of(broker, metadata_timeout_ms=20) as consumer:
        broker.handlers[ApiKey.FETCH] = lambda request: _unknown(broker, request)
        for transport in broker.transports:
            transport.close()
        with pytest.raises(UnknownTopicError, match="orders-0"):
            await consumer.poll(timeout_ms=5_000)


def _unknown(broker: LogBroker, request: Message) -> Message:
    broker.leaders = [2]
    response = broker.fetch(request)
    broker.leaders = [1]
    assert isinstance(response, FetchResponse)
    for topic in response.responses:
        for partition in topic.partitions:
            partition.error_code = 3
    return response


async def test_the_wrong_start_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="earliest"):
        Consumer(topics="orders", start="yesterday")
    with pytest.raises(InvalidConfigError, match="say where to start"):
        Consumer(topics="orders", auto_offset_reset="error")


async def test_a_closed_consumer_says_so() -> None:
    consumer = consumer_of(LogBroker())
    with pytest.raises(ClosedError):
        await consumer.poll()
    async with consumer:
        pass
    with pytest.raises(ClosedError):
        await consumer.poll()


async def test_closing_ends_a_wait_for_messages() -> None:
    async with consumer_of(LogBroker()) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await consumer.close()

        with pytest.raises(ClosedError):
            await waiting
