"""Messages for later by clients that know nothing of them but headers: confluent-kafka and kcat."""

import subprocess
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

WITHIN_S = 20.0


def make(bootstrap: str, topic: str) -> None:
    """A topic that takes messages for later, and its companion."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, 2, config={"schedule.enable": "true"})
    admin.create_topics([wanted])[topic].result(10)
    deadline = time.monotonic() + WITHIN_S
    while f"{topic}.delay" not in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, "the companion does not come"


def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    reader.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < deadline:
        found += [one for one in reader.consume(count, 0.5) if one.error() is None]
    reader.close()
    return found


def test_confluent_sends_for_later_and_reads_in_time(bootstrap: str, topic: str) -> None:
    make(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    due = int(time.time() * 1_000) + 800
    place = f"{topic}.delay"
    for number, ahead in enumerate((400, 0, 200)):
        headers = {"deliver-at": str(due + ahead), "kind": "late"}
        producer.produce(place, f"{number}", b"k", headers=headers, partition=1)
    assert producer.flush(WITHIN_S) == 0

    found = read(bootstrap, topic, 3)

    assert [one.value() for one in found] == [b"1", b"2", b"0"]
    assert all(one.key() == b"k" and one.partition() == 1 for one in found)
    assert all(("kind", b"late") in one.headers() for one in found)
    for one, ahead in zip(found, (0, 200, 400), strict=True):
        assert one.timestamp()[1] >= due + ahead


def test_confluent_is_told_that_a_time_cannot_be_kept(bootstrap: str, topic: str) -> None:
    make(bootstrap, topic)
    told: list[tuple[KafkaError | None, bytes]] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for headers in ({}, {"deliver-at": "tomorrow"}, {"deliver-at": "1800000000"}):
        producer.produce(
            f"{topic}.delay",
            b"v",
            headers=headers,
            on_delivery=lambda error, message: told.append((error, message.value())),
        )
        producer.flush(WITHIN_S)

    assert [error and error.code() for error, _ in told] == [KafkaError.INVALID_RECORD] * 3


def test_kcat_sends_for_later(bootstrap: str, topic: str) -> None:
    make(bootstrap, topic)
    subprocess.run(
        ["kcat", "-P", "-b", bootstrap, "-t", f"{topic}.delay", "-H", "deliver-after=300ms"],
        input="one\ntwo\n",
        text=True,
        check=True,
        timeout=WITHIN_S,
    )

    assert sorted(one.value() for one in read(bootstrap, topic, 2)) == [b"one", b"two"]
