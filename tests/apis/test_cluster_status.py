"""ClusterStatus and DrainBroker: what operators ask, of any broker."""

from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.clustering import ThreadedCluster
from tests.apis.test_reassignments import alter
from waystation.messages.cluster_status import ClusterStatusRequest
from waystation.messages.drain_broker import DrainBrokerRequest
from waystation.model.errors import ErrorCode


def status(cluster: ThreadedCluster, at: int = 1, limit: int = -1) -> Any:
    with cluster.client(at) as client:
        told = client.ask(ClusterStatusRequest(limit=limit), 0)
    assert told.error_code == 0, told
    assert told.answered_by == at
    return told


def test_every_broker_tells_the_same(cluster: ThreadedCluster, topic: str) -> None:
    cluster.create(topic, [1, 2], [2, 3], [3, 1])
    cluster.settle()

    told = [status(cluster, at) for at in (1, 2, 3)]

    for one in told:
        assert [broker.broker_id for broker in one.brokers] == [1, 2, 3]
        assert all(broker.alive for broker in one.brokers)
        assert len({broker.epoch for broker in one.brokers}) == 3
        for broker in one.brokers:
            assert (broker.host, broker.port) == tuple(cluster.node(broker.broker_id).address)
    assert len({(one.cluster_id, one.controller_id, one.controller_epoch) for one in told}) == 1
    assert told[0].controller_id in (1, 2, 3)
    assert told[0].cluster_id == cluster.image.cluster_id
    assert [one.store_silent_ms for one in told] == [0, 0, 0]
    assert told[0].topic_count == len(cluster.image.topics)


def test_a_single_node_tells_of_itself(client: Asking, topic: str) -> None:
    client.create(topic, 2)
    told = client.ask(ClusterStatusRequest(), 0)

    assert (told.error_code, told.answered_by, told.controller_id) == (0, 1, 1)
    assert told.leaderless_count == told.under_replicated_count == told.stuck_count == 0
    (broker,) = told.brokers
    assert (broker.alive, broker.leaving, broker.draining) == (True, False, False)
    assert broker.replicas == broker.leaders == broker.preferred_leaders == told.partition_count


def test_a_nonsensical_limit_is_refused(cluster: ThreadedCluster) -> None:
    with cluster.client() as client:
        told = client.ask(ClusterStatusRequest(limit=-2), 0)

    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert "-2" in told.error_message


def test_moves_that_wait_are_shown_with_whom_they_wait_for(
    stalled: ThreadedCluster, topic: str
) -> None:
    stalled.create(topic, [1], [1])
    alter(stalled, topic, {0: [2, 1], 1: [3]})
    stalled.until(lambda: len(stalled.partition(topic, 1).replicas) == 2)
    stalled.settle()

    told = status(stalled, at=2)
    mine = {one.partition: one for one in told.reassignments if one.topic == topic}

    assert told.reassignment_count >= 2
    assert (mine[0].target, mine[0].adding, mine[0].removing) == ([2, 1], [2], [])
    assert (mine[1].target, mine[1].adding, mine[1].removing) == ([3], [3], [1])
    assert (mine[0].waiting_for, mine[1].waiting_for) == ([2], [3])
    assert all(one.begun and not one.missing for one in mine.values())
    assert not [one for one in told.partitions if one.topic == topic], "who comes is not missed"
    assert len(status(stalled, limit=1).reassignments) == 1
    assert status(stalled, limit=0).reassignment_count == told.reassignment_count
    alter(stalled, topic, {0: None, 1: None})


def drain(cluster: ThreadedCluster, node: int, *, wanted: bool = True, at: int = 1) -> Any:
    with cluster.client(at) as client:
        return client.ask(DrainBrokerRequest(broker_id=node, drain=wanted), 0)


@pytest.mark.parametrize("node", [-1, 0, 9, 2_147_483_647])
def test_only_brokers_that_exist_can_be_drained(cluster: ThreadedCluster, node: int) -> None:
    told = drain(cluster, node)

    assert told.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert f"no broker {node}" in told.error_message
    assert node not in cluster.image.drains
    assert drain(cluster, node, wanted=False).error_code == 0, "nothing is nothing to take back"


def test_a_broker_is_drained_and_filled_again(
    tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    with ThreadedCluster(tmp_path_factory.mktemp("drained")) as cluster:
        cluster.create(topic, [1, 2], [2, 3], [3, 1])

        first = drain(cluster, 2, at=3)

        assert first.error_code == 0, first
        assert drain(cluster, 2).error_code == 0, "harmless to repeat"
        cluster.settle()
        assert next(one for one in status(cluster).brokers if one.broker_id == 2).draining
        cluster.until(lambda: empty(cluster, 2))
        last = drain(cluster, 2)
        assert (last.replicas, last.leaders, last.stuck) == (0, 0, 0)
        for number in range(3):
            assert len(cluster.partition(topic, number).replicas) == 2

        assert drain(cluster, 2, wanted=False).error_code == 0
        cluster.settle()
        assert not next(one for one in status(cluster).brokers if one.broker_id == 2).draining
        alter(cluster, topic, {0: [2, 1]})
        cluster.until(lambda: cluster.partition(topic).replicas == (2, 1))


def test_what_has_nowhere_to_go_is_told(
    tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    with ThreadedCluster(tmp_path_factory.mktemp("stuck"), 2) as cluster:
        cluster.create(topic, [1, 2])

        assert drain(cluster, 2).stuck == 1
        told = status(cluster)

        assert told.stuck_count == 1
        assert [(one.topic, one.partition, one.broker_id) for one in told.stuck] == [(topic, 0, 2)]


def test_who_is_dead_is_told_and_what_hangs_on_it(
    tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    with ThreadedCluster(tmp_path_factory.mktemp("dead")) as cluster:
        alone, pair, far = topic, f"{topic}-pair", f"{topic}-far"
        cluster.create(alone, [3])
        cluster.create(pair, [2, 3])
        cluster.create(far, [1], min_insync_replicas="2")
        epochs = {one.broker_id: one.epoch for one in status(cluster).brokers}
        cluster.kill(3)
        cluster.until(lambda: cluster.partition(alone).leader is None)
        cluster.settle()

        told = status(cluster, at=2)

        dead = told.brokers[2]
        assert (dead.broker_id, dead.alive, dead.host, dead.replicas) == (3, False, "", 2)
        troubled = {one.topic: one for one in told.partitions}
        assert {one for one in troubled if troubled[one].leaderless} == {alone}
        assert {one for one in troubled if troubled[one].under_replicated} == {alone, pair}
        assert {one for one in troubled if troubled[one].under_min_in_sync} == {alone, far}
        assert (troubled[alone].leader, troubled[pair].leader) == (-1, 2)
        assert troubled[far].min_in_sync == 2
        assert (told.leaderless_count, told.under_replicated_count) == (1, 2)
        assert told.under_min_in_sync_count == 2

        cluster.start(3)
        cluster.until(lambda: cluster.partition(alone).leader == 3)
        cluster.until(lambda: {*cluster.partition(pair).in_sync} == {2, 3})
        cluster.settle()
        told = status(cluster)
        assert (told.leaderless_count, told.under_replicated_count) == (0, 0)
        assert told.brokers[2].epoch > epochs[3], "another life"


def empty(cluster: ThreadedCluster, node: int) -> bool:
    return not any(
        node in partition.replicas
        for topic in cluster.image.topics.values()
        for partition in topic.partitions
    )
