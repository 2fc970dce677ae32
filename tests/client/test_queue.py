"""A queue by our own client, on a real broker: send, receive, settle, and what is wrong."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.queue_reading import WAIT_MS, received, values
from tests.support.soak import count

from waystation import Admin, Consumer, NotHeldError, Queue
from waystation.client.errors import ClosedError
from waystation.model.errors import (
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidRequestError,
    UnknownTopicError,
)
from waystation.model.ids import NodeId

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


# --- the everyday -------------------------------------------------------------------------------


async def test_what_is_sent_comes_once_with_all_that_was_said(queue: Queue) -> None:
    told = await queue.send("hello", key="k", headers={"kind": "greeting"}, priority=4)

    (message,) = await received(queue, 1)

    assert (message.key, message.value, message.deliveries) == (b"k", b"hello", 1)
    assert message.headers == (("kind", b"greeting"), ("priority", b"4"))
    assert message.header("kind") == b"greeting"
    assert message.id == f"{told.partition}-{told.offset}"
    assert 0 < message.seconds_left <= 30
    held_before = message.is_held
    await queue.ack(message)
    assert (held_before, message.is_held) == (True, False)
    assert await queue.receive(1, 50) == []


async def test_what_was_sent_before_the_first_consumer_came_is_delivered(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    await admin.create_queue(topic)
    async with Queue(topic, bootstrap) as queue:
        for number in range(5):
            await queue.send(str(number))

        assert values(await received(queue, 5)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_what_is_acknowledged_never_comes_again(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    for number in range(10):
        await queue.send(str(number))
    await queue.ack(await received(queue, 6))
    await queue.close()

    async with Queue(topic, bootstrap) as again:
        left = await received(again, 4)

        assert all(one.deliveries == 1 for one in left)
        await again.ack(left)
        assert await again.receive(10, 50) == []


async def test_what_is_held_at_the_end_is_given_back(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    await queue.send("x")
    await received(queue, 1)
    await queue.close()

    async with Queue(topic, bootstrap) as again:
        (message,) = await received(again, 1)

        assert message.deliveries == 2


async def test_messages_are_shared_between_consumers_and_none_comes_twice(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    number = count(300, 20_000)
    async with Queue(topic, bootstrap, prefetch_messages=50) as other:
        await asyncio.gather(*(queue.send(str(one)) for one in range(number)))
        seen: list[bytes] = []

        async def work(own: Queue) -> None:
            while len(seen) < number:
                messages = await own.receive(20, 500)
                seen.extend(one.value or b"" for one in messages)
                await own.ack(messages)

        await asyncio.gather(work(queue), work(other))

    assert sorted(seen) == sorted(str(one).encode() for one in range(number))


async def test_iteration_and_acknowledgements_without_waiting(queue: Queue) -> None:
    await asyncio.gather(*(queue.send(str(one)) for one in range(20)))
    seen = []
    async for message in queue:
        seen.append(message)
        queue.submit_ack(message)
        if len(seen) == 20:
            break
    await queue.flush()

    assert len(set(values(seen))) == 20
    assert await queue.receive(1, 50) == []


async def test_no_more_is_acquired_than_is_asked_for(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    for number in range(10):
        await queue.send(str(number), key="same")
    await received(queue, 3)

    async with Queue(topic, bootstrap) as other:
        rest = await received(other, 7)

        assert [one.deliveries for one in rest] == [1] * 7


async def test_who_does_not_wait_gets_what_is_there(queue: Queue) -> None:
    await queue.join()
    assert await queue.receive(5, 0) == []
    await queue.send("x", key="k")
    await queue.send("y", key="k")

    assert values(await queue.receive(5, 0)) == [b"x", b"y"]


async def test_a_leader_that_comes_when_a_receive_is_over_harms_nobody(queue: Queue) -> None:
    await queue.join()
    sessions = (await queue._receiver())._sessions
    (one,) = sessions.values()

    async def idle() -> None:
        sessions[NodeId(99)] = one

    one.idle = idle  # type: ignore[method-assign]  # a leader is elected just then

    assert await queue.receive(1, 50) == []
    del sessions[NodeId(99)]


async def test_a_group_and_a_queue_each_get_everything(
    bootstrap: str, topic: str, queue: Queue
) -> None:
    for number in range(6):
        await queue.send(str(number))
    await queue.ack(await received(queue, 6))

    async with Queue(topic, bootstrap, group=f"{topic}-2") as other:
        # A group that nobody configured begins with what is new when it first asks.
        await other.join()
        assert await other.receive(1, 100) == []
        await queue.send("new")
        assert values(await received(other, 1)) == [b"new"]
    async with Consumer("readers", topic, bootstrap=bootstrap) as consumer:
        read: list[bytes | None] = []
        while len(read) < 7:
            read += [one.value for one in await consumer.poll(WAIT_MS)]
        assert len(set(read)) == 7


# --- not this time ------------------------------------------------------------------------------


async def test_what_is_given_back_comes_again_and_what_is_given_up_does_not(queue: Queue) -> None:
    await queue.send("again", key="a")
    await queue.nack(await received(queue, 1))
    (message,) = await received(queue, 1)
    assert message.deliveries == 2

    await queue.nack(message, requeue=False)

    assert await queue.receive(1, 100) == []


async def test_a_delayed_return_comes_after_the_delay_and_counts(queue: Queue) -> None:
    await queue.send("later")
    (message,) = await received(queue, 1)
    began = time.monotonic()

    await queue.nack(message, delay="300ms")

    (again,) = await received(queue, 1)
    assert time.monotonic() - began >= 0.3
    assert again.deliveries == 2
    with pytest.raises(InvalidRequestError, match="requeue"):
        await queue.nack(again, requeue=False, delay=100)


async def test_a_lock_that_is_extended_lasts(bootstrap: str, topic: str, admin: Admin) -> None:
    await admin.create_queue(topic, lock_ms=LOCK_MS)
    async with Queue(topic, bootstrap) as queue:
        await queue.send("slow")
        (message,) = await received(queue, 1)
        for _ in range(3):
            await asyncio.sleep(LOCK_MS / 2_000)
            await queue.extend(message)

        await queue.ack(message)
        assert await queue.receive(1, LOCK_MS + 200) == []


async def test_what_waits_here_for_too_long_goes_back_by_itself(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    """Two receivers were waiting, one went away: the message it would have had is not kept."""
    await admin.create_queue(topic, lock_ms=LOCK_MS)
    async with Queue(topic, bootstrap) as idle, Queue(topic, bootstrap) as busy:
        await idle.send("a")
        (message,) = await received(idle, 1)

        (again,) = await received(busy, 1)  # after its lock

        assert again.deliveries == 2
        await busy.ack(again)
        with pytest.raises(NotHeldError):
            await idle.ack(message)


# --- what is not held ---------------------------------------------------------------------------


async def test_settled_twice_is_told(queue: Queue) -> None:
    await queue.send("x")
    (message,) = await received(queue, 1)
    await queue.ack(message)

    for settle in (queue.ack(message), queue.nack(message), queue.extend(message)):
        with pytest.raises(NotHeldError, match="settled already"):
            await settle


async def test_settled_too_late_is_told_and_the_others_are_settled(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    await admin.create_queue(topic, lock_ms=LOCK_MS)
    async with Queue(topic, bootstrap) as queue:
        await queue.send("late", key="k")
        (late,) = await received(queue, 1)
        await asyncio.sleep(LOCK_MS / 1_000 + 0.1)
        await queue.send("good", key="k")
        both = await received(queue, 2)
        good = next(one for one in both if one.value == b"good")

        with pytest.raises(NotHeldError, match="lock was over") as caught:
            await queue.ack([late, good])

        assert [offset for _, offset, _ in caught.value.refused] == [late.offset]
        assert not good.is_held


async def test_what_the_broker_refuses_costs_the_others_nothing(queue: Queue) -> None:
    """Whatever our clock says: a leader refuses a partition's acknowledgements together."""
    for number in range(8):
        await queue.send(str(number), key="same")
    messages = await received(queue, 8)
    stolen = messages[3]
    await queue.ack(stolen)
    stolen.lease._unsettled.add(stolen.offset)  # as if we had never heard of it

    with pytest.raises(NotHeldError) as caught:
        await queue.ack(messages)

    assert [offset for _, offset, _ in caught.value.refused] == [stolen.offset]
    assert await queue.receive(10, 50) == []


