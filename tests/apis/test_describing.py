"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs and DescribeProducers."""

from typing import Any
from uuid import uuid4

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages import describe_producers
from waystation.messages.describe_cluster import NOT_ASKED, DescribeClusterRequest
from waystation.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from waystation.messages.describe_producers import DescribeProducersRequest
from waystation.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

# --- the cluster --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_cluster_is_described_in_every_version(
    node: ThreadedNode, client: Asking, version: int
) -> None:
    told = client.ask(DescribeClusterRequest(), version)

    assert (told.error_code, told.controller_id, told.endpoint_type) == (0, 1, 1)
    assert told.cluster_id
    assert told.cluster_authorized_operations == NOT_ASKED
    (broker,) = told.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, *node.address)
    assert (broker.rack, broker.is_fenced) == (None, False)
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.ask(asked, version).cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_have_endpoints(client: Asking, kind: int, code: ErrorCode) -> None:
    told = client.ask(DescribeClusterRequest(endpoint_type=kind), 2)

    assert (told.error_code, told.brokers) == (code, [])
    assert told.error_message


def test_the_rack_and_the_advertised_address_are_what_clients_see(make_node: MakeNode) -> None:
    running = make_node(broker_rack="r1", advertise="broker.example:1234", node_id="5")
    with Asking(*running.address) as client:
        (broker,) = client.ask(DescribeClusterRequest(), 2).brokers

        assert (broker.broker_id, broker.rack) == (5, "r1")
        assert (broker.host, broker.port) == ("broker.example", 1234)


# --- topics in pages ----------------------------------------------------------------------------


def page(client: Asking, *names: str, **fields: Any) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], **fields
    )
    return client.ask(request, 0)  # type: ignore[no-any-return]


def test_a_topics_partitions_are_described(client: Asking, topic: str) -> None:
    made = client.create(topic, partitions=2)
    answer = page(client, topic)

    (told,) = answer.topics
    assert (told.error_code, told.name, told.topic_id) == (0, topic, made.topic_id)
    assert [one.partition_index for one in told.partitions] == [0, 1]
    for one in told.partitions:
        assert (one.leader_id, one.leader_epoch, one.isr_nodes) == (1, 0, [1])
        assert (one.eligible_leader_replicas, one.offline_replicas) == ([], [])
    assert answer.next_cursor is None


def test_pages_cover_everything_once(client: Asking, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "cab"]
    for number, name in enumerate(names, 2):
        client.create(name, partitions=number)
    seen: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(20):
        answer = page(client, *names, response_partition_limit=2, cursor=cursor)
        found = [
            (one.name, partition.partition_index)
            for one in answer.topics
            for partition in one.partitions
        ]
        assert len(found) <= 2
        seen += found
        cursor = answer.next_cursor
        if cursor is None:
            break

    sizes = dict(zip(names, (2, 3, 4), strict=True))
    assert seen == [(name, n) for name in sorted(names) for n in range(sizes[name])]


def test_no_names_mean_all_topics(client: Asking, topic: str) -> None:
    client.create(topic)

    assert topic in [one.name for one in page(client).topics]


def test_what_cannot_be_described_says_why(client: Asking, topic: str) -> None:
    client.create(topic)
    answer = page(client, "absent", "a b", topic)
    told = {one.name: one.error_code for one in answer.topics}

    assert told == {
        "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        topic: 0,
    }
    backwards = page(client, topic, cursor=Cursor(topic_name=topic, partition_index=-1))
    assert backwards.topics[0].error_code == ErrorCode.INVALID_REQUEST


# --- data directories ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_a_data_directory_is_described_in_every_version(
    node: ThreadedNode, client: Asking, topic: str, version: int
) -> None:
    client.create(topic, partitions=2)
    batch = batch_of(b"x" * 100)
    client.produce(topic, batch, partition=1)
    asked = [DescribableLogDirTopic(topic=topic, partitions=[1])]
    (told,) = client.ask(DescribeLogDirsRequest(topics=asked), version).results

    assert (told.error_code, told.log_dir) == (0, node.settings.addresses.log_dirs[0])
    (found,) = told.topics
    (partition,) = found.partitions
    assert (found.name, partition.partition_index) == (topic, 1)
    assert (partition.partition_size, partition.offset_lag) == (len(batch), 0)
    assert not partition.is_future_key
    if version >= 4:
        assert told.total_bytes >= told.usable_bytes > 0


def test_no_list_means_every_partition_and_an_empty_one_none(client: Asking, topic: str) -> None:
    client.create(topic)
    (everything,) = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    (nothing,) = client.ask(DescribeLogDirsRequest(topics=[]), 4).results

    assert topic in [one.name for one in everything.topics]
    assert nothing.topics == []


# --- producers ----------------------------------------------------------------------------------


def producers_of(client: Asking, topic: str, partition: int = 0) -> Any:
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=[partition])
    return client.ask(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions[0]


def test_the_producers_of_a_partition_are_described(client: Asking, topic: str) -> None:
    client.create(topic)
    assert producers_of(client, topic).active_producers == []
    producer = client.new_producer()
    client.produce(topic, batch_of(b"a", b"b", producer=(producer, 3, 0), timestamp=77))

    (told,) = producers_of(client, topic).active_producers
    assert (told.producer_id, told.producer_epoch, told.last_sequence) == (producer, 3, 1)
    assert (told.last_timestamp, told.current_txn_start_offset) == (77, -1)


def test_a_partition_that_is_not_there_has_no_producers(client: Asking, topic: str) -> None:
    client.create(topic)

    for name, partition in ((f"absent-{uuid4()}", 0), (topic, 1)):
        told = producers_of(client, name, partition)
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told.error_message
