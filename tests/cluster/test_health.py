"""What an operator is told of an image, by example."""

from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.draining import drain
from waystation.cluster.health import health
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.reassignment import reassign
from waystation.cluster.topics import TopicSpec
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition

ONE, TWO, THREE, FOUR = map(NodeId, (1, 2, 3, 4))


def world_of(*assignment: list[NodeId]) -> Items:
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", assignments=list(enumerate(assignment))))
    return world


def policy(_: str) -> TopicPolicy:
    return TopicPolicy(min_insync=2)


def rewrite(world: Items, number: int = 0, **fields: object) -> None:
    key = keys.partition(world.image.topic("orders").id, number)
    state = {"leader": ONE, "leader_epoch": LeaderEpoch(4), "in_sync": (ONE, TWO, THREE), **fields}
    world.commit(Changes(puts={key: encode(PartitionValue(**state))}))


def bury(world: Items, node: NodeId) -> None:
    world.commit(Changes(deletes=[keys.broker(node)]))


def test_a_sound_cluster_has_no_troubles() -> None:
    found = health(world_of([ONE, TWO], [TWO, THREE]).image, policy)

    assert found.troubles == found.journeys == found.stuck == found.unclean == []
    assert (found.topics, found.partitions, found.not_preferred) == (1, 2, 0)
    assert found.holdings == {ONE: (1, 1, 1), TWO: (2, 1, 1), THREE: (1, 0, 0)}


def test_who_died_is_missed_before_anybody_has_written_it_down() -> None:
    world = world_of([ONE, TWO], [TWO, ONE])
    bury(world, TWO)

    first, second = health(world.image, policy).troubles

    assert (first.leaderless, first.under_replicated, first.under_min_insync) == (False, True, True)
    assert (second.leaderless, second.partition) == (True, TopicPartition("orders", 1))
    assert health(world.image, policy).holdings[TWO] == (2, 1, 1), "the dead are remembered"


def test_who_lags_is_missed() -> None:
    world = world_of([ONE, TWO, THREE])
    rewrite(world, in_sync=(ONE, THREE))

    (only,) = health(world.image, policy).troubles

    assert (only.leaderless, only.under_replicated, only.under_min_insync) == (False, True, False)


def test_who_is_only_being_added_is_not_missed() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [ONE, THREE]))

    found = health(world.image, policy)

    assert found.troubles == []
    (journey,) = found.journeys
    assert (journey.begun, journey.waiting_for, journey.missing) == (False, (THREE,), ())
    bury(world, THREE)
    assert health(world.image, policy).journeys[0].missing == (THREE,)


def test_a_partition_led_by_another_than_the_preferred_is_counted() -> None:
    world = world_of([TWO, ONE])
    rewrite(world, leader=ONE, in_sync=(ONE, TWO))

    assert health(world.image, policy).not_preferred == 1
    bury(world, ONE)
    assert health(world.image, policy).not_preferred == 0, "nobody leads it"


def test_an_unclean_election_is_told_for_good() -> None:
    world = world_of([ONE, TWO])
    rewrite(world, leader=TWO, in_sync=(TWO,), unclean_epoch=LeaderEpoch(3))

    (told,) = health(world.image, policy).unclean

    assert (told.partition, told.state.unclean_epoch) == (TopicPartition("orders", 0), 3)


def test_replicas_of_a_drained_node_that_have_nowhere_to_go_are_told() -> None:
    world = world_of([ONE, TWO, THREE])
    world.create(TopicSpec("small", assignments=[(0, [ONE, TWO])]))
    world.commit(drain(world.image, TWO))

    found = health(world.image, policy)

    assert [one.partition for one in found.stuck] == [TopicPartition("orders", 0)]


def test_a_drained_node_that_nobody_knows_is_remembered() -> None:
    world = world_of([ONE, TWO])
    world.join(4)
    world.commit(drain(world.image, FOUR))
    bury(world, FOUR)

    assert health(world.image, policy).holdings[FOUR] == (0, 0, 0)
