"""Senders and consumers of a queue that write down what they do and see, until SIGTERM.

    python -m tests.support.queue_clients write TOPIC RATE BOOTSTRAP NAME LIFE HISTORY
    python -m tests.support.queue_clients confluent TOPIC GROUP MANY LOCK_MS BOOTSTRAP ...
    python -m tests.support.queue_clients ours TOPIC GROUP MANY LOCK_MS BOOTSTRAP ...

``MANY`` consumers live in one program, as threads around confluent-kafka's ``ShareConsumer`` or as
tasks around our ``Queue``; the next one of a place has another name, as
``waystation/testing/queue_history.py`` wants it.  Some of them hang for longer than a lock lasts,
some give back what they got, some ask for more time.
"""

import asyncio
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import (
    AcknowledgeType,
    IllegalStateException,
    KafkaError,
    KafkaException,
    ShareConsumer,
)
from confluent_kafka import Message as Found

from tests.support.soak import count as how_many
from waystation import Producer, Queue, WaystationError
from waystation.client.queue_errors import NotHeldError
from waystation.client.queue_message import QueueMessage
from waystation.client.queue_receiving import Receiving
from waystation.client.queue_settings import ReceivingSettings
from waystation.client.queue_settling import Settling as Settled
from waystation.client.router import Router
from waystation.runtime.loops import run
from waystation.sharing.states import RELEASE as RELEASED
from waystation.testing.history import HistoryFile, Value
from waystation.testing.queue_history import (
    ACCEPT,
    RELEASE,
    RENEW,
    Given,
    How,
    Marked,
    Placed,
    QueueDiary,
)
from waystation.testing.writers import Pace

KEYS = how_many(40, 400)
_RELEASED = 0.04
_HANGS = 0.01
_WORKING_S = 0.4
_RENEWED = 0.02
_POLL_S = 0.3
_ANSWERED_WITHIN_S = 10.0
_AGAIN_AFTER_S = 0.2
_LIBRDKAFKA = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "log_level": 0,
    "share.acknowledgement.mode": "explicit",
}


class Told:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.over = False
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, *_: object) -> None:
        self.over = True


class Work(NamedTuple):
    """What a consumer needs to know."""

    told: Told
    bootstrap: str
    topic: str
    group: str
    lock_s: float


def _working_s(work: Work, chance: Random) -> float:
    """How long somebody works on what it got: less than a lock lasts, unless it hangs."""
    return work.lock_s * 1.5 if chance.random() < _HANGS else chance.uniform(0.0, _WORKING_S)


class Asked:
    """When what a consumer gets of a partition was asked for, at the earliest.

    A request may wait at a broker while several polls bring what others have: it is younger than
    the answer before it from the same broker, and nothing else is known of it.
    """

    def __init__(self, answers: int) -> None:
        """A client may have asked again before it hands out so many ``answers``."""
        self._born_ns, self._answers = time.monotonic_ns(), answers
        self._came_ns: dict[int, deque[tuple[object, int]]] = {}

    def since(self, partition: int, answer: object, came_ns: int) -> int:
        """Of what came by that answer, at that time."""
        came = self._came_ns.setdefault(partition, deque(maxlen=self._answers + 1))
        if not came or came[-1][0] is not answer:
            came.append((answer, came_ns))
        return came[0][1] if len(came) > self._answers else self._born_ns


# --- senders ------------------------------------------------------------------------------------


async def write(told: Told, file: HistoryFile, life: str, bootstrap: str, *how: str) -> None:
    """Send keyed messages at a rate, whatever happens to the cluster."""
    topic, rate = how
    for number in count():
        diary = QueueDiary(f"{life}x{number}", file.write)
        diary.remark("begins")
        with suppress(WaystationError):
            async with Producer(bootstrap, linger_ms=1) as producer:
                await _write_on(told, diary, producer, topic, float(rate))
        if told.over:
            return
        await asyncio.sleep(_AGAIN_AFTER_S)