async def test_a_failure_that_nobody_waited_for_is_told_by_flush(queue: Queue) -> None:
    await queue.send("x")
    (message,) = await received(queue, 1)
    await queue.ack(message)

    queue.submit_ack(message)

    with pytest.raises(NotHeldError):
        await queue.flush()
    await queue.flush()


# --- wrong input --------------------------------------------------------------------------------


async def test_an_unknown_queue_is_told_to_sender_and_receiver(bootstrap: str, topic: str) -> None:
    async with Queue(topic, bootstrap, metadata_timeout_ms=200) as queue:
        with pytest.raises(UnknownTopicError, match="waystation queue create"):
            await queue.send("x")
        with pytest.raises(UnknownTopicError, match="waystation queue create"):
            await queue.receive(1, 100)


async def test_a_queue_without_delays_says_so(bootstrap: str, topic: str, admin: Admin) -> None:
    await admin.create_queue(topic)
    async with Queue(topic, bootstrap, metadata_timeout_ms=200) as queue:
        with pytest.raises(InvalidRequestError, match=r"schedule\.enable"):
            await queue.send("x", deliver_after="1h")


async def test_a_consumer_group_is_no_queue(bootstrap: str, topic: str, admin: Admin) -> None:
    await admin.create_topic(topic)
    async with Consumer(topic, topic, bootstrap=bootstrap) as consumer:
        while not consumer.assignment:
            await consumer.poll(50)
        async with Queue(topic, bootstrap) as queue:
            with pytest.raises(InvalidRequestError, match="consumer group"):
                await queue.receive(1, WAIT_MS)


