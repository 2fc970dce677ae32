"""One member of a group as a program of its own, to be closed, killed and stopped at any moment.

    python -m tests.support.group_member JOURNAL BOOTSTRAP GROUP TOPIC
        CLIENT PROTOCOL ASSIGNOR SESSION_MS

It processes records, which means that it writes them to its journal, and commits now and then,
after they are written.  SIGTERM closes it as an application would be closed.
"""

import asyncio
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.group_history import (
    Assigned,
    Committed,
    Committing,
    Event,
    GivenUp,
    Processed,
    Row,
    line_of,
)
from waystation.client.consumer import Consumer as OwnConsumer
from waystation.model.errors import WaystationError

SESSION_MS, HEARTBEAT_MS = 1_500, 150
_POLL_S = 0.05
_AT_ONCE = 50
# Seldom, so that a death costs something; now and then if nothing comes, so that it ends.
_COMMIT_CHANCE, _COMMIT_CHANCE_IDLE = 0.05, 0.3
_WORK_S = 0.01

# What serialized group metadata of librdkafka begins with; the generation comes next.
_METADATA_MAGIC = b"CGMDv2:"


class Diary:
    """The journal of one member, and how far it has got."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def assigned(self, generation: int, partitions: Iterable[int]) -> None:
        self._write(Assigned(time.monotonic_ns(), generation, tuple(partitions)))

    def gave_up(self, partitions: Iterable[int]) -> None:
        gone = tuple(partitions)
        self._write(GivenUp(time.monotonic_ns(), gone))
        for one in gone:
            self._next.pop(one, None)
            self._committed.pop(one, None)

    def processed(self, generation: int, messages: Iterable[tuple[int, int, bytes]]) -> None:
        """Of each message the partition, offset and value."""
        rows: dict[int, list[Row]] = {}
        for partition, offset, value in messages:
            key, _, number = value.decode().partition(":")
            rows.setdefault(partition, []).append(Row(offset, key, int(number)))
            self._next[partition] = offset + 1
        for partition, some in rows.items():
            self._write(Processed(time.monotonic_ns(), generation, partition, tuple(some)))

    def due(self, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """What is processed and not committed, of all or of these; it is going to be."""
        wanted = self._next if partitions is None else set(partitions)
        due = {
            one: at
            for one, at in self._next.items()
            if one in wanted and self._committed.get(one) != at
        }
        if due:
            self._write(Committing(time.monotonic_ns(), due))
        return due

    def committed(self, offsets: dict[int, int]) -> None:
        if offsets:
            self._write(Committed(time.monotonic_ns(), offsets))
            self._committed |= offsets

    def _write(self, event: Event) -> None:
        os.write(self._file, line_of(event))


class ConfluentMember:
    """By librdkafka."""

    def __init__(self, diary: Diary, options: dict[str, Any], topic: str) -> None:
        self._diary, self._topic = diary, topic
        self._server_side = options["group.protocol"] == "consumer"
        self._synced = 0
        self._options = options
        self._owned: set[int] = set()
        self._consumer = self._subscribed()

    def _subscribed(self) -> Consumer:
        consumer = Consumer(self._options)
        consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        return consumer

    def run(self, stop: list[int]) -> None:
        """Read until there is something in ``stop``."""
        while not stop:
            if is_time_to_commit(self._turn()):
                self._commit(None)
            time.sleep(random.uniform(0, _WORK_S))
        self._consumer.close()

    def _turn(self) -> int:
        """Process some; how many."""
        message = self._consumer.poll(_POLL_S)
        some = 0
        while message is not None and some < _AT_ONCE:
            if message.error() is not None and message.error().code() == KafkaError._FATAL:
                self._begin_again()
            elif message.error() is None:
                some += 1
                row = (message.partition(), message.offset(), message.value())
                # Each by itself: the next poll may tell that its partition is taken away.
                self._diary.processed(self._owns_in(), [row])
            message = self._consumer.poll(0) if some < _AT_ONCE else None
        return some

    def _begin_again(self) -> None:
        """librdkafka gives up when its group has become another meanwhile; applications do not."""
        self._consumer.close()
        self._gave_up(list(self._owned))
        self._consumer = self._subscribed()

    def _gave_up(self, partitions: list[int]) -> None:
        self._owned.difference_update(partitions)
        self._diary.gave_up(partitions)

    def _owns_in(self) -> int:
        """The generation or epoch in which it owns what it owns.

        A classic member that has joined the next generation goes on with what it got in the last,
        until it is given its share; if the broker dies before, that generation never was.
        """
        return self._generation() if self._server_side else self._synced

    def _generation(self) -> int:
        written = self._consumer.consumer_group_metadata()
        assert written.startswith(_METADATA_MAGIC), written
        (generation,) = struct.unpack_from("i", written, len(_METADATA_MAGIC))
        return int(generation)

    def _commit(self, partitions: Iterable[int] | None) -> None:
        due = self._diary.due(partitions)
        if not due:
            return
        offsets = [TopicPartition(self._topic, one, at) for one, at in due.items()]
        try:
            told = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return  # somebody else's by now, or the broker is away: the next one says it again
        self._diary.committed({one.partition: one.offset for one in told if one.error is None})

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._synced = self._generation()
        numbers = [one.partition for one in partitions]
        self._owned.update(numbers)
        self._diary.assigned(self._synced, numbers)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        self._commit(numbers)
        self._gave_up(numbers)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._gave_up([one.partition for one in partitions])


class OwnMember:
    """By Waystation's own client."""

    def __init__(self, diary: Diary, options: dict[str, Any], topic: str) -> None:
        self._diary, self._topic = diary, topic
        self._server_side = options["group_protocol"] == "consumer"
        self._synced = 0
        self._consumer = OwnConsumer(
            topics=[topic],
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            **options,
        )

    def run(self, stop: list[int]) -> None:
        """Read until there is something in ``stop``."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: list[int]) -> None:
        await self._reach_a_broker()
        async with self._consumer:
            while not stop:
                rows = [
                    (one.partition, one.offset, one.value or b"")
                    for one in await self._consumer.poll(int(_POLL_S * 1_000), _AT_ONCE)
                ]
                self._diary.processed(self._owns_in(), rows)
                if is_time_to_commit(len(rows)):
                    await self._commit(None)
                await asyncio.sleep(random.uniform(0, _WORK_S))

    async def _reach_a_broker(self) -> None:
        while True:
            try:
                await self._consumer.start()
            except WaystationError:  # the broker is away, or went while it was asked
                await asyncio.sleep(_POLL_S)
            else:
                return

    def _owns_in(self) -> int:
        return self._generation() if self._server_side else self._synced

    def _generation(self) -> int:
        identity = self._consumer._in_group()._identity()
        return -1 if identity is None else identity.generation

    async def _commit(self, partitions: Iterable[int] | None) -> None:
        due = self._diary.due(partitions)
        if not due:
            return
        try:
            await self._consumer.commit({(self._topic, one): at for one, at in due.items()})
        except WaystationError:
            return  # somebody else's by now, or the broker is away: the next one says it again
        self._diary.committed(due)

    def _assigned(self, partitions: list[Any]) -> None:
        self._synced = self._generation()
        self._diary.assigned(self._synced, [one.partition for one in partitions])

    async def _revoked(self, partitions: list[Any]) -> None:
        numbers = [one.partition for one in partitions]
        await self._commit(numbers)
        self._diary.gave_up(numbers)

    def _lost(self, partitions: list[Any]) -> None:
        self._diary.gave_up(one.partition for one in partitions)


def is_time_to_commit(processed: int) -> bool:
    """Sometimes it is."""
    return random.random() < (_COMMIT_CHANCE if processed else _COMMIT_CHANCE_IDLE)


def confluent_options(
    bootstrap: str, group: str, protocol: str, assignor: str, session_ms: int
) -> dict[str, Any]:
    """How librdkafka is told what the arguments say."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": protocol,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "log_level": 0,
    }
    if protocol == "consumer":
        return options | {"group.remote.assignor": assignor}
    return options | {
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def own_options(
    bootstrap: str, group: str, protocol: str, assignor: str, session_ms: int
) -> dict[str, Any]:
    """How our own client is told the same."""
    options: dict[str, Any] = {
        "bootstrap": bootstrap,
        "group_id": group,
        "auto_commit": False,
        "group_protocol": protocol,
        "retry_backoff_ms": 20,
        "retry_backoff_max_ms": 200,
    }
    if protocol == "consumer":
        return options | {"remote_assignor": assignor}
    return options | {
        "assignors": assignor,
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": HEARTBEAT_MS,
    }


def main() -> None:
    path, bootstrap, group, topic, client, protocol, assignor, session_ms = sys.argv[1:]
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    how = (bootstrap, group, protocol, assignor, int(session_ms))
    member: ConfluentMember | OwnMember
    if client == "confluent":
        member = ConfluentMember(Diary(path), confluent_options(*how), topic)
    else:
        member = OwnMember(Diary(path), own_options(*how), topic)
    member.run(stop)


if __name__ == "__main__":
    main()
