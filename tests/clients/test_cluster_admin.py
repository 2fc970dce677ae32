"""A cluster through the admin calls of real clients: who is there, who leads, who holds what."""

from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

from tests.apis.clustering import ThreadedCluster

RACKS = {number: {"broker.rack": f"rack-{number}"} for number in (1, 2, 3)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    with ThreadedCluster(tmp_path_factory.mktemp("cluster"), options_of=RACKS) as running:
        yield running


@pytest.fixture
def confluent(cluster: ThreadedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def python(cluster: ThreadedCluster) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield admin
    admin.close()


def decider(cluster: ThreadedCluster) -> int:
    office = cluster.image.controller
    assert office is not None
    return office.node


def test_confluent_sees_the_whole_cluster(cluster: ThreadedCluster, confluent: AdminClient) -> None:
    found = confluent.describe_cluster().result(10)

    assert found.cluster_id == cluster.image.cluster_id
    assert found.controller.id == decider(cluster)
    assert {one.id: (one.rack, one.port) for one in found.nodes} == {
        number: (f"rack-{number}", cluster.node(number).address.port) for number in (1, 2, 3)
    }


def test_confluent_sees_who_holds_what(
    cluster: ThreadedCluster, confluent: AdminClient, topic: str
) -> None:
    cluster.create(topic, [1, 2], [2, 3], [3, 1])

    found = confluent.describe_topics(Topics([topic]))[topic].result(10)

    assert [one.leader.id for one in found.partitions] == [1, 2, 3]
    assert [[node.id for node in one.replicas] for one in found.partitions] == [
        [1, 2],
        [2, 3],
        [3, 1],
    ]
    assert [sorted(node.id for node in one.isr) for one in found.partitions] == [
        [1, 2],
        [2, 3],
        [1, 3],
    ]


@pytest.mark.parametrize("asked", ["one", "all"])
def test_confluent_elects_preferred_leaders(
    cluster: ThreadedCluster, confluent: AdminClient, topic: str, asked: str
) -> None:
    cluster.create(topic, [1, 2], [2, 3])
    cluster.rewrite(topic, 0, leader=2)
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 1)] if asked == "one" else None

    outcomes = confluent.elect_leaders(ElectionType.PREFERRED, wanted).result(10)

    mine = {one.partition: outcome for one, outcome in outcomes.items() if one.topic == topic}
    assert mine[0] is None
    if asked == "one":
        assert mine[1].code() == KafkaError.ELECTION_NOT_NEEDED
    else:
        assert 1 not in mine
    assert cluster.partition(topic).leader == 1


def test_confluent_is_told_of_more_replicas_than_brokers(
    confluent: AdminClient, topic: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        confluent.create_topics([NewTopic(topic, 1, replication_factor=4)])[topic].result(10)

    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "3 registered" in refused.value.args[0].str()


def test_confluent_makes_topics_where_it_wants_them(
    cluster: ThreadedCluster, confluent: AdminClient, topic: str
) -> None:
    wanted = NewTopic(topic, 2, replica_assignment=[[3, 2], [1, 3]])
    confluent.create_topics([wanted])[topic].result(10)
    cluster.settle()

    assert [cluster.partition(topic, one).replicas for one in (0, 1)] == [(3, 2), (1, 3)]


def test_kafka_python_sees_the_whole_cluster(
    cluster: ThreadedCluster, python: KafkaAdminClient
) -> None:
    found = python.describe_cluster()

    assert found["cluster_id"] == cluster.image.cluster_id
    assert found["controller_id"] == decider(cluster)
    brokers = {one.get("node_id", one.get("broker_id")): one for one in found["brokers"]}
    assert {number: one["rack"] for number, one in brokers.items()} == {
        1: "rack-1",
        2: "rack-2",
        3: "rack-3",
    }


def test_kafka_python_moves_partitions(
    cluster: ThreadedCluster, python: KafkaAdminClient, topic: str
) -> None:
    cluster.create(topic, [1, 2], [1, 2])
    first, second = PythonPartition(topic, 0), PythonPartition(topic, 1)

    told = python.alter_partition_reassignments({first: [3, 2], second: [9]})

    assert told[first] is None
    assert told[second].errno == KafkaError.INVALID_REPLICA_ASSIGNMENT
    cluster.until(lambda: cluster.partition(topic).replicas == (3, 2))
    cluster.settle()
    assert python.list_partition_reassignments({topic: [0, 1]}) == {}
    assert python.alter_partition_reassignments({first: None})[first].errno == 85


def test_kafka_python_elects_and_describes(
    cluster: ThreadedCluster, python: KafkaAdminClient, topic: str
) -> None:
    cluster.create(topic, [1, 2])
    cluster.rewrite(topic, 0, leader=2)

    python.elect_leaders(0, {topic: [0]})

    assert cluster.partition(topic).leader == 1
    found = {one["broker"]: one for one in python.describe_log_dirs()}
    holders = {
        broker
        for broker, told in found.items()
        for directory in told["log_dirs"]
        for held in directory["topics"]
        if held["name"] == topic
    }
    assert holders == {1, 2}


async def test_aiokafka_sees_the_whole_cluster(cluster: ThreadedCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        found = await admin.describe_cluster()
    finally:
        await admin.close()

    assert {one["node_id"] for one in found["brokers"]} == {1, 2, 3}
    assert found["controller_id"] == decider(cluster)
