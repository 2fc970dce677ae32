"""Moves: step by step, never with fewer copies than before, ending with exactly their target."""

import pytest
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.controller import ControllerSettings, decisions
from waystation.cluster.draining import drain, held, undrain, widen
from waystation.cluster.in_sync_changes import propose
from waystation.cluster.membership import claim_controller, register
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.reassignment import cancel, reassign, under_way
from waystation.cluster.topics import TopicSpec, add_partitions, delete_topic
from waystation.model.errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    UnknownBrokerError,
    UnknownTopicError,
)
from waystation.model.ids import NodeId, TopicPartition

ONE, TWO, THREE, FOUR = map(NodeId, (1, 2, 3, 4))


def world_of(*assignment: list[NodeId]) -> Items:
    world = Items()
    world.join(1, 2, 3, 4)
    world.commit(claim_controller(world.image, ONE))
    world.create(TopicSpec("orders", assignments=list(enumerate(assignment))))
    return world


def state_of(world: Items, number: int = 0) -> PartitionImage:
    return world.image.topic("orders").partitions[number]


def decide(world: Items, *, min_insync: int = 1, moves_max: int = 50, rounds: int = 1) -> int:
    """Rounds of decisions; how many changes the last one made."""
    policy = TopicPolicy(min_insync)
    settings = ControllerSettings(
        node=ONE, policy_of=lambda _: lambda _: policy, moves_max=moves_max, earlier=world.image
    )
    made = 0
    for _ in range(rounds):
        changes = decisions(world.image, settings).changes
        assert world.commit(*changes)
        made = len(changes)
    return made


def copy(world: Items, *nodes: NodeId, number: int = 0) -> None:
    """The leader lets ``nodes`` in, as it does once they have everything."""
    image = world.image
    wanted = {*state_of(world, number).in_sync, *nodes}
    lives = {node: broker.epoch for node, broker in image.brokers.items()}
    asked = propose(image, image.topic("orders"), number, wanted, lives, 1)
    assert asked is not None
    assert world.commit(asked.changes)


def test_a_move_adds_copies_then_takes_away_and_ends_with_its_target() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, FOUR]))
    assert state_of(world).replicas == (ONE, TWO), "only the controller begins"
    decide(world)
    assert state_of(world).replicas == (ONE, TWO, THREE, FOUR)

    copy(world, THREE)
    assert decide(world) == 0, "one copy is missing"
    copy(world, FOUR)
    decide(world)

    after = state_of(world)
    assert (after.replicas, after.in_sync) == ((THREE, FOUR), (THREE, FOUR))
    assert (after.leader, after.leader_epoch) == (THREE, 1)
    assert under_way(world.image) == []
    assert decide(world) == 0


def test_a_leader_that_stays_keeps_its_epoch() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, ONE]))
    decide(world)
    copy(world, THREE)
    decide(world)

    after = state_of(world)
    assert (after.replicas, after.leader, after.leader_epoch) == ((THREE, ONE), ONE, 0)


def test_to_cancel_is_to_go_back() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, FOUR]))
    decide(world)
    copy(world, THREE)
    world.commit(cancel(world.image, "orders", 0))
    decide(world)

    assert (state_of(world).replicas, state_of(world).in_sync) == ((ONE, TWO), (ONE, TWO))
    with pytest.raises(NoReassignmentInProgressError, match="orders-0"):
        cancel(world.image, "orders", 0)


def test_a_target_may_change_on_the_way_and_one_can_still_go_back() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, TWO]))
    decide(world)
    world.commit(reassign(world.image, "orders", 0, [FOUR, TWO]))
    decide(world)
    assert state_of(world).replicas == (ONE, TWO, THREE, FOUR)
    (moving,) = under_way(world.image)
    assert moving == (
        TopicPartition("orders", 0),
        (ONE, TWO, THREE, FOUR),
        (FOUR, TWO),
        (FOUR,),
        (ONE, THREE),
    )

    copy(world, FOUR)
    decide(world)
    assert state_of(world).replicas == (FOUR, TWO)


