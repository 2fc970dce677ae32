"""Writers that write down what they send and what they are told.

A writer lives until something goes wrong with its producer; the next one has another name, so
that no two values are alike.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from random import Random
from typing import NamedTuple

from waystation.client.outgoing import RecordMetadata
from waystation.client.producer import Producer
from waystation.model.errors import WaystationError
from waystation.testing.history import Diary, Value, Written

__all__ = ["Pace", "Target", "acknowledged", "write_plainly"]

_MOST_AT_ONCE = 10


class Target(NamedTuple):
    """Where to: which topics, and how many partitions each has."""

    bootstrap: str
    topics: Sequence[str]
    partitions: int

    def choose(self, chance: Random) -> tuple[str, int]:
        """Some partition of some topic."""
        return chance.choice(self.topics), chance.randrange(self.partitions)


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
    async with Producer(target.bootstrap, linger_ms=1) as producer:
        async for many in pace.lots():
            sending = []
            for value in diary.sending(None, many):
                topic, partition = target.choose(pace.chance)
                sending.append((value, producer.send(topic, str(value), partition=partition)))
            if trouble := await acknowledged(diary, sending):
                raise trouble


async def acknowledged(
    diary: Diary, sending: Sequence[tuple[Value, Awaitable[RecordMetadata]]]
) -> WaystationError | None:
    """Write down what was acknowledged; the first error, if there was one."""
    told = await asyncio.gather(*(one for _, one in sending), return_exceptions=True)
    rows, trouble = [], None
    for (value, _), one in zip(sending, told, strict=True):
        if isinstance(one, WaystationError):
            trouble = trouble or one
        elif isinstance(one, BaseException):
            raise one
        else:
            rows.append(Written(one.topic, one.partition, one.offset, value.number))
    diary.acknowledged(rows)
    return trouble
