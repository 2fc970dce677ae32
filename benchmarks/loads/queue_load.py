"""One queue under load, by confluent-kafka: a producer and consumers of one share group at once.

    python -m benchmarks.loads.queue_load bootstrap=... topic=... partitions=4 ...

A message counts once the broker has said that its acknowledgement counts; consumers acknowledge
what a poll gave by the next one, as they do unless told otherwise.  The producer waits while too
many are on their way, so that it goes as fast as the consumers.  After the measured time it stops,
and everything that it has sent must be acknowledged, and read by the group beside if there is one.
Takes name=value pairs (``Options``); prints one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import cycle
from random import Random

import confluent_kafka
from confluent_kafka import admin as kafka_admin

_POLL_S = 0.2
_TURN = 200
_KEYS_DRAWN = 200_000
_WHOLE_WITHIN_S = 60.0
_READ_AT_ONCE = 10_000
_QUIET = {"log_level": 2}


@dataclass(frozen=True)
class Options:
    """What is asked of the queue, and for how long."""

    bootstrap: str
    topic: str
    partitions: int
    consumers: int
    size: int
    keys: int
    order: str
    beside: int
    on_their_way: int
    warmup_ms: int
    measured_ms: int

    @classmethod
    def of(cls, pairs: Sequence[str]) -> Options:
        """From the command line."""
        given = dict(pair.split("=", 1) for pair in pairs)
        kinds: Mapping[str, Callable[[str], object]] = {
            field.name: int if field.type == "int" else str for field in fields(cls)
        }
        return cls(**{name: kinds[name](text) for name, text in given.items()})  # type: ignore[arg-type]


class Load:
    """What runs at once, and what each has counted so far."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._acknowledged = [0] * options.consumers
        self._received = [0] * options.consumers
        self._stored = self._sent = self._read = 0
        self._producing = self._consuming = True
        self._failure: BaseException | None = None

    def run(self) -> dict[str, float]:
        """Everything, from making the topic to the last acknowledgement."""
        options = self._options
        self._prepare()
        consumers = [self._start(self._consume, n) for n in range(options.consumers)]
        if options.beside:
            consumers.append(self._start(self._read_in_group))
        producer = self._start(self._produce)
        self._await(lambda: self.acknowledged > 0, "nothing is acknowledged")
        self._sleep(options.warmup_ms)
        began_s, cpu_s = time.perf_counter(), _cpu_s()
        before, read_before = self.acknowledged, self._read
        self._sleep(options.measured_ms)
        counted, read = self.acknowledged - before, self._read - read_before
        seconds, spent_s = time.perf_counter() - began_s, _cpu_s() - cpu_s
        self._producing = False
        producer.join()
        self._await(self._is_whole, "not everything that was sent is acknowledged")
        self._consuming = False
        for thread in consumers:
            thread.join()
        return {
            "messages": counted,
            "messages_per_s": counted / seconds,
            "read_per_s": read / seconds,
            "client_cpu_ms_per_mb": spent_s * 1_000 / max(counted * options.size / 1e6, 1e-9),
            "stored": self._stored,
            "received": sum(self._received),
            "acknowledged": self.acknowledged,
            "read": self._read,
        }

    @property
    def acknowledged(self) -> int:
        """By all consumers."""
        return sum(self._acknowledged)

    def _is_whole(self) -> bool:
        read = self._read if self._options.beside else self._stored
        return self.acknowledged >= self._stored and read >= self._stored

    def _prepare(self) -> None:
        """A topic, and a group that begins at the topic's beginning."""
        options = self._options
        admin = kafka_admin.AdminClient({**_QUIET, "bootstrap.servers": options.bootstrap})
        for made in admin.create_topics(
            [kafka_admin.NewTopic(options.topic, options.partitions, 1)]
        ).values():
            made.result()
        wanted = {"share.auto.offset.reset": "earliest"}
        wanted |= {} if options.order == "none" else {"share.order": options.order}
        configs = [
            kafka_admin.ConfigEntry(
                name, value, incremental_operation=kafka_admin.AlterConfigOpType.SET
            )
            for name, value in wanted.items()
        ]
        group = kafka_admin.ConfigResource(
            kafka_admin.ConfigResource.Type.GROUP, options.topic, incremental_configs=configs
        )
        for set_ in admin.incremental_alter_configs([group]).values():
            set_.result()

    # --- what runs at once --------------------------------------------------------------------

    def _produce(self) -> None:
        options, chance = self._options, Random(1)
        producer = confluent_kafka.Producer(
            {**_QUIET, "bootstrap.servers": options.bootstrap, "acks": "all"}
        )
        value = chance.randbytes(options.size)
        next_key = cycle(_keys(options.keys, chance))
        while self._producing and self._failure is None:
            if self._sent - self.acknowledged > options.on_their_way:
                producer.poll(0.001)
                continue
            for key, _ in zip(next_key, range(_TURN), strict=False):
                try:
                    producer.produce(options.topic, value, key)
                except BufferError:
                    producer.poll(0.005)
                    continue
                self._sent += 1
            producer.poll(0)
        if left := producer.flush(_WHOLE_WITHIN_S):
            raise TimeoutError(f"{left} messages were never stored")
        self._stored = self._sent

    def _consume(self, number: int) -> None:
        def told(
            offsets: dict[confluent_kafka.TopicPartition, set[int]], error: BaseException | None
        ) -> None:
            if error is not None:
                raise error
            self._acknowledged[number] += sum(map(len, offsets.values()))

        consumer = confluent_kafka.ShareConsumer(self._reading(self._options.topic))
        consumer.set_acknowledgement_commit_callback(told)
        consumer.subscribe([self._options.topic])
        while self._consuming and self._failure is None:
            self._received[number] += len(consumer.poll(_POLL_S))
        consumer.close()

    def _read_in_group(self) -> None:
        settings = self._reading(f"{self._options.topic}-readers")
        consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([self._options.topic])
        while self._consuming and self._failure is None:
            self._read += len(consumer.consume(_READ_AT_ONCE, _POLL_S / 10))
        consumer.close()

    def _reading(self, group: str) -> dict[str, str | int]:
        return {**_QUIET, "bootstrap.servers": self._options.bootstrap, "group.id": group}

    # --- waiting ------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: int) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._failure = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _await(self, true: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _WHOLE_WITHIN_S
        while not true():
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{complaint} after a minute: {self._stored} stored, {sum(self._received)} "
                    f"received, {self.acknowledged} acknowledged, {self._read} read in a group"
                )
            time.sleep(0.002)

    def _sleep(self, ms: int) -> None:
        until = time.monotonic() + ms / 1_000
        while time.monotonic() < until:
            self._check()
            time.sleep(0.02)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _keys(many: int, chance: Random) -> list[bytes | None]:
    """Keys in no order, so many different ones; or none."""
    if not many:
        return [None]
    return [b"key-%06d" % chance.randrange(many) for _ in range(_KEYS_DRAWN)]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(Load(Options.of(sys.argv[1:])).run()))