def test_moves_whose_targets_changed_do_not_wait_for_each_other() -> None:
    world = world_of([ONE], [TWO])
    for number, first in enumerate((THREE, FOUR)):
        world.commit(reassign(world.image, "orders", number, [first]))
    decide(world, moves_max=2)
    for number, second in enumerate((FOUR, THREE)):
        world.commit(reassign(world.image, "orders", number, [second]))
    decide(world, moves_max=2)

    assert [state_of(world, n).replicas for n in (0, 1)] == [(1, 3, 4), (2, 4, 3)]


def test_only_so_many_moves_are_under_way_at_once() -> None:
    world = world_of([ONE], [ONE], [ONE])
    for number in range(3):
        world.commit(reassign(world.image, "orders", number, [TWO]))
    decide(world, moves_max=2, rounds=3)
    assert [len(state_of(world, n).replicas) for n in range(3)] == [2, 2, 1]

    copy(world, TWO, number=0)
    decide(world, moves_max=2, rounds=2)
    assert [state_of(world, n).replicas for n in range(3)] == [(TWO,), (1, 2), (1, 2)]


def test_many_moves_of_one_topic_fit_into_what_a_store_takes() -> None:
    world = world_of(*([ONE, TWO] for _ in range(250)))
    asked = [reassign(world.image, "orders", number, [TWO, ONE]) for number in range(250)]
    assert world.commit(*asked)
    decide(world, rounds=14)

    assert {each.replicas for each in world.image.topic("orders").partitions} == {(TWO, ONE)}
    assert decide(world) == 0


def test_a_move_waits_for_as_many_in_sync_as_the_topic_wants() -> None:
    world = world_of([ONE, TWO, THREE])
    image = world.image
    asked = propose(image, image.topic("orders"), 0, [ONE, TWO], {}, 1)
    assert asked
    world.commit(asked.changes)
    world.commit(reassign(world.image, "orders", 0, [ONE, THREE]))
    assert decide(world, min_insync=2) == 0

    copy(world, THREE)
    decide(world, min_insync=2)
    assert state_of(world).replicas == (ONE, THREE)


def test_a_dead_leader_is_replaced_before_the_move_ends() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, TWO]))
    decide(world)
    copy(world, THREE)
    world.commit(Changes(deletes=[keys.broker(ONE)]))
    decide(world)
    assert (state_of(world).leader, len(state_of(world).replicas)) == (TWO, 3)
    decide(world)

    assert (state_of(world).replicas, state_of(world).leader) == ((THREE, TWO), TWO)


@pytest.mark.parametrize(
    ("target", "problem"),
    [([], "no broker"), ([1, 1], "twice"), ([1, 9], "broker 9 is not registered")],
)
def test_a_target_that_cannot_be_is_refused(target: list[NodeId], problem: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=problem):
        reassign(world_of([ONE]).image, "orders", 0, target)


def test_a_target_on_a_drained_node_or_without_a_partition_is_refused() -> None:
    world = world_of([ONE])
    world.commit(drain(world.image, TWO))

    with pytest.raises(InvalidReplicaAssignmentError, match="broker 2 is being drained"):
        reassign(world.image, "orders", 0, [TWO])
    with pytest.raises(UnknownTopicError, match="no partition 3"):
        reassign(world.image, "orders", 3, [ONE])


def test_partitions_added_during_a_move_have_as_many_replicas_as_it_ends_with() -> None:
    world = world_of([ONE, TWO])
    world.commit(reassign(world.image, "orders", 0, [THREE, FOUR]))
    decide(world)
    world.commit(add_partitions(world.image, "orders", 2))

    assert len(state_of(world, 1).replicas) == 2
    assert len(state_of(world, 0).replicas) == 4, "the move goes on"


def test_the_wish_goes_with_the_topic() -> None:
    world = world_of([ONE])
    world.commit(reassign(world.image, "orders", 0, [TWO]))
    world.commit(delete_topic(world.image.topic("orders")))
    decide(world)

    assert world.image.reassignments == {}


# --- drains ---------------------------------------------------------------------------------------


def finish_moves(world: Items) -> None:
    for _ in range(20):
        decide(world)
        for each in under_way(world.image):
            number = each.partition.partition
            state = state_of(world, number)
            if {*each.adding} <= {*state.replicas} and not {*each.adding} <= {*state.in_sync}:
                copy(world, *each.adding, number=number)


