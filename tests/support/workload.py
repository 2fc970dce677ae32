"""Producers that remember what was acknowledged, and a reader that checks it.

Each writer sends ``name:number`` with rising numbers, keyed so that a number's partition is
known from its key.  Afterwards ``check_history`` holds what was read against what was
acknowledged:

- every acknowledged value is there;
- from idempotent writers every value is there at most once;
- each writer's numbers rise within each partition.
"""

import threading
from collections import Counter, defaultdict

from confluent_kafka import Consumer, Producer, TopicPartition

_POLL_S = 0.01
_READ_WITHIN_S = 60.0


class Writer(threading.Thread):
    """A librdkafka producer with ``acks=all`` that goes on until it is told to stop."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, *, idempotent: bool, partitions: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: list[tuple[int, int, str]] = []
        self.failed: list[str] = []
        self.idempotent = idempotent
        self._topic, self._partitions = topic, partitions
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    value=f"{self.name}:{number}",
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:
                self._producer.poll(_POLL_S)
            if number % 50 == 0:
                self._producer.poll(_POLL_S)
        left = self._producer.flush(_READ_WITHIN_S)
        if left:
            self.failed.append(f"{left} messages neither delivered nor failed")

    def finish(self) -> None:
        """Stop writing and wait until the fate of everything sent is known."""
        self._stopping.set()
        self.join(_READ_WITHIN_S * 2)
        assert not self.is_alive(), f"{self.name} hangs"

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            value = message.value().decode()  # type: ignore[attr-defined]
            place = (message.partition(), message.offset())  # type: ignore[attr-defined]
            self.acknowledged.append((*place, value))


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, str]]]:
    """Everything in the topic: (offset, value) in order, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            # What is asked about the next partition waits behind the last fetch of this one.
            "fetch.wait.max.ms": 10,
        }
    )
    found: dict[int, list[tuple[int, str]]] = {}
    for partition in range(partitions):
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        consumer.assign([TopicPartition(topic, partition, start)])
        rows: list[tuple[int, str]] = []
        while not rows or rows[-1][0] < end - 1:
            if start == end:
                break
            left = min(end - start - len(rows), 10_000)
            for message in consumer.consume(left, timeout=_READ_WITHIN_S):
                assert message.error() is None, message.error()
                rows.append((message.offset(), message.value().decode()))
        found[partition] = rows
    consumer.close()
    return found


def check_history(writers: list[Writer], found: dict[int, list[tuple[int, str]]]) -> int:
    """Hold what was read against what was acknowledged; how many were acknowledged."""
    counted = Counter(value for rows in found.values() for _, value in rows)
    at = {(partition, offset): value for partition, rows in found.items() for offset, value in rows}
    total = 0
    for writer in writers:
        total += len(writer.acknowledged)
        for partition, offset, value in writer.acknowledged:
            assert counted[value] >= 1, f"{value} was acknowledged at {partition}@{offset} and lost"
            if writer.idempotent:
                assert counted[value] == 1, f"{value} is there {counted[value]} times"
                assert at[partition, offset] == value, f"{partition}@{offset} is not {value}"
    idempotent = {writer.name for writer in writers if writer.idempotent}
    for rows in found.values():
        check_order(rows, idempotent)
    return total


def check_order(rows: list[tuple[int, str]], names: set[str]) -> None:
    """Offsets have no gaps, and each named writer's numbers rise."""
    last: dict[str, int] = defaultdict(lambda: -1)
    for position, (offset, value) in enumerate(rows):
        assert offset == rows[0][0] + position, f"a gap before offset {offset}"
        name, number = value.split(":")
        if name in names:
            assert int(number) > last[name], f"{value} follows {name}:{last[name]}"
            last[name] = int(number)
