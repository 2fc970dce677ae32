"""While the store is away: what needs it is refused in time, the rest goes on."""

from asyncio import Event
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis.asking import TOPIC, Asking
from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import batch_of
from waystation.messages.alter_configs import AlterableConfig as ReplacedConfig
from waystation.messages.alter_configs import AlterConfigsRequest
from waystation.messages.alter_configs import AlterConfigsResource as ReplacedResource
from waystation.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from waystation.messages.cluster_status import ClusterStatusRequest
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from waystation.messages.create_topics import CreatableTopic, CreateTopicsRequest
from waystation.messages.delete_topics import DeleteTopicsRequest
from waystation.messages.drain_broker import DrainBrokerRequest
from waystation.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode

IN_TIME = ErrorCode.REQUEST_TIMED_OUT


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    """A node that is alone, with a topic that is led by another than it prefers; store away."""
    with ThreadedCluster(tmp_path_factory.mktemp("away"), 2) as running:
        running.create("orders", [2, 1])
        running.rewrite("orders", 0, leader=1)
        running.until(lambda: {*running.partition("orders").in_sync} == {1, 2})

        async def cut() -> None:
            running.local.cut_off_from_store(1)

        running.wait_for(cut())
        yield running


@pytest.fixture
def client(cut_off: ThreadedCluster) -> Iterator[Asking]:
    with cut_off.client(1) as connected:
        yield connected


REQUESTS: list[tuple[Any, int, Any]] = [
    (
        CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
            timeout_ms=500,
        ),
        7,
        lambda told: told.topics[0],
    ),
    (
        DeleteTopicsRequest(topic_names=["orders"], timeout_ms=500),
        5,
        lambda told: told.responses[0],
    ),
    (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="orders", count=2, assignments=None)],
            timeout_ms=500,
        ),
        3,
        lambda told: told.results[0],
    ),
    (
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="orders", partitions=[0])], timeout_ms=500
        ),
        2,
        lambda told: told.replica_election_results[0].partition_result[0],
    ),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="orders",
                    partitions=[ReassignablePartition(partition_index=0, replicas=[1])],
                )
            ],
            timeout_ms=500,
        ),
        1,
        lambda told: told.responses[0].partitions[0],
    ),
    (DrainBrokerRequest(broker_id=2), 0, lambda told: told),
    (
        AlterConfigsRequest(
            resources=[
                ReplacedResource(
                    resource_type=TOPIC,
                    resource_name="orders",
                    configs=[ReplacedConfig(name="retention.ms", value="1")],
                )
            ]
        ),
        2,
        lambda told: told.responses[0],
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "outcome"), REQUESTS, ids=lambda one: type(one).__name__
)
def test_what_needs_the_store_is_refused_and_says_why(
    client: Asking, request_: Any, version: int, outcome: Any
) -> None:
    told = outcome(client.ask(request_, version))

    assert told.error_code == IN_TIME, told
    assert "store" in told.error_message or "within" in told.error_message


def test_options_are_not_changed(client: Asking) -> None:
    assert client.alter(TOPIC, "orders", {"retention.ms": "1"}).error_code == IN_TIME


def test_a_topic_is_not_made_on_first_use(client: Asking) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="first"), MetadataRequestTopic(name="orders")],
        allow_auto_topic_creation=True,
    )
    first, orders = client.ask(request, 12).topics

    assert first.error_code in (IN_TIME, ErrorCode.LEADER_NOT_AVAILABLE)
    assert orders.error_code == 0


def test_the_rest_goes_on(cut_off: ThreadedCluster, client: Asking) -> None:
    cut_off.until(lambda: cut_off.node(1).broker.store_silent_s > 0)

    told = client.ask(ClusterStatusRequest(), 0)
    assert told.error_code == 0
    assert told.store_silent_ms > 0
    assert client.produce("orders", batch_of(b"x"), acks=1).error_code == 0


def deletes(asked: tuple[Any, int, Any]) -> bool:
    return isinstance(asked[0], DeleteTopicsRequest)


def never_seen(cluster: ThreadedCluster, number: int) -> None:
    """What a node writes, it does not hear of."""

    async def reached(revision: int) -> None:
        await Event().wait()

    cluster.node(number).broker._view.reached = reached  # type: ignore[method-assign]


def test_nobody_waits_longer_than_he_said(tmp_path: Path) -> None:
    with ThreadedCluster(tmp_path, 2) as cluster:
        cluster.create("orders", [2, 1])
        cluster.rewrite("orders", 0, leader=1)
        cluster.until(lambda: {*cluster.partition("orders").in_sync} == {1, 2})
        never_seen(cluster, 1)
        with cluster.client(1) as client:
            # Each is done, though nobody hears of it: what deletes comes last.
            for request, version, outcome in sorted(REQUESTS, key=deletes):
                if getattr(request, "timeout_ms", 0):
                    told = outcome(client.ask(request, version))
                    assert told.error_code == IN_TIME, told
                    assert "within 500 ms" in told.error_message
        cluster.until(lambda: "new" in cluster.image.topics)
