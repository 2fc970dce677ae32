"""kill -9 under the readers of a view: it is there again, and they lose and repeat nothing."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.soak import count
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

ROUNDS = count(2, 30)
PER_ROUND = 4_000


def test_a_view_survives_kill_9_and_shows_what_it_showed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", volatile=True).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(10)
    config = {"view.on": "orders", "view.where": "key = 'yes'"}
    admin.create_topics([NewTopic("some", -1, -1, config=config)])["some"].result(10)
    # Made, and at once the power fails.
    broker.kill()
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("some", 0, 0)])
    found: list[bytes | None] = []

    for turn in range(ROUNDS):
        for number in range(turn * PER_ROUND, (turn + 1) * PER_ROUND):
            key = b"yes" if number % 50 == 0 else b"no"
            producer.produce("orders", b"%d" % number, key, partition=0)
        producer.poll(0.05)
        found += _some(consumer, 10)
        broker.kill()
        broker.start()
        assert producer.flush(30) == 0
    wanted = [b"%d" % number for number in range(0, ROUNDS * PER_ROUND, 50)]
    deadline = time.monotonic() + 60
    while len(found) < len(wanted) and time.monotonic() < deadline:
        found += _some(consumer, len(wanted) - len(found))
    consumer.close()

    assert found == wanted
    assert broker.stop() == 0


def _some(consumer: Consumer, wanted: int) -> list[bytes | None]:
    """Up to so many; while the broker is away there are none."""
    return [one.value() for one in consumer.consume(wanted, 1) if one.error() is None]
