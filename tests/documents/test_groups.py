"""What the design documents say of keys, groups and delivery, with our client."""

import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer
from tests.support.soak import count

from waystation import Admin, Consumer, Message, Producer
from waystation.client.options import ConsumerOptions

READER = Path(__file__).parent / "careless_reader.py"
FAST: ConsumerOptions = {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 50}
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
KINDS = [pytest.param({"assignors": one}, id=one) for one in ASSIGNORS]
KINDS.append(pytest.param({"group_protocol": "consumer"}, id="server-side"))


async def poll_until(consumers: list[Consumer], true: object) -> None:
    """Poll all of them, as members do, until ``true()``."""
    async with asyncio.timeout(20):
        while not true():  # type: ignore[operator]
            await asyncio.gather(*(one.poll(timeout_ms=20) for one in consumers))


async def read(consumer: Consumer, wanted: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < wanted:
        messages = await consumer.poll(timeout_ms=10_000)
        assert messages, f"only {len(found)} of {wanted} came"
        found += messages
    return found


@pytest.fixture
async def payments(bootstrap: str, topic: str) -> str:
    """Six partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 6)
    return topic


# --- keys -------------------------------------------------------------------------------------


async def test_a_key_goes_to_the_same_partition_from_every_client(
    bootstrap: str, payments: str
) -> None:
    keys = [f"customer-{number}".encode() for number in range(20)]
    theirs = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await theirs.start()
    async with Producer(bootstrap) as ours:
        by_ours = [(await ours.send(payments, b"v", key=key)).partition for key in keys]
    by_aiokafka = [(await theirs.send_and_wait(payments, b"v", key=key)).partition for key in keys]
    await theirs.stop()

    assert await asyncio.to_thread(_by_confluent, bootstrap, payments, keys) == by_ours
    assert await asyncio.to_thread(_by_kafka_python, bootstrap, payments, keys) == by_ours
    assert by_aiokafka == by_ours
    assert len(set(by_ours)) > 1


def _by_confluent(bootstrap: str, topic: str, keys: list[bytes]) -> list[int]:
    found: dict[bytes, int] = {}
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 0}
    )
    for key in keys:
        producer.produce(
            topic, b"v", key=key, on_delivery=lambda _, m: found.update({m.key(): m.partition()})
        )
    producer.flush(10)
    return [found[key] for key in keys]


def _by_kafka_python(bootstrap: str, topic: str, keys: list[bytes]) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    sent = [producer.send(topic, b"v", key=key) for key in keys]
    found = [one.get(10).partition for one in sent]
    producer.close()
    return found


async def test_messages_without_a_key_go_round_robin(bootstrap: str, payments: str) -> None:
    async with Producer(bootstrap, partitioner="round-robin") as producer:
        partitions = [(await producer.send(payments, b"v")).partition for _ in range(18)]

    for start in range(0, 18, 6):
        assert sorted(partitions[start : start + 6]) == list(range(6))


# --- sharing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_three_members_of_payments_read_two_partitions_each_and_a_seventh_idles(
    bootstrap: str, payments: str, kind: ConsumerOptions
) -> None:
    async with AsyncExitStack() as members:
        consumers: list[Consumer] = []

        async def join(new: int) -> None:
            for _ in range(new):
                consumer = Consumer(payments, payments, bootstrap=bootstrap, **FAST | kind)
                consumers.append(await members.enter_async_context(consumer))

        def shares() -> list[int]:
            return sorted(len(one.assignment) for one in consumers)

        await join(3)
        await poll_until(consumers, lambda: shares() == [2, 2, 2])
        owned = [where for one in consumers for where in one.assignment]
        assert sorted(owned) == [(payments, number) for number in range(6)]

        await join(4)
        await poll_until(consumers, lambda: shares() == [0, 1, 1, 1, 1, 1, 1])


async def test_every_group_gets_every_message(bootstrap: str, payments: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(60):
            producer.submit(payments, b"%d" % number)
    async with (
        Consumer("billing", payments, bootstrap=bootstrap, **FAST) as billing,
        Consumer("audit", payments, bootstrap=bootstrap, **FAST) as audit,
    ):
        for consumer in (billing, audit):
            values = [int(one.value or b"") for one in await read(consumer, 60)]
            assert sorted(values) == list(range(60))


async def test_a_group_reset_to_earliest_reads_identical_bytes_while_another_stays(
    bootstrap: str, payments: str
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(100):
            producer.submit(payments, Random(number).randbytes(50), key=b"%d" % number)
    first, others = f"{payments}-first", f"{payments}-others"

    async def all_read(group: str, wanted: int) -> list[Message]:
        async with Consumer(group, payments, bootstrap=bootstrap, **FAST) as consumer:
            return sorted(await read(consumer, wanted), key=lambda one: (one.partition, one.offset))

    before = await all_read(first, 100)
    await all_read(others, 100)
    async with Admin(bootstrap) as admin:
        await admin.reset_group_offsets(first, "earliest")
        again = await all_read(first, 100)
        stayed = await admin.group_lag(others)

    assert again == before
    assert [lag.messages for lag in stayed.values()] == [0] * 6


# --- delivery ---------------------------------------------------------------------------------


def _kill_while_processing(bootstrap: str, topic: str, delivery: str) -> list[str]:
    """A reader in a process of its own, killed with messages in hand; what it held."""
    command = [sys.executable, str(READER), bootstrap, topic, delivery]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        held = process.stdout.readline().split()
        process.kill()
    return held


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
async def test_killed_while_processing(bootstrap: str, topic: str, delivery: str) -> None:
    """At most once never redelivers what was in hand; at least once always does."""
    total, kills = count(200, 1_000), count(3, 30)  # each holds ten
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2)
    async with Producer(bootstrap) as producer:
        for number in range(total):
            producer.submit(topic, b"%d" % number)
    held = []
    for _ in range(kills):
        held += await asyncio.to_thread(_kill_while_processing, bootstrap, topic, delivery)
    in_hand = [int(one) for one in held]
    assert in_hand, "nobody held anything"
    left = total - len(set(in_hand)) if delivery == "at-most-once" else total
    async with Consumer(topic, topic, bootstrap=bootstrap, delivery=delivery, **FAST) as consumer:
        messages = await read(consumer, left)
        messages += await consumer.poll(timeout_ms=100)
    rest = [int(one.value or b"") for one in messages]

    if delivery == "at-most-once":
        assert len(in_hand) == len(set(in_hand)), "handed out twice"
        assert not set(in_hand) & set(rest), "redelivered"
    else:
        assert sorted(rest) == list(range(total)), "lost"


async def test_a_member_polls_a_second_and_at_most_a_hundred_messages_by_default(
    bootstrap: str, payments: str
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(250):
            producer.submit(payments, b"%d" % number, partition=0)
    async with Consumer(payments, payments, bootstrap=bootstrap, **FAST) as consumer:
        polled = []
        while sum(polled) < 250:
            polled.append(len(await consumer.poll()))
        assert max(polled) == 100

        started = time.monotonic()
        assert await consumer.poll() == []
        assert 0.9 < time.monotonic() - started < 5