async def _write_on(
    told: Told, diary: QueueDiary, producer: Producer, topic: str, rate: float
) -> None:
    chance = Random(diary.process)
    async for many in Pace(chance, rate, asyncio.get_running_loop().time() + 1e9).lots():
        if told.over:
            return
        keys = [f"k{chance.randrange(KEYS)}" for _ in range(many)]
        values = diary.sending(keys)
        sent = [
            producer.submit(topic, str(value), key=key)
            for value, key in zip(values, keys, strict=True)
        ]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        rows, failed = [], []
        for value, one in zip(values, outcomes, strict=True):
            if isinstance(one, BaseException):
                failed.append(one)
            else:
                rows.append(Placed(value.number, one.partition, one.offset))
        diary.sent(rows)
        if failed:
            raise failed[0]


# --- consumers by librdkafka --------------------------------------------------------------------


def consume_by_confluent(work: Work, file: HistoryFile, name: str) -> None:
    """One consumer after the other, until it is over."""
    for life in count():
        diary = QueueDiary(f"{name}x{life}", file.write)
        try:
            _one_share_consumer(work, diary)
        except KafkaException as error:
            diary.remark(f"{error}")
        if work.told.over:
            return
        time.sleep(_AGAIN_AFTER_S)


def _one_share_consumer(work: Work, diary: QueueDiary) -> None:
    settings = {"bootstrap.servers": work.bootstrap, "group.id": work.group}
    consumer = ShareConsumer({**_LIBRDKAFKA, **settings})
    chance, asked = Random(diary.process), Asked(answers=2)
    consumer.subscribe([work.topic])
    try:
        while not work.told.over:
            answer = consumer.poll(_POLL_S)
            found, came_ns = [one for one in answer if one.error() is None], time.monotonic_ns()
            rows = [_given(one) for one in found]
            for number in sorted({row.partition for row in rows}):
                since_ns = asked.since(number, answer, came_ns)
                diary.delivered(since_ns, (row for row in rows if row.partition == number))
            if found:
                _settle_by_confluent(work, diary, chance, consumer, found)
    finally:
        diary.died()
        consumer.close()


def _given(one: Found) -> Given:
    partition, offset = one.partition(), one.offset()
    assert partition is not None, "a message without a partition"
    assert offset is not None, "a message without an offset"
    return Given(partition, offset, one.delivery_count() or 0, *Value.of(one.value()))


def _settle_by_confluent(
    work: Work, diary: QueueDiary, chance: Random, consumer: ShareConsumer, found: list[Found]
) -> None:
    time.sleep(_working_s(work, chance))
    said: dict[How, list[Marked]] = {ACCEPT: [], RELEASE: []}
    types = {ACCEPT: AcknowledgeType.ACCEPT, RELEASE: AcknowledgeType.RELEASE}
    kinds: list[tuple[Found, How]] = [
        (one, RELEASE if chance.random() < _RELEASED else ACCEPT) for one in found
    ]
    for one, how in kinds:
        said[how].append(Marked(*_given(one)[:3]))
    for how, rows in said.items():
        diary.settling(how, rows)
    for one, how in kinds:
        try:
            consumer.acknowledge(one, types[how])
        except IllegalStateException as error:
            diary.remark(f"{one.partition()}@{one.offset()}: {error}")
    told = consumer.commit_sync(_ANSWERED_WITHIN_S)
    for where, failure in told.items():
        code = None if failure is None else failure.args[0].code()
        for how, rows in said.items():
            some = [row for row in rows if row.partition == where.partition]
            if code is None:
                diary.settled(how, "yes", some)
            elif code == KafkaError.INVALID_RECORD_STATE:
                diary.settled(how, "not held", some)
        if code not in (None, KafkaError.INVALID_RECORD_STATE):
            diary.remark(f"partition {where.partition}: {failure}")


# --- consumers by our client --------------------------------------------------------------------


class NotedQueue(Queue):
    """Writes down whatever comes to it, also what nobody asks for and what it gives back."""

    def __init__(self, work: Work, diary: QueueDiary) -> None:
        super().__init__(work.topic, work.bootstrap, group=work.group)
        self._diary = diary

    async def _receiver(self) -> Receiving:
        if self._receiving is None:
            made = _Noted(self._router, self.settings, self.name, self.group_id, self._diary)
            await made.start()
            self._receiving = made
        return self._receiving


