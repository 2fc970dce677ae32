"""Messages on their way into a transaction: checked, and each with its partition.

Those of one key stay in one partition, as everywhere.  Those without are spread by the call: all of
one topic go to the same partition, so that a call writes to few.
"""

import asyncio
from collections.abc import Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from waystation.client.joined import TransactionRecord
from waystation.client.partitioner import partition_of_key
from waystation.gateway.problems import refusal
from waystation.gateway.transaction_bodies import NewOffset, NewTopicMessage
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["check_there", "placed"]

_TURN: Final = 256
_chance: Final = SystemRandom()


async def check_there(clients: "Clients", wanted: Sequence[NewOffset]) -> None:
    """A problem if an offset is of a partition that does not exist: brokers would wait for it."""
    for number, one in enumerate(wanted):
        there = len((await clients.topic(one.topic)).partitions)
        await _check_partition(clients, one.topic, one.partition, there, f"offsets[{number}].")


async def placed(
    clients: "Clients", messages: Sequence[NewTopicMessage], now: Millis
) -> list[tuple[TopicPartition, TransactionRecord]]:
    """Each message with its partition; a mistake in any is told before any is added."""
    counts: dict[str, int] = {}
    spread: dict[str, int] = {}
    found = []
    for number, message in enumerate(messages):
        at = f"messages[{number}]."
        value, key, headers, partition, timestamp_ms = message.record(at)
        _check_plain(message, at)
        topic = message.topic
        if topic not in counts:
            counts[topic] = len((await clients.topic(topic)).partitions)
            spread[topic] = _chance.randrange(counts[topic])
        if partition is None:
            partition = spread[topic] if key is None else partition_of_key(key, counts[topic])
        else:
            counts[topic] = await _check_partition(clients, topic, partition, counts[topic], at)
        stamp = Millis(now if timestamp_ms is None else timestamp_ms)
        record = TransactionRecord(key, value, tuple(headers), stamp)
        found.append((TopicPartition(topic, partition), record))
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    return found


async def _check_partition(
    clients: "Clients", topic: str, partition: int, there: int, at: str
) -> int:
    """How many partitions the topic has, which is more than ``partition``."""
    if partition >= there:
        await (await clients.router()).refresh()  # it may be new
        there = len((await clients.topic(topic)).partitions)
    if partition >= there:
        raise refusal(
            404,
            "unknown-partition",
            f"topic {topic} has {there} partitions",
            field=f"{at}partition",
            remedy=f"0 to {there - 1}",
        )
    return there


def _check_plain(message: NewTopicMessage, at: str) -> None:
    if message.timing(at) is not None:
        raise refusal(
            400,
            "invalid-field",
            "messages of transactions are delivered at once",
            field=f"{at}deliver_at",
            remedy="leave the time away, or send the message without a transaction",
        )
    if message.idempotency_key is not None:
        raise refusal(
            400,
            "invalid-field",
            "messages of transactions have no idempotency key",
            field=f"{at}idempotency_key",
            remedy="leave it away: a transaction that was not committed is not there",
        )
