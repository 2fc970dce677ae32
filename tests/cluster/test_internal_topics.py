"""The cluster's own topics: as many replicas as there can be, and more once there are brokers."""

from collections import Counter

from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.controller import ControllerSettings, decisions
from waystation.cluster.draining import drain
from waystation.cluster.internal_topics import factor_now, widened
from waystation.cluster.membership import claim_controller, register
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.reassignment import under_way
from waystation.cluster.topics import TopicSpec
from waystation.model.ids import NodeId

ONE, TWO, THREE, FOUR = map(NodeId, (1, 2, 3, 4))
OFFSETS = "__consumer_offsets"
WANTED = {OFFSETS: 3, "__transaction_state": 3}


def alone(partitions: int = 6) -> Items:
    """A node that made its topics while it was alone."""
    world = Items()
    world.join(1)
    world.commit(claim_controller(world.image, ONE))
    for name in (OFFSETS, "orders"):
        assignments = [(number, [ONE]) for number in range(partitions)]
        world.create(TopicSpec(name, assignments=assignments))
    return world


def targets(world: Items) -> list[tuple[NodeId, ...]]:
    return [moving.target for moving in under_way(world.image)]


def test_nothing_is_asked_for_while_the_node_is_alone() -> None:
    world = alone()

    assert widened(world.image, WANTED, 50) == []
    assert factor_now(world.image, 3) == 1


def test_every_broker_that_joins_takes_replicas_until_there_are_enough() -> None:
    world = alone()
    world.join(2)
    world.commit(*widened(world.image, WANTED, 50))
    assert {frozenset(target) for target in targets(world)} == {frozenset((ONE, TWO))}

    world.join(3)
    world.commit(*widened(world.image, WANTED, 50))
    assert {frozenset(target) for target in targets(world)} == {frozenset((ONE, TWO, THREE))}

    world.join(4)
    assert widened(world.image, WANTED, 50) == []


def test_only_the_clusters_own_topics_are_widened() -> None:
    world = alone()
    world.join(2, 3)
    world.commit(*widened(world.image, WANTED, 50))

    assert {moving.partition.topic for moving in under_way(world.image)} == {OFFSETS}


def test_preferred_leaders_are_spread_over_the_brokers() -> None:
    world = alone(partitions=9)
    world.join(2, 3)
    world.commit(*widened(world.image, WANTED, 50))

    assert Counter(target[0] for target in targets(world)) == {ONE: 3, TWO: 3, THREE: 3}


def test_replicas_stay_on_machines_of_their_own() -> None:
    world = Items()
    for node, machine in ((1, "a"), (2, "a"), (3, "b")):
        _, changes = register(world.image, NodeId(node), "host", 1, machine=machine)
        world.commit(changes)
    world.create(TopicSpec(OFFSETS, assignments=[(0, [ONE])]))

    assert factor_now(world.image, 3) == 2
    assert factor_now(world.image, 3, share_machines=True) == 3
    world.commit(*widened(world.image, WANTED, 50))
    assert targets(world) in ([(ONE, THREE)], [(THREE, ONE)])


def test_a_partition_on_a_drained_node_is_moved_first() -> None:
    world = alone()
    world.join(2, 3, 4)
    world.commit(drain(world.image, ONE))
    policy = TopicPolicy()
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: policy, internal=WANTED)

    assert widened(world.image, WANTED, 50) == []
    assert world.commit(*decisions(world.image, settings).changes)
    assert all(ONE not in target for target in targets(world))


def test_what_nobody_leads_waits_and_so_does_what_there_is_no_room_for() -> None:
    world = alone(partitions=4)
    world.join(2, 3)
    world.commit(*widened(world.image, WANTED, 3))
    assert len(targets(world)) == 3

    world = alone(partitions=4)
    world.join(2, 3)
    world.commit(Changes(deletes=[keys.broker(ONE)]))
    assert widened(world.image, WANTED, 50) == []


def test_the_controller_asks_once_and_then_lets_the_moves_be_made() -> None:
    world = alone()
    world.join(2, 3)
    policy = TopicPolicy()
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: policy, internal=WANTED)
    made = decisions(world.image, settings).changes
    assert len(made) == 6
    assert world.commit(*made)

    for _ in range(3):
        world.commit(*decisions(world.image, settings).changes)
    partitions = world.image.topic(OFFSETS).partitions
    assert all({*one.replicas} == {ONE, TWO, THREE} for one in partitions)
    assert decisions(world.image, settings).changes == []
