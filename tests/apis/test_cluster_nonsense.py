"""Well-formed nonsense about a cluster: every request is answered, and breaks nothing.

Fields are filled at random, partly with what is true, so that requests get deep: partitions are
moved, elected and drained in earnest.  Afterwards everything can be put in order again.
"""

from io import StringIO
from random import Random
from typing import Any

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import batch_of, versions
from tests.messages.arbitrary import instance
from tests.support.soak import count
from waystation.messages.catalog import request_type
from waystation.messages.drain_broker import DrainBrokerRequest
from waystation.wire.message import Struct
from waystation.wire.versions import ApiKey

REQUESTS_OF_EACH_API = count(25, 600)
APIS = [
    ApiKey.METADATA,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CLUSTER_STATUS,
    ApiKey.DRAIN_BROKER,
]
TOPICS = ["here", "there"]
COMPLAINTS = ("request.failed", "answer.failed", "task.crashed", "Traceback")


class Truth:
    """What is so, to be sprinkled over requests."""

    def __init__(self, random: Random, cluster: ThreadedCluster) -> None:
        self._random = random
        self._paths = [
            str(directory.path)
            for node in cluster.local.nodes.values()
            for directory in node.broker.directories
        ]

    def sprinkle(self, struct: Struct) -> None:
        """Put true values into most of the fields."""
        for name in struct.__fields__:
            value = getattr(struct, name)
            structs = [one for one in _listed(value) if isinstance(one, Struct)]
            for one in structs:
                self.sprinkle(one)
            choices = [] if structs else self._choices(name)
            # A thousand partitions would be moved too, but not while a test waits.
            if choices and (name == "count" or self._random.random() < 0.8):
                setattr(struct, name, self._random.choice(choices))

    def _choices(self, name: str) -> list[Any]:
        return {
            "name": TOPICS,
            "topic": TOPICS,
            "topic_name": TOPICS,
            "partitions": [[0], [0, 1], [1, 1, 5]],
            "partition_indexes": [[0], [1, 0, 7]],
            "partition_index": [0, 1],
            "partition_id": [0, 1],
            "replicas": [[1, 2], [3], [2, 3, 1], None, [], [1, 1], [4]],
            "broker_ids": [[1, 2], [3, 1], [9, 9]],
            "broker_id": [1, 2, 3, 4],
            "election_type": [0, 1],
            "count": [2, 3, 0, -1],
            "assignments": [None],
            "path": self._paths,
            "limit": [-1, 0, 2],
            "endpoint_type": [1, 2],
            "allow_auto_topic_creation": [False],
            "cursor": [None],
            "timeout_ms": [0, 5_000],
        }.get(name, [])


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("seed", range(count(1, 20)))
def test_every_request_is_answered_and_breaks_nothing(
    tmp_path_factory: pytest.TempPathFactory, said: StringIO, seed: int
) -> None:
    random = Random(seed)
    with ThreadedCluster(tmp_path_factory.mktemp("nonsense")) as cluster:
        for topic in TOPICS:
            cluster.create(topic, [1, 2], [2, 3])
        truth = Truth(random, cluster)
        asked = [
            (key, random.choice(versions(key))) for key in APIS for _ in range(REQUESTS_OF_EACH_API)
        ]
        random.shuffle(asked)
        clients = [cluster.client(number) for number in cluster.local.nodes]
        for key, version in asked:
            request = instance(request_type(key), version, random)
            truth.sprinkle(request)
            random.choice(clients).ask(request, version)
        for client in clients:
            client.close()
        expect_service_as_usual(cluster)

    for complaint in COMPLAINTS:
        assert complaint not in said.getvalue(), f"seed {seed}: {said.getvalue()[-3_000:]}"


def expect_service_as_usual(cluster: ThreadedCluster) -> None:
    """Whatever was asked for comes to an end, and every partition takes records again."""
    with cluster.client(1) as client:
        for number in cluster.local.nodes:
            client.ask(DrainBrokerRequest(broker_id=number, drain=False), 0)
    cluster.until(lambda: not cluster.image.drains)
    cluster.until(lambda: not cluster.image.reassignments)
    cluster.until(lambda: not troubled(cluster))
    for topic in TOPICS:
        for number in range(len(cluster.image.topic(topic).partitions)):
            cluster.settle()
            leader = cluster.partition(topic, number).leader
            assert leader is not None
            with cluster.client(leader) as client:
                assert client.produce(topic, batch_of(b"x"), partition=number).error_code == 0


def troubled(cluster: ThreadedCluster) -> bool:
    image = cluster.image
    return any(
        state.leader is None or {*state.in_sync} != {*state.replicas}
        for topic in image.topics.values()
        for state in topic.partitions
    )