def test_a_drained_node_ends_empty_and_gets_nothing_new() -> None:
    world = world_of([ONE, TWO], [TWO, THREE], [FOUR, TWO])
    world.commit(drain(world.image, TWO))
    finish_moves(world)

    assert held(world.image, TWO) == (0, 0)
    assert all(len(each.replicas) == 2 for each in world.image.topic("orders").partitions)
    outcomes = world.create(TopicSpec("new", 12, 3))
    assert outcomes
    assert held(world.image, TWO) == (0, 0)

    world.commit(undrain(world.image, TWO))
    world.create(TopicSpec("newer", 12, 3))
    assert held(world.image, TWO).replicas > 0


def test_a_dead_node_is_drained_too() -> None:
    world = world_of([TWO, ONE])
    world.commit(Changes(deletes=[keys.broker(TWO)]))
    world.commit(drain(world.image, TWO))
    finish_moves(world)

    assert held(world.image, TWO) == (0, 0)
    assert state_of(world).leader == ONE


def test_a_move_to_a_node_that_dies_and_is_drained_goes_elsewhere_without_more_room() -> None:
    world = world_of([ONE])
    world.commit(reassign(world.image, "orders", 0, [TWO]))
    decide(world, moves_max=1)
    world.commit(Changes(deletes=[keys.broker(TWO)]))
    world.commit(drain(world.image, TWO))
    decide(world, moves_max=1, rounds=2)

    assert held(world.image, TWO) == (0, 0)
    assert state_of(world).replicas == (ONE,), "where least would be, it never left"


def test_what_cannot_go_anywhere_is_told() -> None:
    world = world_of([ONE, TWO, THREE, FOUR])
    world.commit(drain(world.image, TWO))
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: TopicPolicy())
    made = decisions(world.image, settings)

    assert made.changes == []
    assert made.stuck == [(TopicPartition("orders", 0), TWO)]


def test_a_drain_that_is_lifted_begins_no_move() -> None:
    world = world_of([TWO])
    world.commit(drain(world.image, TWO))
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: TopicPolicy())
    made = decisions(world.image, settings).changes
    world.commit(undrain(world.image, TWO))

    assert made
    assert not world.commit(*made)


def test_a_drain_keeps_replicas_on_different_machines() -> None:
    world = Items()
    for node, machine in ((1, "a"), (2, "b"), (3, "b"), (4, "c")):
        _, changes = register(world.image, NodeId(node), "host", 1, machine=machine)
        world.commit(changes)
    world.commit(claim_controller(world.image, ONE))
    world.create(TopicSpec("orders", assignments=[(0, [ONE, TWO])]))
    world.commit(drain(world.image, ONE))
    finish_moves(world)
    assert state_of(world).replicas == (FOUR, TWO)

    world.commit(drain(world.image, TWO))
    finish_moves(world)
    assert state_of(world).replicas == (FOUR, THREE)


def test_nobody_drains_what_does_not_exist() -> None:
    world = world_of([ONE])
    with pytest.raises(UnknownBrokerError, match="no broker 9"):
        drain(world.image, NodeId(9))
    assert undrain(world.image, NodeId(9)) == Changes()


# --- more replicas --------------------------------------------------------------------------------


def test_a_topic_of_one_node_gets_more_replicas_once_there_are_more() -> None:
    world = world_of([ONE], [ONE], [ONE])
    world.commit(*widen(world.image, "orders", 3))
    finish_moves(world)

    assignment = world.image.topic("orders").assignment
    assert all(len({*each}) == 3 and each[0] == ONE for each in assignment)
    assert sorted(held(world.image, node).replicas for node in (TWO, THREE, FOUR)) == [2, 2, 2]
    assert widen(world.image, "orders", 3) == []


def test_a_topic_gets_as_many_replicas_as_there_are_machines() -> None:
    world = Items()
    for node, machine in ((1, "a"), (2, "a"), (3, "b")):
        _, changes = register(world.image, NodeId(node), "host", 1, machine=machine)
        world.commit(changes)
    world.create(TopicSpec("orders", assignments=[(0, [ONE])]))
    world.commit(*widen(world.image, "orders", 3))
    (moving,) = under_way(world.image)
    assert moving.target == (ONE, THREE)

    world.commit(*widen(world.image, "orders", 3, share_machines=True))
    (moving,) = under_way(world.image)
    assert moving.target == (ONE, THREE, TWO)
