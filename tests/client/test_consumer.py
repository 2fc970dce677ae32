"""The consumer against a real broker."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from waystation import Admin, Consumer, Message, Producer, TopicPartition
from waystation.client.places import Places
from waystation.model.errors import InvalidFilterError, InvalidRequestError
from waystation.model.offsets import Offset

# Within retention: older records would be gone before they are read, on a slow day.
FIRST_MS = time.time_ns() // 1_000_000_000 * 1_000 - 600_000


@pytest.fixture
async def filled(bootstrap: str, topic: str) -> str:
    """A topic of two partitions with a hundred messages each, a second apart."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2)
    async with Producer(bootstrap, batch_bytes=1_000) as producer:
        for number in range(200):
            producer.submit(
                topic,
                b"%d" % number,
                partition=number % 2,
                timestamp=FIRST_MS + number // 2 * 1_000,
            )
    return topic


async def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        messages = await consumer.poll(timeout_ms=10_000)
        assert messages, f"only {len(found)} of {count} came"
        found += messages
    return found


def numbers(messages: list[Message]) -> list[int]:
    return sorted(int(message.value or b"-1") for message in messages)


async def test_everything_is_read_from_the_beginning(bootstrap: str, filled: str) -> None:
    async with Consumer(topics=[filled], bootstrap=bootstrap) as consumer:
        messages = await take(consumer, 200)

        assert numbers(messages) == list(range(200))
        assert [consumer.position(where) for where in consumer.assignment] == [100, 100]
    for partition in (0, 1):
        own = [message.offset for message in messages if message.partition == partition]
        assert own == list(range(100))


async def test_a_message_has_the_eight_fields_of_the_documents(bootstrap: str, filled: str) -> None:
    async with Consumer(topics=filled, bootstrap=bootstrap) as consumer:
        (message,) = await consumer.poll(timeout_ms=10_000, max_messages=1)

    assert message.key is None
    assert isinstance(message.value, bytes)
    assert message.topic == filled
    assert message.partition in (0, 1)
    assert message.offset == 0
    assert message.timestamp == FIRST_MS
    assert message.size == len(message.value)
    assert 0 <= message.crc < 1 << 32
    with pytest.raises(AttributeError):
        message.value = b"changed"  # type: ignore[misc]


async def test_messages_can_be_read_again_and_again(bootstrap: str, filled: str) -> None:
    async with Consumer(topics=filled, bootstrap=bootstrap) as consumer:
        first = await take(consumer, 200)
        await consumer.seek_to("earliest")
        again = await take(consumer, 200)

    assert sorted(first) == sorted(again)


async def test_only_assigned_partitions_are_read(bootstrap: str, filled: str) -> None:
    async with Consumer(bootstrap=bootstrap) as consumer:
        await consumer.assign([(filled, 1)])

        assert numbers(await take(consumer, 100)) == list(range(1, 200, 2))
        with pytest.raises(InvalidRequestError, match="assign"):
            consumer.seek((filled, 0), 0)


async def test_reading_starts_at_the_given_offsets(bootstrap: str, filled: str) -> None:
    start = {TopicPartition(filled, 0): 98, TopicPartition(filled, 1): 99}
    async with Consumer(topics=filled, bootstrap=bootstrap, start=start) as consumer:
        assert numbers(await take(consumer, 3)) == [196, 198, 199]


@pytest.mark.parametrize(
    "start",
    [FIRST_MS + 97_500, datetime.fromtimestamp(FIRST_MS / 1_000 + 97.5, UTC)],
    ids=["ms", "datetime"],
)
async def test_reading_starts_at_a_time(bootstrap: str, filled: str, start: int | datetime) -> None:
    async with Consumer(topics=filled, bootstrap=bootstrap, start=start) as consumer:
        assert numbers(await take(consumer, 4)) == [196, 197, 198, 199]


async def test_offsets_are_found_by_time_and_at_the_ends(bootstrap: str, filled: str) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    async with Consumer(topics=filled, bootstrap=bootstrap) as consumer:
        found = await consumer.offsets_for_times({first: FIRST_MS + 500, second: FIRST_MS * 2})

        assert await consumer.beginning_offsets() == {first: 0, second: 0}
        assert await consumer.end_offsets() == {first: 100, second: 100}
    assert found == {first: (1, FIRST_MS + 1_000), second: None}


