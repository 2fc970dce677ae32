"""Groups through the admin calls of real clients, and what groups refuse."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription
from kafka.admin import KafkaAdminClient

from tests.support.group_readers import ConfluentReader, Ledger, Topic, until
from waystation.testing.process import BrokerProcess

PARTITIONS = 3
CLASSIC = {"heartbeat.interval.ms": "100"}
SERVER_SIDE = {"group.protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize("options", [CLASSIC, SERVER_SIDE], ids=["classic", "server"])


@pytest.fixture
def reader(bootstrap: str, topic: str, options: dict[str, str]) -> Iterator[ConfluentReader]:
    """A member that has read everything there is."""
    written, ledger = Topic(bootstrap, topic, PARTITIONS), Ledger()
    written.write(30)
    member = ConfluentReader(ledger, "member", bootstrap, f"group-{topic}", topic, options)
    member.start()
    until(lambda: len(ledger.rows) == 30, lambda: (ledger.rows, member.problems))
    yield member
    member.close()


@PROTOCOLS
def test_confluent_administers_groups(bootstrap: str, topic: str, reader: ConfluentReader) -> None:
    admin, group = AdminClient({"bootstrap.servers": bootstrap}), reader.group

    listed = {one.group_id: one.state for one in admin.list_consumer_groups().result(10).valid}
    (member,) = described(admin, group).members

    assert listed[group] == ConsumerGroupState.STABLE
    assert member.host == "/127.0.0.1"
    assert {one.partition for one in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(10)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP

    reader.close()

    assert described(admin, group).state == ConsumerGroupState.EMPTY
    assert committed(admin, group) == dict.fromkeys(range(PARTITIONS), 10)

    moved = [TopicPartition(topic, 1, 4)]
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moved)])
    asked[group].result(10)

    assert committed(admin, group) == {0: 10, 1: 4, 2: 10}

    admin.delete_consumer_groups([group])[group].result(10)

    assert described(admin, group).state == ConsumerGroupState.DEAD
    assert committed(admin, group) == {}


@PROTOCOLS
def test_kafka_python_administers_groups(bootstrap: str, reader: ConfluentReader) -> None:
    admin, group = KafkaAdminClient(bootstrap_servers=bootstrap), reader.group
    try:
        assert group in {one["group_id"] for one in admin.list_groups()}
        assert admin.describe_groups([group])[group]["group_state"] == "Stable"

        reader.close()

        offsets = admin.list_group_offsets(group)[group]
        assert {one.partition: at.offset for one, at in offsets.items()} == {0: 10, 1: 10, 2: 10}
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}
    finally:
        admin.close()


@PROTOCOLS
async def test_aiokafka_looks_at_groups(bootstrap: str, reader: ConfluentReader) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        assert reader.group in {name for name, _ in await admin.list_consumer_groups()}

        reader.close()

        offsets = await admin.list_consumer_group_offsets(reader.group)
        assert {one.partition: at.offset for one, at in offsets.items()} == {0: 10, 1: 10, 2: 10}
    finally:
        await admin.close()


@PROTOCOLS
def test_a_note_that_is_too_long_is_refused_and_nothing_else(
    bootstrap: str, topic: str, options: dict[str, str]
) -> None:
    written = Topic(bootstrap, topic, 1)
    written.write(10)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(10, 20)) == 10

    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[noted(topic, 7, "x" * 5_000)], asynchronous=False)
    (kept,) = consumer.commit(offsets=[noted(topic, 5, "x" * 4_000)], asynchronous=False)

    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert kept.error is None
    (found,) = consumer.committed([TopicPartition(topic, 0)], 10)
    assert (found.offset, found.metadata) == (5, "x" * 4_000)
    consumer.close()


@PROTOCOLS
def test_a_full_group_refuses_one_more_and_goes_on(tmp_path: Path, options: dict[str, str]) -> None:
    limits = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "100",
        "group.max.size": "2",
        "group.consumer.max.size": "2",
    }
    with BrokerProcess(tmp_path / "data", options=limits) as broker:
        written, ledger = Topic(broker.bootstrap, "full", PARTITIONS), Ledger()
        first, second, late, later = [
            ConfluentReader(ledger, name, broker.bootstrap, "group", "full", options)
            for name in ("first", "second", "late", "later")
        ]
        first.start()
        second.start()
        until(lambda: ledger.is_shared(1, 2), lambda: ledger.owned)
        late.start()
        until(lambda: bool(late.problems), lambda: ledger.owned)
        written.write(30)
        until(lambda: len(ledger.rows) == 30, lambda: ledger.owned)

        assert "Consumer group has reached maximum size" in late.problems[0]
        assert not ledger.owned["late"]

        late.problems.clear()
        late.close()
        first.close()
        later.start()
        until(lambda: ledger.is_shared(1, 2), lambda: (ledger.owned, later.problems))

        assert ledger.owned["later"]

        second.close()
        later.close()


def described(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    return admin.describe_consumer_groups([group])[group].result(10)


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {one.partition: one.offset for one in asked[group].result(10).topic_partitions}


def noted(topic: str, offset: int, note: str) -> TopicPartition:
    return TopicPartition(topic, 0, offset, note)
