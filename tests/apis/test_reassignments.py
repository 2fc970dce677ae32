"""AlterPartitionReassignments and ListPartitionReassignments, asked of any broker."""

from typing import Any

import pytest

from tests.apis.clustering import ThreadedCluster
from waystation.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from waystation.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from waystation.model.errors import ErrorCode

Targets = dict[int, list[int] | None]


def alter(
    cluster: ThreadedCluster,
    topic: str,
    targets: Targets,
    *,
    at: int = 1,
    version: int = 1,
    allow: bool = True,
) -> dict[int, tuple[int, str | None]]:
    wished = [ReassignablePartition(partition_index=n, replicas=to) for n, to in targets.items()]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=wished)],
        allow_replication_factor_change=allow,
    )
    with cluster.client(at) as client:
        reply: Any = client.ask(request, version)
    assert reply.error_code == 0, reply
    (told,) = reply.responses
    assert told.name == topic
    return {one.partition_index: (one.error_code, one.error_message) for one in told.partitions}


def listed(
    cluster: ThreadedCluster, wanted: dict[str, list[int]] | None = None, *, at: int = 1
) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    asked = None
    if wanted is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=some)
            for name, some in wanted.items()
        ]
    with cluster.client(at) as client:
        reply: Any = client.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
    assert reply.error_code == 0, reply
    return {
        (topic.name, one.partition_index): (
            one.replicas,
            one.adding_replicas,
            one.removing_replicas,
        )
        for topic in reply.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("at", [1, 3])
def test_a_partition_moves_to_other_brokers(
    cluster: ThreadedCluster, topic: str, version: int, at: int
) -> None:
    cluster.create(topic, [1, 2])

    assert alter(cluster, topic, {0: [3, 2]}, at=at, version=version) == {0: (0, None)}
    cluster.until(lambda: cluster.partition(topic).replicas == (3, 2))
    cluster.until(lambda: not listed_in(cluster, topic))
    assert cluster.partition(topic).leader in (2, 3)
    assert {*cluster.partition(topic).in_sync} == {2, 3}


def test_replicas_come_and_go(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1])

    alter(cluster, topic, {0: [1, 2, 3]})
    cluster.until(lambda: {*cluster.partition(topic).in_sync} == {1, 2, 3})
    alter(cluster, topic, {0: [2]}, at=2)
    cluster.until(lambda: cluster.partition(topic).replicas == (2,))
    assert cluster.partition(topic).leader == 2
    assert cluster.partition(topic).in_sync == (2,)


def test_what_is_under_way_is_listed_and_can_be_cancelled(
    stalled: ThreadedCluster, topic: str
) -> None:
    stalled.create(topic, [1], [1])
    alter(stalled, topic, {0: [2], 1: [3, 1]}, at=2)

    for at in stalled.local.nodes:
        stalled.settle()
        found = listed(stalled, at=at)
        assert (found[topic, 0], found[topic, 1]) == (([1, 2], [2], [1]), ([1, 3], [3], []))
    assert listed(stalled, {topic: [1]}).keys() == {(topic, 1)}
    assert listed(stalled, {topic: [7, -1], "nowhere": [0], "": []}) == {}
    assert listed(stalled, {}) == {}

    assert alter(stalled, topic, {0: None, 1: None}) == {0: (0, None), 1: (0, None)}
    stalled.until(lambda: not listed_in(stalled, topic))
    assert [stalled.partition(topic, one).replicas for one in (0, 1)] == [(1,), (1,)]


def test_a_target_may_change_on_the_way(stalled: ThreadedCluster, topic: str) -> None:
    stalled.create(topic, [1])
    alter(stalled, topic, {0: [2]})
    assert alter(stalled, topic, {0: [3, 1]}, at=2) == {0: (0, None)}
    stalled.settle()

    adding, removing = listed(stalled)[topic, 0][1:]
    assert 3 in adding
    assert 1 not in removing
    alter(stalled, topic, {0: None})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ([], "no broker"),
        ([1, 1], "twice"),
        ([9], "broker 9 is not registered; there are 1, 2, 3"),
        ([1, -1], "broker -1 is not registered"),
        ([2, 2_147_483_647], "not registered"),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    cluster: ThreadedCluster, topic: str, target: list[int], says: str
) -> None:
    cluster.create(topic, [1, 2], [1, 2])

    found = alter(cluster, topic, {0: target, 1: [1, 3]})

    code, message = found[0]
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert says in (message or "")
    assert found[1][0] == 0, "one that is refused spoils no other"
    assert cluster.partition(topic, 0).replicas == (1, 2)


def test_unknown_topics_and_partitions_are_refused(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1])

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = alter(cluster, topic, {1: [2], -1: [2], 7: None})
    assert [code for code, _ in found.values()] == [unknown] * 3
    for name in ("nowhere", "", "a/../b"):
        assert alter(cluster, name, {0: [1]})[0][0] == unknown


def test_nothing_under_way_is_nothing_to_cancel(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1])

    code, message = alter(cluster, topic, {0: None})[0]

    assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert "not being reassigned" in (message or "")


def test_a_factor_changes_only_where_that_is_allowed(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2])

    assert alter(cluster, topic, {0: [1, 2, 3]}, allow=False)[0][0] == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert alter(cluster, topic, {0: [1]}, allow=False)[0][0] == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert alter(cluster, topic, {0: [2, 1]}, allow=False)[0][0] == 0
    cluster.until(lambda: cluster.partition(topic).replicas == (2, 1))


def test_a_partition_that_is_named_twice_stays_as_it_is(
    cluster: ThreadedCluster, topic: str
) -> None:
    cluster.create(topic, [1], [1])
    wished = [
        ReassignablePartition(partition_index=number, replicas=[to])
        for number, to in ((0, 2), (1, 3), (0, 3))
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=wished)]
    )
    with cluster.client() as client:
        (told,) = client.ask(request, 1).responses

    codes = {one.partition_index: one.error_code for one in told.partitions}
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: 0}
    assert cluster.partition(topic, 0).replicas == (1,)


def test_nothing_asked_for_is_nothing_done(cluster: ThreadedCluster) -> None:
    with cluster.client() as client:
        assert client.ask(AlterPartitionReassignmentsRequest(topics=[]), 1).responses == []
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="nowhere", partitions=[])]
        )
        assert client.ask(request, 1).responses == []


def listed_in(cluster: ThreadedCluster, topic: str) -> bool:
    """Whether any of the topic's partitions is under way, by the newest image."""
    return cluster.image.topic(topic).id in cluster.image.reassignments
