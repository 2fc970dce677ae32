"""Readers that write down what they are given: one that wanders, and one that reads it all."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from random import Random
from time import monotonic_ns

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.message import Message
from waystation.client.offsets import LATEST
from waystation.model.errors import RequestTimedOutError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.testing.history import Diary, Seen, Value

__all__ = ["NeverSettledError", "read_to_end", "rows_by_partition", "wander"]

_POLL_MS = 100
_POLL_MESSAGES = 500
_STAY_S = 2.0
_LOOK_EVERY_S = 0.1


class NeverSettledError(RequestTimedOutError):
    """Something stands in the way of readers and does not go away."""

    def __init__(self, why: str, patience_s: float) -> None:
        super().__init__(f"after {patience_s:.0f} s {why}")


async def wander(
    bootstrap: str, topics: Sequence[str], diary: Diary, chance: Random, until_s: float
) -> None:
    """Read until the loop's clock says ``until_s``; now and then, begin again elsewhere."""
    loop = asyncio.get_running_loop()
    async with _reader(bootstrap, topics) as consumer:
        _begin(consumer, diary)
        moves_at = loop.time() + chance.uniform(0, _STAY_S)
        while loop.time() < until_s:
            await _read(consumer, diary)
            if loop.time() > moves_at:
                moves_at = loop.time() + chance.uniform(0, _STAY_S)
                _go_back(consumer, diary, chance)


async def read_to_end(
    bootstrap: str, topics: Sequence[str], diary: Diary, patience_s: float
) -> list[Message]:
    """Wait until no transaction is open, and read everything there is."""
    deadline = asyncio.get_running_loop().time() + patience_s
    async with _reader(bootstrap, topics) as consumer:
        asked_ns, ends = await _settled_ends(bootstrap, consumer.assignment, patience_s)
        _begin(consumer, diary)
        found: list[Message] = []
        while left := [one for one, end in ends.items() if consumer.position(one) < end]:
            if asyncio.get_running_loop().time() > deadline:
                at = consumer.position(left[0])
                why = f"a reader of {left[0]} is at {at} of {ends[left[0]]} and gets no further"
                raise NeverSettledError(why, patience_s)
            found += await _read(consumer, diary)
        for where, end in ends.items():
            diary.finished(where, end, asked_ns)
    return found


def rows_by_partition(
    messages: Iterable[Message],
) -> Iterator[tuple[TopicPartition, list[Message]]]:
    """The messages of each partition, in their order."""
    place = attrgetter("topic", "partition")
    for where, some in groupby(sorted(messages, key=place), place):
        yield TopicPartition(*where), list(some)


async def _settled_ends(
    bootstrap: str, partitions: Iterable[TopicPartition], patience_s: float
) -> tuple[int, dict[TopicPartition, Offset]]:
    """Where the partitions end, and since when: at a moment at which nothing was open."""
    wanted: dict[tuple[str, int], int] = dict.fromkeys(partitions, LATEST)
    deadline = asyncio.get_running_loop().time() + patience_s
    async with Admin(bootstrap) as admin:
        while True:
            asked_ns = monotonic_ns()
            # In this order: if nothing came in between, nothing was open at the first question.
            stable = await admin.list_offsets(wanted, isolation="read_committed")
            ends = await admin.list_offsets(wanted)
            held_up = [one for one in ends if stable[one].offset < ends[one].offset]
            if not held_up:
                return asked_ns, {where: told.offset for where, told in ends.items()}
            if asyncio.get_running_loop().time() > deadline:
                at = stable[held_up[0]].offset
                raise NeverSettledError(
                    f"the transaction at {held_up[0]}@{at} is still open: "
                    "`waystation txn find-hanging` tells whose it is",
                    patience_s,
                )
            await asyncio.sleep(_LOOK_EVERY_S)


def _reader(bootstrap: str, topics: Sequence[str]) -> Consumer:
    return Consumer(
        None,
        list(topics),
        bootstrap=bootstrap,
        start="earliest",
        isolation="read_committed",
        fetch_max_wait_ms=_POLL_MS,
    )


def _begin(consumer: Consumer, diary: Diary) -> None:
    for where in consumer.assignment:
        diary.seeking(where, consumer.position(where))


def _go_back(consumer: Consumer, diary: Diary, chance: Random) -> None:
    """One partition again from somewhere before."""
    where = chance.choice(consumer.assignment)
    offset = chance.randint(0, consumer.position(where))
    consumer.seek(where, offset)
    diary.seeking(where, offset)


async def _read(consumer: Consumer, diary: Diary) -> list[Message]:
    messages = await consumer.poll(_POLL_MS, _POLL_MESSAGES)
    for where, some in rows_by_partition(messages):
        rows = (Seen(one.offset, *Value.of(one.value)) for one in some)
        diary.polled(where, consumer.position(where), rows)
    return messages
