"""Consumers in groups, and the admin of groups, against a real broker."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer

from waystation import Admin, Consumer, Message, Producer, TopicPartition
from waystation.client.errors import NoCommittedOffsetError
from waystation.client.group_offsets import CommittedOffset
from waystation.client.options import ConsumerOptions
from waystation.model.errors import (
    GroupNotFoundError,
    GroupSubscribedError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownTopicError,
)
from waystation.model.offsets import Millis, Offset

FAST: ConsumerOptions = {
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 50,
    "metadata_max_age_ms": 100,
}


@pytest.fixture
async def orders(bootstrap: str, topic: str) -> str:
    """Four partitions with ten messages each; the name is also a group's that nobody else has."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 4)
    async with Producer(bootstrap) as producer:
        for number in range(40):
            producer.submit(topic, b"%d" % number, partition=number % 4)
    return topic


async def until(true: Callable[[], bool], *polled: Consumer) -> list[Message]:
    """Poll all of them until ``true()``; what came."""
    found: list[Message] = []
    async with asyncio.timeout(20):
        while not true():
            for messages in await asyncio.gather(*(one.poll(timeout_ms=20) for one in polled)):
                found += messages
            await asyncio.sleep(0.005)
    return found


async def read(consumer: Consumer, wanted: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < wanted:
        messages = await consumer.poll(timeout_ms=10_000)
        assert messages, f"only {len(found)} of {wanted} came"
        found += messages
    return found


# --- members ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_come_and_go_and_nothing_is_skipped(
    bootstrap: str, orders: str, protocol: str
) -> None:
    def member() -> Consumer:
        return Consumer(orders, orders, bootstrap=bootstrap, group_protocol=protocol, **FAST)

    found: list[Message] = []
    async with member() as first:
        found += await until(lambda: len(first.assignment) == 4, first)
        async with member() as second:
            found += await until(
                lambda: len(first.assignment) == len(second.assignment) == 2, first, second
            )
        found += await until(lambda: len(first.assignment) == 4, first)
        found += await until(lambda: len({(m.partition, m.offset) for m in found}) == 40, first)

    assert sorted({int(one.value or b"") for one in found}) == list(range(40))


async def test_a_pattern_finds_topics_that_appear_later(bootstrap: str, orders: str) -> None:
    pattern = re.compile(re.escape(orders) + r"(-\d)?")
    async with Consumer(orders, pattern, bootstrap=bootstrap, **FAST) as consumer:
        assert len(await read(consumer, 40)) == 40
        async with Producer(bootstrap) as producer:
            await producer.send(f"{orders}-1", b"new")
            await producer.send(f"{orders}-other", b"another")
        (message,) = await read(consumer, 1)

    assert (message.topic, message.value) == (f"{orders}-1", b"new")


async def test_a_consumer_without_a_group_takes_patterns_too(bootstrap: str, orders: str) -> None:
    pattern = re.compile(re.escape(orders) + "(-new)?")
    async with Consumer(topics=pattern, bootstrap=bootstrap, metadata_max_age_ms=100) as consumer:
        assert len(await read(consumer, 40)) == 40
        async with Producer(bootstrap) as producer:
            await producer.send(f"{orders}-new", b"new")

        assert [one.value for one in await read(consumer, 1)] == [b"new"]


async def test_partitions_added_later_are_shared_out(bootstrap: str, orders: str) -> None:
    async with (
        Consumer(orders, orders, bootstrap=bootstrap, **FAST) as consumer,
        Admin(bootstrap) as admin,
    ):
        await read(consumer, 40)
        await admin.create_partitions(orders, 6)
        await until(lambda: len(consumer.assignment) == 6, consumer)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_whoever_sees_an_assignment_was_told_of_it(
    bootstrap: str, orders: str, protocol: str
) -> None:
    told: list[TopicPartition] = []
    options: ConsumerOptions = {**FAST, "group_protocol": protocol, "on_assigned": told.extend}
    async with Consumer(orders, orders, bootstrap=bootstrap, **options) as consumer:

        async def watch() -> None:
            while len(told) < 4:
                assert set(consumer.assignment) <= set(told)
                await asyncio.sleep(0)

        async with asyncio.timeout(20):
            await asyncio.gather(watch(), until(lambda: len(told) == 4, consumer))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_static_member_that_returns_disturbs_nobody(
    bootstrap: str, orders: str, protocol: str
) -> None:
    moves: list[list[TopicPartition]] = []

    def member(name: str, **more: Any) -> Consumer:
        options = {**FAST, "session_timeout_ms": 10_000, "group_instance_id": name}
        return Consumer(
            orders, orders, bootstrap=bootstrap, group_protocol=protocol, **options, **more
        )

    async with member("one", on_assigned=moves.append) as one:
        async with member("two") as two:
            await until(lambda: len(one.assignment) == len(two.assignment) == 2, one, two)
            before, seen = sorted(two.assignment), len(moves)
        async with member("two") as again:
            await until(lambda: len(again.assignment) == 2, one, again)

            assert sorted(again.assignment) == before
        assert len(moves) == seen


