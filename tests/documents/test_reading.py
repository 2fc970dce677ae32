"""What the design documents say of producers, topics and readers, with our client."""

import asyncio
import time

import pytest

from waystation import Admin, Consumer, Message, Producer


async def read(topic: str, bootstrap: str, count: int) -> list[Message]:
    found: list[Message] = []
    async with Consumer(topics=topic, bootstrap=bootstrap, start="earliest") as consumer:
        while len(found) < count:
            messages = await consumer.poll(timeout_ms=10_000)
            assert messages, f"only {len(found)} of {count} came"
            found += messages
    return found


@pytest.fixture
async def orders(bootstrap: str, topic: str) -> str:
    """Three partitions, 300 orders of 10 customers."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 3)
    async with Producer(bootstrap) as producer:
        for number in range(300):
            producer.submit(topic, b"%d" % number, key=b"customer-%d" % (number % 10))
    return topic


async def test_every_reader_of_a_topic_gets_every_message(bootstrap: str, orders: str) -> None:
    readers = await asyncio.gather(*(read(orders, bootstrap, 300) for _ in range(3)))

    for messages in readers:
        assert sorted(int(message.value or b"") for message in messages) == list(range(300))


async def test_one_key_stays_in_one_partition_and_in_order(bootstrap: str, orders: str) -> None:
    messages = await read(orders, bootstrap, 300)

    for key in {message.key for message in messages}:
        own = [message for message in messages if message.key == key]
        assert len({message.partition for message in own}) == 1
        values = [int(message.value or b"") for message in own]
        assert values == sorted(values)


async def test_readers_of_one_topic_see_nothing_of_another(bootstrap: str, orders: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(f"{orders}-payments", b"a payment")

    messages = await read(orders, bootstrap, 300)
    assert {message.topic for message in messages} == {orders}
    (payment,) = await read(f"{orders}-payments", bootstrap, 1)
    assert payment.value == b"a payment"


async def test_poll_returns_at_most_a_hundred_messages_by_default(
    bootstrap: str, orders: str
) -> None:
    async with Consumer(topics=orders, bootstrap=bootstrap, start="earliest") as consumer:
        polled = [len(await consumer.poll()) for _ in range(3)]

    assert max(polled) <= 100
    assert sum(polled) > 0


async def test_poll_waits_a_second_by_default(bootstrap: str, orders: str) -> None:
    async with Consumer(topics=orders, bootstrap=bootstrap, start="latest") as consumer:
        started = time.monotonic()
        assert await consumer.poll() == []

        assert 0.9 < time.monotonic() - started < 5