async def test_latest_sees_what_comes_afterwards(bootstrap: str, filled: str) -> None:
    async with (
        Consumer(topics=filled, bootstrap=bootstrap, start="latest") as consumer,
        Producer(bootstrap) as producer,
    ):
        await producer.send(filled, b"1000")

        assert numbers(await take(consumer, 1)) == [1000]


async def test_new_messages_arrive_in_the_loop_form(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"0")
        async with Consumer(topics=topic, bootstrap=bootstrap) as consumer:
            async for message in consumer:
                number = int(message.value or b"-1")
                if number == 20:
                    break
                await producer.send(topic, b"%d" % (number + 1))

        assert message.offset == 20


async def test_partitions_added_later_are_read(bootstrap: str, filled: str) -> None:
    async with (
        Consumer(topics=filled, bootstrap=bootstrap, metadata_max_age_ms=100) as consumer,
        Producer(bootstrap, metadata_max_age_ms=100) as producer,
        Admin(bootstrap) as admin,
    ):
        await take(consumer, 200)
        await admin.create_partitions(filled, 3)
        while await producer.partitions_of(filled) < 3:
            await asyncio.sleep(0.02)
        await producer.send(filled, b"7", partition=2)
        (message,) = await take(consumer, 1)

    assert (message.partition, message.value) == (2, b"7")


async def test_a_look_at_the_cluster_while_a_reader_begins_reads_nothing_twice(
    bootstrap: str, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions that are about to be placed are not new ones."""
    first = Places.first

    async def interrupted(
        places: Places, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        for told in list(places._router.on_change):
            told()
        await asyncio.sleep(0.05)
        return await first(places, partitions)

    monkeypatch.setattr(Places, "first", interrupted)
    async with Consumer(topics=[filled], bootstrap=bootstrap, start="latest") as consumer:
        assert await consumer.poll(timeout_ms=100) == []
    async with Consumer(topics=[filled], bootstrap=bootstrap) as consumer:
        messages = await take(consumer, 200)
        messages += await consumer.poll(timeout_ms=100)

    assert numbers(messages) == list(range(200))


async def test_a_truncated_log_moves_a_consumer_that_lags(bootstrap: str, filled: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.delete_records({(filled, 0): 90, (filled, 1): 95})
    start = {TopicPartition(filled, 0): 0, TopicPartition(filled, 1): 0}
    async with Consumer(topics=filled, bootstrap=bootstrap, start=start) as consumer:
        messages = await take(consumer, 15)

    assert numbers(messages) == [*range(180, 190, 2), *range(190, 200)]


async def test_a_large_topic_is_read_within_a_small_prefetch(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(3_000):
            producer.submit(topic, b"%06d" % number + b"x" * 1_000)
            await producer.drain()
    options = {"prefetch_bytes": 100_000, "fetch_partition_bytes": 50_000}
    async with Consumer(topics=topic, bootstrap=bootstrap, **options) as consumer:  # type: ignore[arg-type]
        messages = await take(consumer, 3_000)

    assert [int((one.value or b"-1")[:6]) for one in messages] == list(range(3_000))


async def test_a_filter_chooses_what_is_handed_out(bootstrap: str, filled: str) -> None:
    where = "value LIKE '%7' AND partition = 1"
    async with Consumer(topics=filled, bootstrap=bootstrap, where=where) as consumer:
        messages = await take(consumer, 20)

        assert [message.value for message in messages] == [b"%d" % one for one in range(7, 200, 10)]
        assert await consumer.poll(timeout_ms=200) == []
        assert [consumer.position(each) for each in consumer.assignment] == [100, 100]


async def test_a_group_goes_past_what_the_filter_leaves_out(bootstrap: str, filled: str) -> None:
    group = f"group-of-{filled}"
    async with Consumer(
        group, filled, bootstrap=bootstrap, auto_offset_reset="earliest", where="value = '7'"
    ) as consumer:
        (message,) = await take(consumer, 1)
        while any(consumer.position(each) < 100 for each in consumer.assignment):
            assert await consumer.poll(timeout_ms=100) == []
        await consumer.commit()
        committed = await consumer.committed()

    assert message.value == b"7"
    assert [at.offset for at in committed.values() if at is not None] == [100, 100]


def test_a_filter_that_is_none_is_refused_before_anybody_connects() -> None:
    with pytest.raises(InvalidFilterError, match="unknown field contry"):
        Consumer(topics="orders", where="contry = 'DE'")