async def test_a_subscription_can_change(bootstrap: str, orders: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(f"{orders}-2", b"second")
    options: ConsumerOptions = {**FAST, "metadata_timeout_ms": 1_000}
    async with Consumer(orders, orders, bootstrap=bootstrap, **options) as consumer:
        await read(consumer, 40)
        await consumer.subscribe([f"{orders}-2"])

        assert [one.value for one in await read(consumer, 1)] == [b"second"]
        with pytest.raises(UnknownTopicError, match="nowhere"):
            await consumer.subscribe("nowhere")
        assert {topic for topic, _ in consumer.assignment} == {f"{orders}-2"}


async def test_errors_say_whose_fault_it_is_and_what_to_do(bootstrap: str, orders: str) -> None:
    strict: ConsumerOptions = {"auto_offset_reset": "error"}
    async with Consumer(orders, orders, bootstrap=bootstrap, **FAST, **strict) as consumer:
        with pytest.raises(NoCommittedOffsetError, match=f"group {orders} .*group reset"):
            await consumer.poll(timeout_ms=10_000)
        await until(lambda: len(consumer.assignment) == 4)
        noted = CommittedOffset(Offset(3), "x" * 5_000)
        with pytest.raises(OffsetMetadataTooLargeError, match=r"offset\.metadata\.max\.bytes"):
            await consumer.commit({(orders, 0): noted})
    hasty: ConsumerOptions = {"session_timeout_ms": 50, "heartbeat_interval_ms": 10}
    async with Consumer(orders, orders, bootstrap=bootstrap, **hasty) as consumer:
        with pytest.raises(InvalidSessionTimeoutError, match="session_timeout_ms"):
            await consumer.poll(timeout_ms=10_000)


# --- in company -------------------------------------------------------------------------------


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours leads", "theirs leads"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_a_group_is_shared_with_librdkafka(
    bootstrap: str, orders: str, assignor: str, ours_first: bool
) -> None:
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": orders,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 50,
            "auto.offset.reset": "earliest",
        }
    )
    ours = Consumer(orders, orders, bootstrap=bootstrap, assignors=assignor, **FAST)

    async def poll_theirs(true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                await asyncio.to_thread(theirs.poll, 0.05)

    if ours_first:
        await ours.start()
        await until(lambda: len(ours.assignment) == 4, ours)
        theirs.subscribe([orders])
    else:
        theirs.subscribe([orders])
        await poll_theirs(lambda: len(theirs.assignment()) == 4)
        await ours.start()

    def settled() -> bool:
        return len(ours.assignment) == len(theirs.assignment()) == 2

    try:
        await asyncio.gather(until(settled, ours), poll_theirs(settled))
        shared = [*ours.assignment, *((one.topic, one.partition) for one in theirs.assignment())]
        assert sorted(shared) == [(orders, number) for number in range(4)]
    finally:
        await asyncio.to_thread(theirs.close)
        await ours.close()


async def test_a_sticky_group_is_shared_with_aiokafka(bootstrap: str, orders: str) -> None:
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    theirs = AIOKafkaConsumer(
        orders,
        bootstrap_servers=bootstrap,
        group_id=orders,
        partition_assignment_strategy=[StickyPartitionAssignor],
        session_timeout_ms=2_000,
        heartbeat_interval_ms=50,
    )
    async with Consumer(orders, orders, bootstrap=bootstrap, assignors="sticky", **FAST) as ours:
        await until(lambda: len(ours.assignment) == 4, ours)
        before = set(ours.assignment)
        starting = asyncio.ensure_future(theirs.start())
        await until(lambda: starting.done() and len(ours.assignment) == 2, ours)
        try:
            assert set(ours.assignment) < before
            assert set(map(tuple, theirs.assignment())) == before - set(ours.assignment)
        finally:
            await theirs.stop()


# --- the admin --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_listed_described_and_deleted(
    bootstrap: str, orders: str, protocol: str
) -> None:
    async with Admin(bootstrap) as admin:
        async with Consumer(
            orders, orders, bootstrap=bootstrap, client_id="till", group_protocol=protocol, **FAST
        ) as consumer:
            await until(lambda: len(consumer.assignment) == 4, consumer)
            (listed,) = [one for one in await admin.list_groups() if one.group_id == orders]
            described = (await admin.describe_groups(orders))[orders]

            assert (listed.kind, listed.state) == (protocol, "Stable")
            (member,) = described.members
            assert (described.kind, described.state) == (protocol, "Stable")
            assert (member.client_id, member.host) == ("till", "127.0.0.1")
            assert member.topics == (orders,)
            assert sorted(member.assignment) == sorted(consumer.assignment)
            assert str(described.coordinator) == bootstrap
            with pytest.raises(NonEmptyGroupError, match="till at 127"):
                await admin.reset_group_offsets(orders, "earliest", [(orders, 0)])
            with pytest.raises(NonEmptyGroupError, match="stop them"):
                await admin.delete_groups(orders)
            with pytest.raises(NonEmptyGroupError):
                await admin.alter_group_offsets(orders, {(orders, 0): 1})
            await consumer.commit()
            with pytest.raises(GroupSubscribedError, match=orders):
                await admin.delete_group_offsets(orders, [(orders, 0)])

        await admin.delete_groups([orders])
        with pytest.raises(GroupNotFoundError, match=orders):
            await admin.describe_groups(orders)
        with pytest.raises(GroupNotFoundError, match=orders):
            await admin.delete_groups(orders)


