"""The admin against a real broker."""

import pytest

from waystation import Admin, Producer, TopicPartition
from waystation.client.admin import EARLIEST, LATEST
from waystation.client.descriptions import ConfigSource
from waystation.client.errors import BrokerError, NoSuchPartitionError
from waystation.model.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
)


async def test_a_topic_is_created_described_listed_and_deleted(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        made = await admin.create_topic(topic, 3, configs={"retention.ms": "1234567"})
        described = await admin.describe_topic(topic)

        assert made.partitions == len(described.partitions) == 3
        assert made.id == described.id
        assert all(one.leader >= 0 and one.in_sync for one in described.partitions)
        assert topic in [one.name for one in await admin.list_topics()]

        await admin.delete_topic(topic)

        assert topic not in [one.name for one in await admin.list_topics()]
        with pytest.raises(UnknownTopicError, match=topic):
            await admin.describe_topic(topic)
        with pytest.raises(UnknownTopicError, match=topic):
            await admin.delete_topic(topic)


async def test_what_cannot_be_created_is_refused_with_the_reason(
    bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1)

        with pytest.raises(TopicExistsError, match=topic):
            await admin.create_topic(topic, 1)
        with pytest.raises(InvalidTopicError):
            await admin.create_topic("no good", 1)
        with pytest.raises(InvalidPartitionsError):
            await admin.create_topic(f"{topic}-x", 0)
        with pytest.raises(InvalidReplicationFactorError):
            await admin.create_topic(f"{topic}-x", 1, replication_factor=9)
        with pytest.raises(InvalidConfigError):
            await admin.create_topic(f"{topic}-x", 1, configs={"no.such.option": "1"})


async def test_validating_creates_nothing(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2, validate_only=True)

        assert topic not in [one.name for one in await admin.list_topics()]


async def test_partitions_only_grow(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2)
        await admin.create_partitions(topic, 5)

        assert len((await admin.describe_topic(topic)).partitions) == 5
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions(topic, 4)


async def test_options_are_set_and_returned_to_their_default(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1, configs={"segment.bytes": "1048576"})
        await admin.alter_configs(topic, set={"retention.ms": "60000"}, unset=["segment.bytes"])
        configs = await admin.describe_configs(topic)

        assert configs["retention.ms"].value == "60000"
        assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert configs["segment.bytes"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG
        with pytest.raises(InvalidConfigError, match="retention"):
            await admin.alter_configs(topic, set={"retention.ms": "soon"})


async def test_a_brokers_options_are_described(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        configs = await admin.describe_configs(broker=cluster.controller)

    assert configs["log.dirs"].read_only
    with pytest.raises(TypeError):
        await admin.describe_configs()


async def test_records_are_deleted_up_to_an_offset_or_altogether(
    bootstrap: str, topic: str
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, 2)
        for number in range(20):
            await producer.send(topic, b"v", partition=number % 2)
        starts = await admin.delete_records({first: 4, second: None})
        kept = await admin.list_offsets({first: EARLIEST, second: EARLIEST})
        ends = await admin.list_offsets({first: LATEST, second: LATEST})

        assert starts == {first: 4, second: 10}
        assert {where: told.offset for where, told in kept.items()} == starts
        assert {where: told.offset for where, told in ends.items()} == {first: 10, second: 10}
        with pytest.raises(BrokerError) as caught:
            await admin.delete_records({first: 11})
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(NoSuchPartitionError):
            await admin.delete_records({(topic, 2): 0})


async def test_producers_and_disks_are_described(bootstrap: str, topic: str) -> None:
    where = TopicPartition(topic, 0)
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, 1)
        for _ in range(3):
            await producer.send(topic, b"v")
        (known,) = await admin.describe_producers(where)
        (directory,) = await admin.describe_log_dirs()

    assert known.last_sequence == 2
    assert directory.error is ErrorCode.NONE
    assert directory.partitions[where] > 0
    assert 0 < directory.usable_bytes <= directory.total_bytes


async def test_the_cluster_is_described(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()

    assert cluster.cluster_id
    assert cluster.controller in [broker.node for broker in cluster.brokers]
    assert str(cluster.brokers[0].address) == bootstrap
