"""Real members move their group to the new protocol and back, one by one, and miss nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from waystation.testing.process import BrokerProcess

TOPIC, GROUP, PARTITIONS = "moves", "movers", 6
DEADLINE_S = 30.0


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    options = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    broker = BrokerProcess(tmp_path / "data", options=options).start()
    yield broker.bootstrap
    broker.stop()


class Movers:
    """The members of the group, polled in turns, while something is always being written."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._members: dict[str, Consumer] = {}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(10)
        self.written = 0
        self.read: set[int] = set()

    def join(self, name: str, **options: str) -> None:
        spelled = {key.replace("_", "."): value for key, value in options.items()}
        self._members[name] = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                **spelled,
            }
        )
        self._members[name].subscribe([TOPIC])

    def join_classic(self, name: str, assignor: str) -> None:
        self.join(
            name,
            partition_assignment_strategy=assignor,
            heartbeat_interval_ms="100",
            session_timeout_ms="6000",
        )

    def leave(self, name: str) -> None:
        self._members.pop(name).close()

    def settle(self, *shares: int) -> None:
        """Go on until the partitions are shared like that, and all that was written is read."""
        self._until(lambda: self.shares() == sorted(shares))
        self._until(lambda: len(self.read) >= self.written, writing=False)

    def shares(self) -> list[int]:
        assigned = [member.assignment() for member in self._members.values()]
        everything = {part.partition for parts in assigned for part in parts}
        counts = sorted(map(len, assigned))
        return counts if len(everything) == sum(counts) else []

    @property
    def kind(self) -> ConsumerGroupType:
        return self.admin.describe_consumer_groups([GROUP])[GROUP].result(10).type

    def _until(self, is_so: Callable[[], bool], *, writing: bool = True) -> None:
        until = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < until, f"{self.shares()}: {len(self.read)}/{self.written}"
            if writing:
                self._producer.produce(TOPIC, str(self.written), key=str(self.written))
                self._producer.poll(0)
                self.written += 1
            for member in self._members.values():
                message = member.poll(0.01)
                if message is not None:
                    assert message.error() is None, message.error()
                    self.read.add(int(message.value() or b""))
        self._producer.flush()


def test_a_group_moves_to_the_new_protocol_and_back(bootstrap: str) -> None:
    movers = Movers(bootstrap)
    movers.join_classic("one", "cooperative-sticky")
    movers.join_classic("two", "cooperative-sticky")
    movers.settle(3, 3)
    assert movers.kind == ConsumerGroupType.CLASSIC

    movers.join("three", group_protocol="consumer")
    movers.settle(2, 2, 2)
    assert movers.kind == ConsumerGroupType.CONSUMER

    movers.leave("one")
    movers.settle(3, 3)
    movers.leave("two")
    movers.settle(6)
    assert movers.kind == ConsumerGroupType.CONSUMER

    movers.join_classic("four", "range")
    movers.settle(3, 3)
    movers.leave("three")
    movers.settle(6)
    assert movers.kind == ConsumerGroupType.CLASSIC
    assert movers.read == set(range(movers.written))
    movers.leave("four")
