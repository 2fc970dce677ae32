"""Other people's clients that write and read and write down what they see, until SIGTERM.

    python -m tests.support.foreign_clients ROLE TOPIC RATE BOOTSTRAP NAME LIFE HISTORY

The roles are writers, idempotent and with ``acks=all``, and readers in a group; each by librdkafka
and by aiokafka.  A client that is of no use any more is replaced by another of another name, as
``waystation/testing/history.py`` wants it.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, groupby
from pathlib import Path
from random import Random
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Message, Producer

from waystation.model.ids import TopicPartition as Where
from waystation.testing.history import Diary, HistoryFile, Seen, Value, Written
from waystation.testing.writers import Pace

_POLL_S = 0.2
_SOON_S = 10.0
_SESSION_MS = 3_000
_AGAIN_AFTER_S = 0.2
_LIBRDKAFKA = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2_000,
    "log_level": 0,
}


class Told:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.over = False
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, *_: object) -> None:
        self.over = True


# --- librdkafka ---------------------------------------------------------------------------------


def confluent_write(told: Told, diary: Diary, bootstrap: str, topic: str, rate: float) -> None:
    """One producer's life; returns when it is over, for it or for all."""
    fatal: list[object] = []
    producer = Producer(
        {
            **_LIBRDKAFKA,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
        }
    )
    chance = Random(diary.process)
    while not told.over and not fatal:
        many = chance.randint(1, 10)
        rows: list[Written] = []
        for value in diary.sending(None, many):
            producer.produce(topic, str(value), on_delivery=partial(_delivered, rows, value))
        deadline = time.monotonic() + many / rate
        while len(producer) and not fatal:
            producer.poll(0.05)
        diary.acknowledged(rows)
        time.sleep(max(deadline - time.monotonic(), 0))
    if fatal:
        diary.note(f"{fatal[0]}")
    producer.purge()


def _delivered(rows: list[Written], value: Value, error: object, sent: Message) -> None:
    if error is None:
        rows.append(Written(sent.topic(), sent.partition(), sent.offset(), value.number))


def confluent_read(told: Told, diary: Diary, bootstrap: str, topic: str, _: float) -> None:
    """One member's life in its group."""
    consumer = Consumer(
        {
            **_LIBRDKAFKA,
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-confluent",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": _SESSION_MS // 10,
            "auto.commit.interval.ms": 500,
        }
    )
    at: dict[Where, int] = {}

    def moved(*_: object) -> None:
        at.clear()

    consumer.subscribe([topic], on_assign=moved, on_revoke=moved, on_lost=moved)
    try:
        while not told.over:
            found = [one for one in consumer.consume(200, _POLL_S) if one.error() is None]
            seen = [
                (Where(one.topic(), one.partition()), one.offset(), one.value()) for one in found
            ]
            _note(diary, at, seen)
    finally:
        consumer.close()


# --- aiokafka -----------------------------------------------------------------------------------


async def aiokafka_write(told: Told, diary: Diary, bootstrap: str, topic: str, rate: float) -> None:
    """One producer's life; raises when it is of no use any more."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, retry_backoff_ms=50
    )
    loop = asyncio.get_running_loop()
    await producer.start()
    try:
        async for many in Pace(Random(diary.process), rate, loop.time() + 1e9).lots():
            if told.over:
                return
            values = diary.sending(None, many)
            sent = [await producer.send(topic, str(value).encode()) for value in values]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            rows, failed = [], []
            for value, one in zip(values, outcomes, strict=True):
                if isinstance(one, BaseException):
                    failed.append(one)
                else:
                    rows.append(Written(one.topic, one.partition, one.offset, value.number))
            diary.acknowledged(rows)
            if failed:
                raise failed[0]
    finally:
        with suppress(TimeoutError, AiokafkaError):
            await asyncio.wait_for(producer.stop(), _SOON_S)


async def aiokafka_read(told: Told, diary: Diary, bootstrap: str, topic: str, _: float) -> None:
    """One member's life in its group; raises when it is of no use any more."""
    at: dict[Where, int] = {}

    class Moved(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: object) -> None:
            at.clear()

        async def on_partitions_assigned(self, assigned: object) -> None:
            at.clear()

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-aiokafka",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=_SESSION_MS,
        heartbeat_interval_ms=_SESSION_MS // 10,
        auto_commit_interval_ms=500,
        retry_backoff_ms=50,
    )
    consumer.subscribe([topic], listener=Moved())
    await consumer.start()
    try:
        while not told.over:
            found = await consumer.getmany(timeout_ms=int(_POLL_S * 1_000))
            seen = [
                (Where(where.topic, where.partition), one.offset, one.value)
                for where, some in found.items()
                for one in some
            ]
            _note(diary, at, seen)
    finally:
        # It stumbles over tasks of its own that it cancelled.
        with suppress(TimeoutError, AiokafkaError, asyncio.CancelledError):
            await asyncio.wait_for(consumer.stop(), _SOON_S)


# --- all of them --------------------------------------------------------------------------------


def _note(diary: Diary, at: dict[Where, int], seen: Iterable[tuple[Where, int, bytes]]) -> None:
    """What a poll gave; where a reader began elsewhere than it stood, that it did."""
    ordered = sorted(seen, key=lambda one: one[:2])
    for where, group in groupby(ordered, lambda one: one[0]):
        some = list(group)
        if at.get(where) is None:
            diary.seeking(where, some[0][1])
        at[where] = some[-1][1] + 1
        diary.polled(where, at[where], (Seen(offset, *Value.of(text)) for _, offset, text in some))


def _waits(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(*arguments: Any) -> None:
        asyncio.run(work(*arguments))  # type: ignore[arg-type]

    return run


ROLES: dict[str, Callable[..., None]] = {
    "confluent-write": confluent_write,
    "confluent-read": confluent_read,
    "aiokafka-write": _waits(aiokafka_write),
    "aiokafka-read": _waits(aiokafka_read),
}


def main(arguments: Sequence[str]) -> None:
    """One life after the other, until it is over."""
    role, topic, rate, bootstrap, _, life, path = arguments
    told = Told()
    with HistoryFile(Path(path)) as file:
        Diary(life, file.write).note("begins")
        for again in count():
            diary = Diary(f"{life}.{again}", file.write)
            try:
                ROLES[role](told, diary, bootstrap, topic, float(rate))
            except (KafkaException, AiokafkaError, OSError, TimeoutError) as error:
                diary.note(f"{type(error).__name__}: {error}")
            if told.over:
                return
            time.sleep(_AGAIN_AFTER_S)


if __name__ == "__main__":
    main(sys.argv[1:])
