"""Queues with transactions, delays, order and receipts, by our own client on a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.support.queue_reading import WAIT_MS, received, values
from tests.support.soak import count

from waystation import Admin, NotHeldError, Producer, Queue
from waystation.client.queue_receipts import Receipts
from waystation.model.errors import UnknownTopicError

LOCK_MS = 700


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap) as made:
        yield made


@pytest.fixture
async def queue(bootstrap: str, topic: str, admin: Admin) -> AsyncIterator[Queue]:
    """Two partitions."""
    await admin.create_queue(topic, 2)
    async with Queue(topic, bootstrap) as made:
        yield made


# --- kinds of messages -----------------------------------------------------------------


async def test_a_message_for_later_comes_then(bootstrap: str, topic: str, admin: Admin) -> None:
    await admin.create_queue(topic, delays=True)
    async with Queue(topic, bootstrap) as queue:
        await queue.join()
        began = time.monotonic()
        await queue.send("later", deliver_after="400ms")
        await queue.send("now")

        assert values(await received(queue, 1)) == [b"now"]
        assert values(await received(queue, 1)) == [b"later"]
        assert time.monotonic() - began >= 0.4


async def test_a_queue_is_described(bootstrap: str, topic: str, queue: Queue, admin: Admin) -> None:
    for number in range(5):
        await queue.send(str(number), key="same")
    messages = await received(queue, 3)
    await queue.ack(messages[0])

    found = await admin.describe_queue(topic)

    assert (found.unsettled, found.members, found.state) == (4, 1, "Stable")
    assert (found.in_flight, found.ready) == (2, 2)
    assert any(one.group_id == topic for one in await admin.list_queues())
    with pytest.raises(UnknownTopicError, match="waystation queue create"):
        await admin.describe_queue(f"{topic}-not-there")
    await queue.close()
    found = await admin.describe_queue(topic)
    assert (found.members, found.state, found.in_flight) == (0, "Empty", 0)


@pytest.mark.parametrize(
    ("isolation", "came"),
    [("read_uncommitted", [b"aborted", b"kept"]), ("read_committed", [b"kept"])],
)
async def test_transactions_leave_nothing_behind_that_holds_a_queue_up(
    bootstrap: str, topic: str, admin: Admin, isolation: str, came: list[bytes]
) -> None:
    """Their markers take offsets, and are nobody's messages."""
    await admin.create_queue(topic, 1, group_configs={"share.isolation.level": isolation})
    async with Producer(bootstrap, transactional_id=topic) as producer:
        with suppress(LookupError):
            async with producer.transaction():
                await producer.send(topic, "aborted")
                raise LookupError
        async with producer.transaction():
            await producer.send(topic, "kept")
    async with Queue(topic, bootstrap) as queue:
        messages = await received(queue, len(came))
        assert values(messages) == came

        await queue.ack(messages)

        assert await queue.receive(1, 100) == []
        assert (await admin.describe_queue(topic)).unsettled == 0


async def test_compressed_empty_and_large_messages_come_as_they_were(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    await admin.create_queue(topic, 1)
    sent = [b"x" * 300_000, None, b"", b"small"]
    async with Producer(bootstrap, compression="zstd") as producer:
        for value in sent:
            await producer.send(topic, value)
    async with Queue(topic, bootstrap) as queue:
        messages = await received(queue, len(sent))

        assert [one.value for one in sorted(messages, key=lambda one: one.offset)] == sent
        await queue.ack(messages)


async def test_what_is_held_of_partitions_that_others_read_by_now_is_settled(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    """A second consumer comes, and the first one stops reading half of what it holds."""
    await admin.create_queue(topic, 4)
    async with Queue(topic, bootstrap) as first, Queue(topic, bootstrap) as second:
        await asyncio.gather(*(first.send(str(one), key=str(one)) for one in range(40)))
        held = await received(first, 40)
        assert len({one.partition for one in held}) == 4
        await second.join()
        receiving = first._receiving
        assert receiving is not None
        async with asyncio.timeout(20):
            while sum(map(len, receiving._assignment.values())) == 4:
                assert await first.receive(1, 50) == []
        assert await first.receive(1, 50) == []  # which says what is not read any more

        await first.ack(held)

        assert (await admin.describe_queue(topic)).unsettled == 0
        assert await second.receive(40, 200) == []


async def test_order_by_key_holds_with_many_consumers(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    keys, each = 5, count(20, 2_000)
    await admin.create_queue(topic, 1, order_by_key=True)
    async with Queue(topic, bootstrap) as sender:
        for number in range(each):
            await asyncio.gather(*(sender.send(str(number), key=f"k{key}") for key in range(keys)))
    worked: dict[bytes | None, list[int]] = {f"k{key}".encode(): [] for key in range(keys)}

    async def work() -> None:
        async with Queue(topic, bootstrap) as queue:
            while sum(map(len, worked.values())) < keys * each:
                for message in await queue.receive(3, 200):
                    worked[message.key].append(int(message.value or b""))
                    await queue.ack(message)

    await asyncio.gather(*(work() for _ in range(4)))

    assert all(numbers == list(range(each)) for numbers in worked.values())


# --- receipts -----------------------------------------------------------------------------------


async def test_a_receipt_outlives_its_connection_and_settles_one_message(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    for number in range(3):
        await queue.send(str(number), key="same")
    async with Receipts(topic, bootstrap) as receipts:
        held = await receipts.hold(2, WAIT_MS)
    assert [one.message.value for one in held] == [b"0", b"1"]
    assert values(await received(queue, 1)) == [b"2"]

    async with Receipts(topic, bootstrap) as receipts:
        await receipts.ack(held[0].receipt)
        await receipts.extend(held[1].receipt)
        await receipts.nack(held[1].receipt)
        for gone in (held[0].receipt, held[1].receipt):
            with pytest.raises(NotHeldError, match="receipt"):
                await receipts.ack(gone)

    (again,) = await received(queue, 1)
    assert (again.value, again.deliveries) == (b"1", 2)


async def test_what_is_held_by_a_lost_receipt_comes_again(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    await admin.create_queue(topic, lock_ms=LOCK_MS)
    async with Queue(topic, bootstrap) as queue, Receipts(topic, bootstrap) as receipts:
        await queue.send("x")
        (held,) = await receipts.hold(1, WAIT_MS)

        (again,) = await received(queue, 1)

        assert again.deliveries == 2
        with pytest.raises(NotHeldError):
            await receipts.ack(held.receipt)