class _Noted(Receiving):
    def __init__(
        self,
        router: Router,
        settings: ReceivingSettings,
        topic: str,
        group_id: str,
        diary: QueueDiary,
    ) -> None:
        super().__init__(router, settings, topic, group_id)
        self._diary, self._asked = diary, Asked(answers=1)

    def take(self, messages: Iterable[QueueMessage]) -> None:
        found, came_ns = list(messages), time.monotonic_ns()
        for one in found[:1]:
            since_ns = self._asked.since(one.partition, one.lease, came_ns)
            rows = (Given(*_mark(one), *Value.of(one.value)) for one in found)
            self._diary.delivered(since_ns, rows)
        super().take(found)

    def settle(self, messages: Iterable[QueueMessage], kind: int, why: str = "") -> Settled:
        found = list(messages)
        if kind == RELEASED:
            self._diary.settling(RELEASE, map(_mark, found))
        return super().settle(found, kind, why)


async def consume_by_ours(work: Work, file: HistoryFile, name: str) -> None:
    """One consumer after the other, until it is over."""
    for life in count():
        diary = QueueDiary(f"{name}x{life}", file.write)
        try:
            async with NotedQueue(work, diary) as queue:
                await _receive(work, diary, queue)
        except WaystationError as error:
            diary.remark(f"{type(error).__name__}: {error}")
        if work.told.over:
            return
        await asyncio.sleep(_AGAIN_AFTER_S)


async def _receive(work: Work, diary: QueueDiary, queue: Queue) -> None:
    chance = Random(diary.process)
    try:
        while not work.told.over:
            found = await queue.receive(chance.randint(1, 20), int(_POLL_S * 1_000))
            if found:
                await asyncio.sleep(_working_s(work, chance))
            if found and chance.random() < _RENEWED:
                await _tell(diary, queue, RENEW, found[:1])
            back = [one for one in found if chance.random() < _RELEASED]
            done = [one for one in found if one not in back]
            await _tell(diary, queue, RELEASE, back)
            await _tell(diary, queue, ACCEPT, done)
    finally:
        diary.died()


def _mark(one: QueueMessage) -> Marked:
    return Marked(one.partition, one.offset, one.deliveries)


async def _tell(
    diary: QueueDiary, queue: Queue, how: How, messages: Sequence[QueueMessage]
) -> None:
    rows = [_mark(one) for one in messages]
    if not rows:
        return
    diary.settling(how, rows)
    try:
        match how:
            case "renew":
                await queue.extend(messages[0])
            case "release":
                await queue.nack(messages)
            case _:
                await queue.ack(messages)
    except NotHeldError as error:
        refused = {(where.partition, offset) for where, offset, _ in error.refused}
        # With the leader's death all is lost that it gave, and nobody was asked.
        asked = [_mark(one) for one in messages if one.lease.hold.lost is None]
        diary.settled(how, "not held", _of(asked, refused, among=True))
        diary.settled(how, "yes", _of(rows, refused, among=False))
    except WaystationError as error:
        diary.remark(f"{how}: {type(error).__name__}: {error}")
    else:
        diary.settled(how, "yes", rows)


def _of(rows: Iterable[Marked], some: set[tuple[int, int]], *, among: bool) -> list[Marked]:
    return [row for row in rows if ((row.partition, row.offset) in some) == among]


# --- all of them --------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """A program's life."""
    told = Told()
    role, *how, bootstrap, _, life, path = arguments
    with HistoryFile(Path(path)) as file:
        QueueDiary(life, file.write).remark("begins")
        if role == "write":
            run(write(told, file, life, bootstrap, *how))
            return
        topic, group, many, lock_ms = how
        work = Work(told, bootstrap, topic, group, int(lock_ms) / 1_000)
        names = [f"{life}/{number}" for number in range(int(many))]
        if role == "ours":
            run(_all_ours(work, file, names))
        else:
            _all_confluent(work, file, names)


async def _all_ours(work: Work, file: HistoryFile, names: Iterable[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(consume_by_ours(work, file, name))


def _all_confluent(work: Work, file: HistoryFile, names: Iterable[str]) -> None:
    threads = [
        threading.Thread(target=consume_by_confluent, args=(work, file, name)) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1:])
