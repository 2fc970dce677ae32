"""Every client joins groups, with each of its assignors, and the group keeps its place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRound
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AiokafkaSticky,
)
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.support.group_readers import (
    AiokafkaReader,
    ConfluentReader,
    KafkaPythonReader,
    KcatReader,
    Ledger,
    OwnReader,
    Reader,
    Topic,
    until,
)

PARTITIONS = 6


class Kind(NamedTuple):
    """A client and how its members are set up; ``assignor`` is what the group then uses."""

    reader: type[Reader]
    assignor: str
    options: Mapping[str, Any]


def librdkafka(reader: type[Reader], assignor: str) -> Kind:
    options = {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": "100"}
    return Kind(reader, assignor, options)


def server_side(assignor: str) -> Kind:
    options = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    return Kind(ConfluentReader, assignor, options)


def in_python(reader: type[Reader], assignor: Any) -> Kind:
    return Kind(reader, assignor.name, {"partition_assignment_strategy": [assignor]})


KINDS = {
    "confluent-range": librdkafka(ConfluentReader, "range"),
    "confluent-roundrobin": librdkafka(ConfluentReader, "roundrobin"),
    "confluent-cooperative-sticky": librdkafka(ConfluentReader, "cooperative-sticky"),
    "confluent-server-side-uniform": server_side("uniform"),
    "confluent-server-side-range": server_side("range"),
    "kcat-range": librdkafka(KcatReader, "range"),
    "kcat-roundrobin": librdkafka(KcatReader, "roundrobin"),
    "kcat-cooperative-sticky": librdkafka(KcatReader, "cooperative-sticky"),
    "aiokafka-range": in_python(AiokafkaReader, AiokafkaRange),
    "aiokafka-roundrobin": in_python(AiokafkaReader, AiokafkaRound),
    "aiokafka-sticky": in_python(AiokafkaReader, AiokafkaSticky),
    "kafka-python-range": in_python(KafkaPythonReader, RangePartitionAssignor),
    "kafka-python-roundrobin": in_python(KafkaPythonReader, RoundRobinPartitionAssignor),
    "kafka-python-sticky": in_python(KafkaPythonReader, StickyPartitionAssignor),
    "kafka-python-cooperative-sticky": in_python(KafkaPythonReader, CooperativeStickyAssignor),
}


class Members:
    """A group of readers on one topic.

    Let the first read something before others join: librdkafka 2.0 (kcat) that loses a partition
    while it looks for the start of it may read it from there when it gets it again.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = Topic(bootstrap, topic, PARTITIONS)
        self.ledger = Ledger()
        self.group = f"group-of-{topic}"
        self.everyone: list[Reader] = []
        self._running: list[Reader] = []

    def join(self, name: str, reader: type[Reader], options: Mapping[str, Any]) -> Reader:
        made = reader(self.ledger, name, self.bootstrap, self.group, self.topic.name, options)
        self.everyone.append(made)
        self._running.append(made)
        made.start()
        return made

    def settle(self, *shares: int) -> None:
        """Wait until the partitions are shared like that."""
        until(lambda: self.ledger.is_shared(*shares), self.state)

    def read_all(self, count: int) -> None:
        """Write so much more and wait until it was read."""
        self.topic.write(count)
        until(lambda: len(self.ledger.rows) >= self.topic.written, self.state)

    def leave(self, *readers: Reader) -> None:
        for one in readers:
            self._running.remove(one)
            one.close()

    def leave_all(self) -> None:
        self.leave(*self._running[:])

    def state(self) -> str:
        owned = {name: sorted(given) for name, given in self.ledger.owned.items()}
        problems = {one.name: one.problems for one in self._running if one.problems}
        return f"{len(self.ledger.rows)} of {self.topic.written} read, {owned}, {problems}"


@contextmanager
def group(bootstrap: str, topic: str) -> Iterator[Members]:
    members = Members(bootstrap, topic)
    try:
        yield members
    finally:
        members.leave_all()


