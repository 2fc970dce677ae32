"""ElectLeaders: who leads again because an operator says so, and why not."""

from io import StringIO
from typing import Any

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import batch_of, versions
from waystation.messages.cluster_status import ClusterStatusRequest
from waystation.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    TopicPartitions,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

Results = dict[tuple[str, int], int]


def elect(
    cluster: ThreadedCluster,
    wanted: dict[str, list[int]] | None,
    kind: int = PREFERRED,
    *,
    at: int = 1,
    version: int = 2,
) -> Results:
    named = wanted
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if named is None
        else [TopicPartitions(topic=name, partitions=some) for name, some in named.items()],
    )
    with cluster.client(at) as client:
        reply: Any = client.ask(request, version)
    assert reply.error_code == 0, reply
    for topic in reply.replica_election_results:
        for one in topic.partition_result:
            assert (one.error_message is None) == (one.error_code == 0), one
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in reply.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
@pytest.mark.parametrize("at", [1, 2, 3])
def test_any_broker_lets_the_preferred_leader_lead(
    cluster: ThreadedCluster, topic: str, version: int, at: int
) -> None:
    cluster.create(topic, [1, 2], [2, 3])
    cluster.rewrite(topic, 0, leader=2)

    assert elect(cluster, {topic: [0]}, at=at, version=version) == {(topic, 0): 0}
    assert cluster.partition(topic).leader == 1
    assert cluster.partition(topic).leader_epoch == 2, "every election has an epoch of its own"


def test_what_needs_no_election_is_told_so(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2])

    assert elect(cluster, {topic: [0]}) == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(cluster, {topic: [0]}, UNCLEAN) == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}
    assert cluster.partition(topic).leader_epoch == 0


def test_a_preferred_leader_must_be_in_sync(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2], [1, 2])
    cluster.rewrite(topic, 0, leader=2, in_sync=(2,))
    cluster.rewrite(topic, 1, leader=2)

    found = elect(cluster, {topic: [0, 1]})

    assert found[topic, 1] == 0, "one that is refused spoils no other"
    assert cluster.partition(topic, 1).leader == 1
    # The replica may have caught up by the time that it is asked for.
    assert found[topic, 0] in (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)


def test_unknown_partitions_are_told_one_by_one(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2])
    cluster.rewrite(topic, 0, leader=2)

    found = elect(cluster, {topic: [0, 1, -1], "nowhere": [0], "": [0], "a/../b": [7]})

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        (topic, 0): 0,
        (topic, 1): unknown,
        (topic, -1): unknown,
        ("nowhere", 0): unknown,
        ("", 0): unknown,
        ("a/../b", 7): unknown,
    }


def test_all_means_those_that_need_it(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2], [2, 1], [3, 1])
    cluster.rewrite(topic, 0, leader=2)
    cluster.rewrite(topic, 2, leader=1)

    found = elect(cluster, None)

    mine = {partition: code for (name, partition), code in found.items() if name == topic}
    assert mine == {0: 0, 2: 0}
    assert [cluster.partition(topic, one).leader for one in range(3)] == [1, 2, 3]
    assert ErrorCode.ELECTION_NOT_NEEDED not in found.values()


def test_nothing_asked_for_is_nothing_done(cluster: ThreadedCluster) -> None:
    assert elect(cluster, {}) == {}
    assert elect(cluster, {"nowhere": []}) == {}


def test_a_partition_named_twice_is_elected_once(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2])
    cluster.rewrite(topic, 0, leader=2)

    assert elect(cluster, {topic: [0, 0]}) == {(topic, 0): 0}
    assert cluster.partition(topic).leader_epoch == 2


@pytest.mark.parametrize("kind", [2, 127, -1])
def test_a_kind_of_election_that_does_not_exist_is_refused(
    cluster: ThreadedCluster, kind: int
) -> None:
    with cluster.client() as client:
        reply = client.ask(ElectLeadersRequest(election_type=kind, topic_partitions=None), 2)

    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert reply.replica_election_results == []


def test_an_operator_may_accept_the_loss_and_it_is_told(
    tmp_path_factory: pytest.TempPathFactory, said: StringIO, topic: str
) -> None:
    options = {"replica.lag.time.max.ms": "300"}
    with ThreadedCluster(tmp_path_factory.mktemp("unclean"), options=options) as cluster:
        cluster.create(topic, [3, 1])
        with cluster.client(3) as client:
            assert client.produce(topic, batch_of(b"both have it")).error_code == 0
            cluster.cut(1, 3)
            assert client.produce(topic, batch_of(b"only 3 has it"), acks=1).error_code == 0
        cluster.until(lambda: cluster.partition(topic).in_sync == (3,))
        cluster.kill(3)
        cluster.until(lambda: cluster.partition(topic).leader is None)
        cluster.settle()

        unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert elect(cluster, {topic: [0]}) == {(topic, 0): unavailable}
        assert elect(cluster, {topic: [0]}, UNCLEAN, at=2) == {(topic, 0): 0}
        cluster.settle()

        state = cluster.partition(topic)
        assert (state.leader, state.in_sync, state.unclean_epoch) == (1, (1,), state.leader_epoch)
        with cluster.client(2) as client:
            told = client.ask(ClusterStatusRequest(), 0)
        assert [(one.topic, one.unclean_epoch) for one in told.unclean] == [
            (topic, state.leader_epoch)
        ]
        with cluster.client(1) as client:
            assert client.produce(topic, batch_of(b"after")).base_offset == 1
        cluster.start(3)
        cluster.until(lambda: {*cluster.partition(topic).in_sync} == {1, 3})
    assert said.getvalue().count("election.unclean") == 1
