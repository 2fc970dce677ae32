"""Consumers and producers that copy partition 0 to partition 1, each message once."""

from collections.abc import Callable, Coroutine
from random import Random

from tests.support.scripted_transactions import TransactionBroker

from waystation.client.consumer import Consumer
from waystation.client.exactly_once import ReadProcessWrite
from waystation.client.options import ConsumerOptions, ProducerOptions
from waystation.client.producer import Producer
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder

MESSAGES = 40
SOURCE = ("orders", 0)
PRODUCER: ProducerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "linger_ms": 0,
    "transactional_id": "tx",
}
CONSUMER: ConsumerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "fetch_max_wait_ms": 5,
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 5,
    "delivery": "exactly-once",
}

Work = Callable[[ReadProcessWrite], Coroutine[object, object, None]]


class CrashError(Exception):
    """The application fails while it processes."""


def producer_to(broker: TransactionBroker, **options: object) -> Producer:
    return Producer(
        broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **PRODUCER | options,  # type: ignore[arg-type,operator]
    )


def consumer_of(broker: TransactionBroker, *topics: str, **options: object) -> Consumer:
    return Consumer(
        "billing",
        topics,
        bootstrap=broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **CONSUMER | options,  # type: ignore[arg-type,operator]
    )


def filled(broker: TransactionBroker, messages: int = MESSAGES) -> TransactionBroker:
    for first in range(0, messages, 4):
        builder = BatchBuilder()
        for number in range(first, min(first + 4, messages)):
            builder.append(None, b"%d" % number, timestamp=Millis(number))
        broker.partitions[0].append(builder.build())
    return broker


async def copy(transaction: ReadProcessWrite) -> None:
    async for message in transaction:
        transaction.submit("orders", b"copy of %s" % (message.value or b""), partition=1)


async def block(
    consumer: Consumer, producer: Producer, work: Work = copy, lasting_ms: int = 60
) -> None:
    """Long enough for all messages, also where others keep the machine busy."""
    async with consumer.transaction(producer, lasting_ms=lasting_ms, timeout_ms=300) as transaction:
        await work(transaction)


def copies(first: int, end: int) -> list[bytes]:
    return [b"copy of %d" % number for number in range(first, end)]