@pytest.mark.parametrize("name", KINDS)
def test_members_share_partitions_and_the_group_keeps_its_place(
    bootstrap: str, topic: str, name: str
) -> None:
    kind = KINDS[name]
    with group(bootstrap, topic) as members:
        members.join("first", kind.reader, kind.options)
        members.settle(6)
        members.read_all(60)
        second = members.join("second", kind.reader, kind.options)
        members.join("third", kind.reader, kind.options)
        members.settle(2, 2, 2)
        members.read_all(60)

        assert assignor_of(members) == kind.assignor

        members.leave(second)
        members.settle(3, 3)
        members.read_all(60)
        members.leave_all()
        members.join("later", kind.reader, kind.options)
        members.settle(6)
        members.read_all(60)
    check_reading(members)


CLASSIC = {"heartbeat.interval.ms": "100", "partition.assignment.strategy": "range"}
STATIC = {
    "confluent": (ConfluentReader, CLASSIC, "group.instance.id"),
    "confluent-server-side": (ConfluentReader, {"group.protocol": "consumer"}, "group.instance.id"),
    "kcat": (KcatReader, CLASSIC, "group.instance.id"),
    "aiokafka": (AiokafkaReader, {}, "group_instance_id"),
    "kafka-python": (KafkaPythonReader, {}, "group_instance_id"),
}


@pytest.mark.parametrize("name", STATIC)
def test_a_static_member_comes_back_and_nobody_notices(
    bootstrap: str, topic: str, name: str
) -> None:
    reader, options, instance = STATIC[name]
    with group(bootstrap, topic) as members:
        members.join("stays", reader, {**options, instance: "one"})
        members.read_all(60)
        leaves = members.join("leaves", reader, {**options, instance: "two"})
        members.settle(3, 3)
        members.read_all(60)
        before = dict(members.ledger.owned)
        moved = members.ledger.revoked["stays"]
        members.leave(leaves)
        members.join("returns", reader, {**options, instance: "two"})
        members.settle(3, 3)
        members.read_all(60)

        assert members.ledger.owned["returns"] == before["leaves"]
        assert members.ledger.owned["stays"] == before["stays"]
        assert members.ledger.revoked["stays"] == moved
    check_reading(members)


def test_clients_of_all_kinds_share_one_group(bootstrap: str, topic: str) -> None:
    with group(bootstrap, topic) as members:
        members.join("confluent", ConfluentReader, CLASSIC)
        members.read_all(60)
        members.join("kcat", KcatReader, CLASSIC)
        members.join("aiokafka", AiokafkaReader, KINDS["aiokafka-range"].options)
        python = members.join(
            "kafka-python", KafkaPythonReader, KINDS["kafka-python-range"].options
        )
        members.join("own", OwnReader, {"assignors": "range"})
        members.settle(2, 1, 1, 1, 1)
        members.read_all(60)
        members.leave(python)
        members.settle(2, 2, 1, 1)
        members.read_all(60)
    check_reading(members)


def check_reading(members: Members) -> None:
    """All was read, each record by one member, in order; no partition had two owners at a time."""
    ledger = members.ledger
    assert [value for value, times in ledger.values().items() if times > 1] == []
    assert len(ledger.values()) == members.topic.written
    last: dict[int, int] = {}
    for read in ledger.rows:
        assert read.offset == last.get(read.partition, -1) + 1, f"{read} after {last}"
        last[read.partition] = read.offset
    if not any(isinstance(one, KcatReader) for one in members.everyone):
        assert ledger.conflicts == []


def assignor_of(members: Members) -> str:
    admin = AdminClient({"bootstrap.servers": members.bootstrap})
    described = admin.describe_consumer_groups([members.group])[members.group].result(10)
    assert sum(len(one.assignment.topic_partitions) for one in described.members) == PARTITIONS
    return str(described.partition_assignor)