async def test_offsets_of_a_group_are_read_altered_and_deleted(bootstrap: str, orders: str) -> None:
    first, second = TopicPartition(orders, 0), TopicPartition(orders, 1)
    async with Admin(bootstrap) as admin:
        assert await admin.group_offsets(orders) == {}
        await admin.alter_group_offsets(
            orders, {first: 3, second: CommittedOffset(Offset(7), "a note")}
        )
        assert await admin.group_offsets(orders) == {first: (3, "", -1), second: (7, "a note", -1)}
        assert await admin.group_offsets(orders, [second, (orders, 2)]) == {
            second: (7, "a note", -1)
        }

        await admin.delete_group_offsets(orders, [first])
        assert list(await admin.group_offsets(orders)) == [second]


async def test_the_marker_of_a_transaction_keeps_nobody_waiting(
    bootstrap: str, orders: str
) -> None:
    async with (
        Producer(bootstrap, transactional_id=orders) as producer,
        producer.transaction() as transaction,
    ):
        transaction.submit(orders, b"the last", partition=0)
    async with Admin(bootstrap) as admin:
        await admin.alter_group_offsets(orders, {(orders, 0): 11})
        async with asyncio.timeout(5):
            (lag,) = (await admin.group_lag(orders)).values()

    assert (lag.messages, lag.oldest_at, lag.seconds(Millis(1_900_000_000_000))) == (1, None, 0.0)


async def test_lag_is_in_messages_and_in_time(bootstrap: str, orders: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_group_offsets(orders, {(orders, 0): 4, (orders, 1): 10})
        await admin.delete_records({(orders, 0): 6})
        lags = await admin.group_lag(orders, [(orders, 2), (f"{orders}-gone", 0)])

    now = lags[TopicPartition(orders, 0)].oldest_at or Millis(0)
    assert {where.partition: lag.messages for where, lag in lags.items()} == {0: 4, 1: 0, 2: None}
    assert now > 1_700_000_000_000
    assert lags[TopicPartition(orders, 1)].seconds(now) == 0.0
