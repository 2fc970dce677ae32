"""A stage that reads, processes and writes, each message once, and writes down what it did.

What it makes of a message says where that comes from: ``w0.0:17`` becomes ``s1.0:4 w0.0:17>1`` in
stage 1 and ``s2.0:9 w0.0:17>1>2`` in stage 2.  The first word is the stage's own, for the checker.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from waystation.client.consumer import Consumer
from waystation.client.message import Message
from waystation.client.producer import Producer
from waystation.testing.history import Diary, Seen, Span, Value
from waystation.testing.readers import rows_by_partition
from waystation.testing.writers import TRANSACTION_TIMEOUT_MS, acknowledged

__all__ = ["Step", "origin_of", "process"]

_LASTING_MS = 50
_WAITING_MS = 200


class Step(NamedTuple):
    """What a stage does: from where, to where, and as who."""

    bootstrap: str
    number: int
    group: str
    sources: Sequence[str]
    target: str
    transactional_id: str
    aborts: float
    """The share of transactions that it aborts."""
    session_timeout_ms: int = 10_000


def origin_of(message: Message) -> str:
    """The first input that the message was made of, and the stages it went through."""
    first, _, origin = (message.value or b"").decode().partition(" ")
    return origin or first


async def process(
    step: Step, diary: Diary, chance: Random, is_over: Callable[[], bool] = lambda: False
) -> None:
    """Process until it is over and nothing is left, which is known to who is alone in the group.

    Raises when the consumer or the producer is of no use any more.
    """
    async with (
        Consumer(
            step.group,
            list(step.sources),
            bootstrap=step.bootstrap,
            delivery="exactly-once",
            session_timeout_ms=step.session_timeout_ms,
            heartbeat_interval_ms=step.session_timeout_ms // 10,
            fetch_max_wait_ms=_WAITING_MS,
        ) as consumer,
        Producer(
            step.bootstrap,
            linger_ms=1,
            transactional_id=step.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer,
    ):
        while await _block(step, diary, chance, consumer, producer) or not (
            is_over() and await _is_done(consumer, step.sources)
        ):
            pass


async def _block(
    step: Step, diary: Diary, chance: Random, consumer: Consumer, producer: Producer
) -> int:
    """One transaction; how many messages it was about."""
    commit = chance.random() >= step.aborts
    number, taken = -1, list[Message]()
    async with consumer.transaction(
        producer, lasting_ms=_LASTING_MS, timeout_ms=_WAITING_MS
    ) as transaction:
        taken += [message async for message in transaction]
        if not taken:
            return 0
        _note(diary, taken)
        number = diary.begin()
        sending = []
        for message, value in zip(taken, diary.sending(number, len(taken)), strict=True):
            text = f"{value} {origin_of(message)}>{step.number}"
            sending.append((value, transaction.submit(step.target, text, key=message.key)))
        await acknowledged(diary, sending)
        diary.consuming(number, step.group, _spans(taken))
        diary.deciding(number, commit=commit)
        if not commit:
            await transaction.abort()
            diary.ended(number, committed=False)
    # Not reached where the end is in doubt: then only the log knows.
    if commit and number >= 0:
        diary.ended(number, committed=transaction.is_committed)
    return len(taken)


def _note(diary: Diary, messages: Sequence[Message]) -> None:
    for where, some in rows_by_partition(messages):
        diary.seeking(where, some[0].offset)
        rows = (Seen(one.offset, *Value.of(one.value)) for one in some)
        diary.polled(where, some[-1].offset + 1, rows)


def _spans(messages: Sequence[Message]) -> list[Span]:
    return [
        Span(*where, some[0].offset, some[-1].offset + 1)
        for where, some in rows_by_partition(messages)
    ]


async def _is_done(consumer: Consumer, sources: Sequence[str]) -> bool:
    """Whether this one reads everything there is, and has read it to the end."""
    owned = set(consumer.assignment)
    for topic in sources:
        if not owned.issuperset(await consumer.partitions_of(topic)):
            return False
    ends = await consumer.end_offsets(owned)
    return all(consumer.position(where) >= end for where, end in ends.items())
