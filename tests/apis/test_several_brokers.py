"""Metadata, DescribeCluster, DescribeTopicPartitions and CreateTopics where there are several.

Whoever is asked tells the same, of topics that it holds and of others.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apis.asking import fetch_request, produce_request
from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import batch_of, versions
from waystation.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from waystation.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from waystation.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from waystation.messages.describe_cluster import DescribeClusterRequest
from waystation.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

EVERYWHERE = (1, 2, 3)


@pytest.fixture(scope="module")
def wounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """Racks a, b, c, of which c is dark; ``pair`` is led by another now, ``lost`` by nobody."""
    racks = {number: {"broker.rack": rack} for number, rack in zip(EVERYWHERE, "abc", strict=True)}
    with ThreadedCluster(tmp_path_factory.mktemp("wounded"), options_of=racks) as running:
        running.create("pair", [3, 1])
        running.create("lost", [3])
        running.create("far", [2])
        running.kill(3)
        running.until(lambda: running.partition("pair").leader == 1)
        running.until(lambda: running.partition("lost").leader is None)
        running.settle()
        yield running


def metadata(cluster: ThreadedCluster, at: int, *names: str, version: int = 12) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    with cluster.client(at) as client:
        return client.ask(request, version)


@pytest.mark.parametrize("at", EVERYWHERE)
def test_every_broker_knows_all_of_them_and_who_decides(cluster: ThreadedCluster, at: int) -> None:
    told = metadata(cluster, at)
    with cluster.client(at) as client:
        described = client.ask(DescribeClusterRequest(), 2)

    where = {number: tuple(cluster.node(number).address) for number in EVERYWHERE}
    assert {one.node_id: (one.host, one.port) for one in told.brokers} == where
    assert {one.broker_id: (one.host, one.port) for one in described.brokers} == where
    office = cluster.image.controller
    assert office is not None
    assert told.controller_id == described.controller_id == office.node
    assert told.cluster_id == described.cluster_id == cluster.image.cluster_id
    assert not any(one.is_fenced for one in described.brokers)


@pytest.mark.parametrize("at", EVERYWHERE)
def test_every_broker_tells_of_topics_that_others_hold(
    cluster: ThreadedCluster, topic: str, at: int
) -> None:
    cluster.create(topic, [1, 2], [2, 3], [3, 1])

    (told,) = metadata(cluster, at, topic).topics

    assert told.error_code == 0
    assert [(one.leader_id, one.replica_nodes) for one in told.partitions] == [
        (1, [1, 2]),
        (2, [2, 3]),
        (3, [3, 1]),
    ]
    assert [sorted(one.isr_nodes) for one in told.partitions] == [[1, 2], [2, 3], [1, 3]]
    with cluster.client(at) as client:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
        (described,) = client.ask(request, 0).topics
    assert [one.leader_id for one in described.partitions] == [1, 2, 3]
    assert [one.eligible_leader_replicas for one in described.partitions] == [[], [], []]


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_the_dead_lead_nothing_and_are_named(wounded: ThreadedCluster, version: int) -> None:
    told = metadata(wounded, 2, "pair", "lost", "far", version=version)
    pair, lost, far = (one.partitions[0] for one in told.topics)

    assert [one.node_id for one in told.brokers] == [1, 2]
    if version >= 1:
        assert {one.node_id: one.rack for one in told.brokers} == {1: "a", 2: "b"}
    assert (far.error_code, far.leader_id, far.isr_nodes) == (0, 2, [2])
    assert (lost.error_code, lost.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert pair.leader_id == 1
    assert 1 in pair.isr_nodes
    if version == 0:
        assert (pair.error_code, pair.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
        assert (lost.replica_nodes, lost.isr_nodes) == ([], [])
    else:
        assert (pair.error_code, pair.replica_nodes) == (0, [3, 1])
        assert lost.replica_nodes == [3]
    if version >= 5:
        assert (pair.offline_replicas, lost.offline_replicas, far.offline_replicas) == (
            [3],
            [3],
            [],
        )
    if version >= 7:
        assert pair.leader_epoch >= 1


def test_topics_page_by_page_say_the_same(wounded: ThreadedCluster) -> None:
    with wounded.client(2) as client:
        told = client.ask(DescribeTopicPartitionsRequest(topics=[]), 0)
    found = {topic.name: topic.partitions[0] for topic in told.topics}

    assert (found["pair"].error_code, found["pair"].leader_id) == (0, 1)
    assert found["lost"].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert found["lost"].offline_replicas == [3]


# --- who does not lead says so --------------------------------------------------------------


@pytest.mark.parametrize("at", [2, 3])
def test_only_the_leader_takes_records_and_gives_them(
    cluster: ThreadedCluster, topic: str, at: int
) -> None:
    cluster.create(topic, [1, 2])
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER

    with cluster.client(at) as client:
        for version in versions(ApiKey.PRODUCE):
            assert client.produce(topic, batch_of(b"x"), version=version).error_code == refused
        if at == 3:
            for version in versions(ApiKey.FETCH):
                assert client.fetch(topic, 0, version=version).error_code == refused
        for version in versions(ApiKey.LIST_OFFSETS):
            assert client.offsets(topic, -1, version=version).error_code == refused
        assert client.delete_records(topic, 0).error_code == refused
    with cluster.client(1) as client:
        assert client.produce(topic, batch_of(b"x")).error_code == 0
        client.await_end(topic, 1)


def test_who_does_not_lead_tells_new_clients_who_does(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2])
    with cluster.client(3) as client:
        topic_id = client.topic_id(topic)
        reply = client.ask(produce_request(topic, batch_of(b"x"), topic_id=topic_id), 13)
        fetched = client.ask(fetch_request(topic, topic_id=topic_id), 17)

    told = reply.responses[0].partition_responses[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (1, 0)
    host, port = cluster.node(1).address
    assert (1, host, port) in [(one.node_id, one.host, one.port) for one in reply.node_endpoints]
    told = fetched.responses[0].partitions[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (1, 0)
    assert (1, host, port) in [(one.node_id, one.host, one.port) for one in fetched.node_endpoints]


@pytest.mark.parametrize("at", EVERYWHERE)
def test_records_of_nobody_cannot_be_deleted(wounded: ThreadedCluster, at: int) -> None:
    if at not in wounded.local.nodes:
        return
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="lost", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)]
            )
        ],
        timeout_ms=9_000,
    )
    with wounded.client(at) as client:
        told = client.ask(request, 2).topics[0].partitions[0]

    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- making topics --------------------------------------------------------------------------


def create(cluster: ThreadedCluster, at: int, topic: CreatableTopic) -> Any:
    with cluster.client(at) as client:
        (outcome,) = client.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    return outcome


@pytest.mark.parametrize("at", EVERYWHERE)
def test_any_broker_makes_topics(cluster: ThreadedCluster, topic: str, at: int) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=6, replication_factor=3)
    made = create(cluster, at, wanted)
    cluster.settle()

    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 6, 3)
    states = [cluster.partition(topic, number) for number in range(6)]
    assert all({*state.replicas} == {1, 2, 3} for state in states)
    assert sorted(state.replicas[0] for state in states) == [1, 1, 2, 2, 3, 3]


def test_more_replicas_than_brokers_cannot_be(cluster: ThreadedCluster, topic: str) -> None:
    outcome = create(cluster, 2, CreatableTopic(name=topic, num_partitions=1, replication_factor=4))

    assert outcome.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replication factor 4" in outcome.error_message
    assert "3 registered" in outcome.error_message
    assert "Remedy" in outcome.error_message
    assert topic not in cluster.image.topics


def test_more_in_sync_than_there_are_replicas_is_accepted_as_in_kafka(
    cluster: ThreadedCluster, topic: str
) -> None:
    """``acks=all`` is refused until the topic has as many."""
    config = CreatableTopicConfig(name="min.insync.replicas", value="3")
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        configs=[config],
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
    )
    assert create(cluster, 1, wanted).error_code == 0
    with cluster.client(1) as client:
        assert client.produce(topic, batch_of(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("replicas", "code", "says"),
    [
        ([[1, 2], [4, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 4 is not registered"),
        ([[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        ([[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker"),
        ([[1, 2], [3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 replicas where the others have 2"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    cluster: ThreadedCluster, topic: str, replicas: list[list[int]], code: int, says: str
) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=nodes)
            for number, nodes in enumerate(replicas)
        ],
    )
    outcome = create(cluster, 1, wanted)

    assert outcome.error_code == code
    assert says in outcome.error_message
    assert topic not in cluster.image.topics


@pytest.mark.parametrize("at", EVERYWHERE)
def test_partitions_are_added_where_they_are_told(
    cluster: ThreadedCluster, topic: str, at: int
) -> None:
    cluster.create(topic, [1, 2])

    def add(count: int, *assigned: list[int]) -> int:
        given = [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assigned] or None
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=given)
        with cluster.client(at) as client:
            (result,) = client.ask(CreatePartitionsRequest(topics=[wanted]), 3).results
        return int(result.error_code)

    assert add(2, [3]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add(2, [3, 9]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add(3, [3, 1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add(2, [3, 1]) == 0
    assert add(4) == 0
    cluster.settle()
    assert cluster.partition(topic, 1).replicas == (3, 1)
    assert len(cluster.partition(topic, 3).replicas) == 2
