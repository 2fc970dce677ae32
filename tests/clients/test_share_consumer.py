"""Queues for librdkafka's own share consumer, by way of confluent-kafka."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.soak import count
from waystation.testing.process import BrokerProcess

_WITHIN_S = 30.0


@pytest.fixture
def queue(bootstrap: str, topic: str) -> str:
    """A topic with two partitions whose group, of the same name, reads it from its start."""
    prepare(bootstrap, topic)
    return topic


def prepare(bootstrap: str, name: str, partitions: int = 2, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    entries = [
        ConfigEntry(option.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for option, value in {"share_auto_offset_reset": "earliest", **options}.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def produce(bootstrap: str, topic: str, start: int, end: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 2, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(start, end):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(_WITHIN_S) == 0


def consumer(
    bootstrap: str, group: str, *, explicit: bool = False, **more: object
) -> ShareConsumer:
    made = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit" if explicit else "implicit",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    made.subscribe([group])
    return made


def polled(of: ShareConsumer, within_s: float = 0.5) -> list[Message]:
    """What one poll gives; errors are none of it."""
    messages = of.poll(within_s)
    for message in messages:
        assert message.error() is None, message.error()
    return list(messages)


def until(done: Callable[[], bool], step: Callable[[], None]) -> None:
    ends_at = time.monotonic() + _WITHIN_S
    while not done():
        assert time.monotonic() < ends_at, "it takes too long"
        step()


def number_of(message: Message) -> int:
    return int(message.value() or b"-1")


def test_several_consumers_share_the_messages_and_each_comes_once(
    bootstrap: str, queue: str
) -> None:
    total = count(2_000, 200_000)
    consumers = [consumer(bootstrap, queue) for _ in range(3)]
    seen: Counter[int] = Counter()

    def step() -> None:
        for one in consumers:
            messages = polled(one, 0.1)
            seen.update(map(number_of, messages))
            assert all(message.delivery_count() == 1 for message in messages)

    produce(bootstrap, queue, 0, total)
    until(lambda: len(seen) == total, step)
    for one in consumers:
        one.commit_sync(10)  # what the last poll gave
        one.close()

    assert set(seen.values()) == {1}
    late = consumer(bootstrap, queue)
    assert polled(late, 1.0) == []
    late.close()


def test_messages_are_accepted_released_and_rejected_one_by_one(bootstrap: str, queue: str) -> None:
    produce(bootstrap, queue, 0, 30)
    one = consumer(bootstrap, queue, explicit=True)
    deliveries: dict[int, list[int]] = {}
    accepted: set[int] = set()

    def step() -> None:
        for message in polled(one):
            number, delivery = number_of(message), message.delivery_count()
            deliveries.setdefault(number, []).append(delivery)
            if number % 3 == 0:
                one.acknowledge(message, AcknowledgeType.REJECT)
            elif number % 3 == 1 and delivery < 3:
                one.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                one.acknowledge(message, AcknowledgeType.ACCEPT)
                accepted.add(number)
        for error in one.commit_sync(10).values():
            assert error is None

    until(lambda: len(accepted) == 20, step)
    one.close()

    for number, counts in deliveries.items():
        assert counts == ([1, 2, 3] if number % 3 == 1 else [1]), number


def test_a_message_that_always_fails_is_given_up(bootstrap: str, topic: str) -> None:
    prepare(bootstrap, topic, 1, max_deliveries="2")
    produce(bootstrap, topic, 0, 2)
    one = consumer(bootstrap, topic, explicit=True)
    seen: list[tuple[int, int | None]] = []

    def step() -> None:
        for message in polled(one):
            seen.append((number_of(message), message.delivery_count()))
            failed = number_of(message) == 0
            one.acknowledge(message, AcknowledgeType.RELEASE if failed else AcknowledgeType.ACCEPT)
        one.commit_sync(10)

    until(lambda: len(seen) >= 3, step)
    step()
    one.close()

    assert sorted(seen) == [(0, 1), (0, 2), (1, 1)]


def test_what_a_killed_consumer_held_goes_to_another(bootstrap: str, topic: str) -> None:
    queue = topic
    prepare(bootstrap, queue, 1)  # which both of them read
    produce(bootstrap, queue, 0, 100)
    victim = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, bootstrap, queue], stdout=subprocess.PIPE, text=True
    )
    assert victim.stdout is not None
    held = int(victim.stdout.readline())
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()

    other = consumer(bootstrap, queue)
    seen: dict[int, int | None] = {}

    def step() -> None:
        seen.update({number_of(one): one.delivery_count() for one in polled(other)})

    until(lambda: len(seen) == 100, step)
    other.close()
    victim.stdout.close()

    assert held > 0
    assert sum(1 for delivery in seen.values() if delivery == 2) == held


_HOLDER = """
import sys, time
from confluent_kafka import ShareConsumer
bootstrap, group = sys.argv[1:]
holder = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group,
                        "share.acknowledgement.mode": "explicit", "max.poll.records": 40})
holder.subscribe([group])
messages = []
while not messages:
    messages = holder.poll(1.0)
print(len(messages), flush=True)
time.sleep(60)
"""


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = {
        "share.coordinator.state.topic.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
    }
    broker = BrokerProcess(tmp_path / "data", options=options, volatile=True).start()
    yield broker
    broker.kill()


def test_nothing_that_was_acknowledged_comes_again_after_a_crash(mortal: BrokerProcess) -> None:
    """kill -9, and whatever was not synced is lost: what commit_sync has confirmed is kept."""
    prepare(mortal.bootstrap, "crash")
    one = consumer(mortal.bootstrap, "crash", explicit=True, max_poll_records=20)
    confirmed: set[int] = set()
    seen: set[int] = set()
    total = 0
    for _ in range(count(2, 20)):
        produce(mortal.bootstrap, "crash", total, total + 200)
        total += 200
        goal = total - 100

        def step() -> None:
            messages = polled(one)
            for message in messages:
                assert number_of(message) not in confirmed, "it was acknowledged"
                one.acknowledge(message)
            outcome = one.commit_sync(10)
            numbers = set(map(number_of, messages))
            seen.update(numbers)
            if all(error is None for error in outcome.values()):
                confirmed.update(numbers)

        until(lambda goal=goal: len(confirmed) >= goal, step)  # type: ignore[misc]
        mortal.kill()
        mortal.start()
    until(lambda: len(confirmed) == total, step)
    one.close()

    assert seen == set(range(total))