async def test_wrong_policies_make_nothing(topic: str, admin: Admin) -> None:
    with pytest.raises(InvalidConfigError, match=r"max\.deliveries"):
        await admin.create_queue(topic, max_deliveries=0)

    assert topic not in {one.name for one in await admin.list_topics()}


async def test_a_queue_does_not_change_the_partitions_of_a_topic(topic: str, admin: Admin) -> None:
    assert await admin.create_queue(topic, 2)
    assert not await admin.create_queue(topic, 2, order_by_key=True)

    with pytest.raises(InvalidPartitionsError, match="2 partitions, not 3"):
        await admin.create_queue(topic, 3)


async def test_a_closed_queue_says_so(bootstrap: str, topic: str, queue: Queue) -> None:
    await queue.send("x")
    (message,) = await received(queue, 1)
    await queue.close()

    for use in (queue.send("y"), queue.receive(), queue.ack(message)):
        with pytest.raises(ClosedError):
            await use
    with pytest.raises(InvalidGroupIdError):
        Queue(topic, bootstrap, group="")


async def test_an_acknowledgement_is_answered_though_there_is_nothing_to_receive(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    """It goes with the request for more, and does not wait with it."""
    await admin.create_queue(topic, 1)
    async with Queue(topic, bootstrap, fetch_max_wait_ms=60_000) as queue:
        await queue.send("only")
        received = await queue.receive(1, 10_000)
        more = asyncio.ensure_future(queue.receive(1, 60_000))
        try:
            async with asyncio.timeout(20):
                await queue.ack(received)
            assert not more.done()
        finally:
            more.cancel()
            await asyncio.wait([more])
