"""Transactions and exactly-once reading against a real broker, which is killed at times."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.support.soak import count

from waystation import Admin, Consumer, Producer
from waystation.client import transactor
from waystation.client.options import ConsumerOptions
from waystation.model.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.testing.process import BrokerProcess

QUICK: ConsumerOptions = {
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
}
INPUTS = count(200, 5_000)
BLOCKS = count(30, 600)
KEYS = 8


class CrashError(Exception):
    """The application fails while it processes."""


async def visible(bootstrap: str, topic: str, expected: int) -> list[tuple[bytes, bytes]]:
    """Key and value of all that is committed, which is ``expected`` and nothing behind it."""
    async with Consumer(topics=topic, bootstrap=bootstrap, isolation="read_committed") as consumer:
        found: list[tuple[bytes, bytes]] = []
        async with asyncio.timeout(20):
            while len(found) < expected:
                messages = await consumer.poll()
                found += [(one.key or b"", one.value or b"") for one in messages]
        found += [(one.key or b"", one.value or b"") for one in await consumer.poll(200)]
        return found


def by_key(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    sorted_out: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key, value in pairs:
        sorted_out[key].append(value)
    return dict(sorted_out)


async def fill(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Inputs in four partitions, and four to write to under the topic's other name."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 4)
        await admin.create_topic(topic + "-out", 4)
    sent = [(b"key %d" % (number % KEYS), b"%d" % number) for number in range(INPUTS)]
    async with Producer(bootstrap) as producer:
        for key, value in sent:
            producer.submit(topic, value, key=key)
    return sent


async def test_batches_too_large_for_their_topic_are_cut(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"max.message.bytes": "2000"})
    pairs = [(b"", b"%0100d" % number) for number in range(200)]
    async with Producer(bootstrap, transactional_id=topic) as producer:
        async with producer.transaction() as transaction:
            for _, value in pairs[:150]:
                transaction.submit(topic, value)
        with pytest.raises(TransactionAbortableError, match=f"{topic}-0.* 3... bytes.* 2000"):
            async with producer.transaction() as transaction:
                transaction.submit(topic, b"x" * 3_000)
        async with producer.transaction() as transaction:
            for _, value in pairs[150:]:
                transaction.submit(topic, value)

    assert await visible(bootstrap, topic, len(pairs)) == pairs


@pytest.mark.parametrize("commit", [True, False])
async def test_who_prepared_is_told_if_it_was_decided_otherwise_and_goes_on(
    bootstrap: str, topic: str, commit: bool
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1)
    async with (
        Producer(bootstrap, transactional_id=topic) as producer,
        Producer(bootstrap) as other,
    ):
        async with producer.transaction() as transaction:
            transaction.submit(topic, b"one")
            prepared = await transaction.prepare()
        await other.end(prepared, commit=not commit)
        with pytest.raises(InvalidTxnStateError):
            await producer.end(prepared, commit=commit)
        async with producer.transaction() as transaction:
            transaction.submit(topic, b"two")

    expected = [(b"", b"two")] if commit else [(b"", b"one"), (b"", b"two")]
    assert await visible(bootstrap, topic, len(expected)) == expected


class Stage:
    """Instances that copy ``topic`` to its other name, and crash at random."""

    def __init__(self, bootstrap: str, topic: str, chance: Random) -> None:
        self._bootstrap, self._topic, self._chance = bootstrap, topic, chance

    async def live(self, number: int, protocol: str) -> None:
        """One instance, started again whenever it has failed."""
        while True:
            with suppress(CrashError, WaystationError):
                await self._live_once(number, protocol)

    async def _live_once(self, number: int, protocol: str) -> None:
        async with (
            Consumer(
                self._topic,
                self._topic,
                bootstrap=self._bootstrap,
                delivery="exactly-once",
                group_protocol=protocol,
                **QUICK,
            ) as consumer,
            Producer(
                self._bootstrap,
                transactional_id=f"{self._topic}-{number}",
                transaction_timeout_ms=5_000,
                retry_backoff_ms=10,
            ) as producer,
        ):
            while True:
                async with consumer.transaction(producer, lasting_ms=20) as transaction:
                    async for message in transaction:
                        transaction.submit(self._topic + "-out", message.value, key=message.key)
                        await asyncio.sleep(0.001)
                        what = self._chance.random()
                        if what < 0.004:
                            raise CrashError
                        if what < 0.01:
                            await transaction.abort()
                            break
                        if what < 0.02:
                            break


@pytest.mark.parametrize(
    ("protocol", "flow"), [("classic", "newer"), ("consumer", "newer"), ("classic", "older")]
)
async def test_instances_that_come_and_crash_copy_each_message_once(
    bootstrap: str, topic: str, protocol: str, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flow == "older":
        monkeypatch.setattr(transactor, "_IMPLICIT_LEVEL", 99)
    sent = await fill(bootstrap, topic)
    stage = Stage(bootstrap, topic, Random(7))
    first = asyncio.create_task(stage.live(1, protocol))
    await asyncio.sleep(0.3)
    second = asyncio.create_task(stage.live(2, protocol))
    try:
        found = await visible(bootstrap, topic + "-out", len(sent))
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    assert by_key(found) == by_key(sent)


async def test_what_is_committed_survives_a_killed_broker_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    expected: list[bytes] = []
    killing = asyncio.ensure_future(asyncio.sleep(0))
    try:
        async with Producer(
            broker.bootstrap, transactional_id="tx", linger_ms=0, retry_backoff_ms=20
        ) as producer:
            for number in range(BLOCKS):
                if number % 30 == 10:
                    await killing
                    killing = asyncio.ensure_future(asyncio.to_thread(restart, broker))
                values = [b"%d.%d" % (number, part) for part in range(20)]
                with suppress(CrashError, TransactionAbortableError):
                    await write(producer, values, crash=number % 5 == 4)
                    expected += values
            await killing
        found = await visible(broker.bootstrap, "orders", len(expected))
    finally:
        broker.stop()

    assert [value for _, value in found] == expected
    assert len(expected) >= BLOCKS // 2 * 20


async def write(producer: Producer, values: list[bytes], *, crash: bool) -> None:
    async with producer.transaction() as transaction:
        for value in values:
            transaction.submit("orders", value, partition=0)
            await asyncio.sleep(0.0005)
        if crash:
            raise CrashError


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


async def test_a_prepared_transaction_waits_for_its_outcome(bootstrap: str, topic: str) -> None:
    async with (
        Producer(bootstrap, transactional_id=topic) as producer,
        producer.transaction() as transaction,
    ):
        await transaction.send(topic, b"prepared")
        prepared = await transaction.prepare()
    with pytest.raises(ConcurrentTransactionsError):
        async with Producer(bootstrap, transactional_id=topic, request_timeout_ms=200):
            pass

    async with Producer(bootstrap) as other:
        await other.end(prepared, commit=True)
        await other.end(prepared, commit=True)
        with pytest.raises(InvalidTxnStateError):
            await other.end(prepared, commit=False)

    assert await visible(bootstrap, topic, 1) == [(b"", b"prepared")]


async def test_a_time_out_that_the_broker_does_not_allow_is_refused(
    bootstrap: str, topic: str
) -> None:
    with pytest.raises(InvalidTransactionTimeoutError, match=r"transaction\.max\.timeout\.ms"):
        async with Producer(bootstrap, transactional_id=topic, transaction_timeout_ms=10_000_000):
            pass
