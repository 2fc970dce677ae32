"""Writers that write down what they send and what they are told, in transactions or without.

A writer lives until something goes wrong with its producer; the next one has another name, so
that no two values are alike, and the same transactional id, as a program that is started again.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import NamedTuple

from waystation.client.outgoing import Delivered
from waystation.client.producer import Producer
from waystation.client.transaction import Transaction
from waystation.model.errors import TransactionAbortableError
from waystation.testing.history import Diary, Value, Written

__all__ = [
    "TRANSACTION_TIMEOUT_MS",
    "Pace",
    "Target",
    "acknowledged",
    "write_plainly",
    "write_transactions",
]

TRANSACTION_TIMEOUT_MS = 10_000
KEYS = 10
_MOST_AT_ONCE = 10
_LINGER_MS = 1


class Target(NamedTuple):
    """Where to: which topics, and over how many partitions of each."""

    bootstrap: str
    topics: Sequence[str]
    partitions: int | None
    """If this is not said, values have keys, and keys have their partitions."""

    def choose(self, chance: Random) -> tuple[str, int | None]:
        """Some partition of some topic."""
        topic = chance.choice(self.topics)
        return topic, None if self.partitions is None else chance.randrange(self.partitions)


class Pace:
    """So many messages a second, in lots of a few, until the time is over."""

    def __init__(self, chance: Random, messages_per_s: float, until_s: float) -> None:
        self.chance, self.until_s = chance, until_s
        self._messages_per_s = messages_per_s

    async def lots(self) -> AsyncIterator[int]:
        """How many to send next, when it is time for them."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while loop.time() < self.until_s:
            many = self.chance.randint(1, _MOST_AT_ONCE)
            yield many
            due_s = max(due_s + many / self._messages_per_s, loop.time() - 1)
            await asyncio.sleep(max(due_s - loop.time(), 0))


async def write_plainly(target: Target, diary: Diary, pace: Pace) -> None:
    """Send values outside of any transaction; raises when the producer is of no use any more."""
    async with Producer(target.bootstrap, linger_ms=_LINGER_MS) as producer:
        async for many in pace.lots():
            sending = []
            for value in diary.sending(None, many):
                topic, partition = target.choose(pace.chance)
                sending.append((value, producer.submit(topic, str(value), partition=partition)))
            await acknowledged(diary, sending)


async def write_transactions(
    target: Target, diary: Diary, pace: Pace, transactional_id: str, aborts: float
) -> None:
    """Send values in transactions, of which a part is aborted; raises as ``write_plainly``."""
    async with Producer(
        target.bootstrap,
        linger_ms=_LINGER_MS,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    ) as producer:
        async for many in pace.lots():
            commit = pace.chance.random() >= aborts
            number = diary.begin()
            try:
                async with producer.transaction() as transaction:
                    await _write_in(transaction, target, diary, pace, number, many)
                    diary.deciding(number, commit=commit)
                    if not commit:
                        await transaction.abort()
            except TransactionAbortableError:
                diary.ended(number, committed=False)
                raise
            # Not reached where the end is in doubt: then only the log knows.
            diary.ended(number, committed=commit)


async def _write_in(
    transaction: Transaction, target: Target, diary: Diary, pace: Pace, number: int, many: int
) -> None:
    sending = []
    for value in diary.sending(number, many):
        topic, partition = target.choose(pace.chance)
        key = f"k{pace.chance.randrange(KEYS)}" if partition is None else None
        sending.append((value, transaction.submit(topic, str(value), key=key, partition=partition)))
    await acknowledged(diary, sending)


async def acknowledged(diary: Diary, sending: Sequence[tuple[Value, Delivered]]) -> None:
    """Write down what was acknowledged; raises the first failure, if there was one."""
    told = await asyncio.gather(*(one for _, one in sending), return_exceptions=True)
    rows, failures = [], []
    for (value, _), one in zip(sending, told, strict=True):
        if isinstance(one, BaseException):
            failures.append(one)
        else:
            rows.append(Written(one.topic, one.partition, one.offset, value.number))
    diary.acknowledged(rows)
    if failures:
        raise failures[0]
