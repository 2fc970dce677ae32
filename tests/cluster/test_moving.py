"""Replicas go to the brokers that were named, and what need not move stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.test_balance import world_of

from waystation.cluster.draining import drain
from waystation.cluster.moving import onto
from waystation.model.errors import (
    InvalidReplicationFactorError,
    UnknownBrokerError,
    UnknownTopicError,
)
from waystation.model.ids import NodeId, TopicPartition

FOUR = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)]


def test_what_is_there_already_stays_and_the_rest_is_shared_out() -> None:
    world = world_of([None] * 4, [[1, 2], [1, 2], [3, 4]])
    moves = onto(world.image, ["orders"], FOUR[1:])

    assert moves == {
        TopicPartition("orders", 0): (2, 3),
        TopicPartition("orders", 1): (2, 4),
    }


def test_more_replicas_come_after_those_there_are() -> None:
    world = world_of([None] * 3, [[2], [3]])
    moves = onto(world.image, ["orders"], factor=2)

    assert [(name.partition, target) for name, target in moves.items()] == [
        (0, (2, 1)),
        (1, (3, 1)),
    ]


def test_fewer_replicas_are_the_first_of_those_there_are() -> None:
    world = world_of([None] * 3, [[3, 1, 2]])

    assert onto(world.image, ["orders"], factor=1) == {TopicPartition("orders", 0): (3,)}


def test_nothing_goes_to_a_drained_broker_or_onto_one_machine() -> None:
    world = world_of(["a", "a", "b", None], [[1]])
    world.commit(drain(world.image, NodeId(4)))

    assert onto(world.image, ["orders"], factor=2) == {TopicPartition("orders", 0): (1, 3)}
    with pytest.raises(InvalidReplicationFactorError, match="only 2 can hold one"):
        onto(world.image, ["orders"], factor=3)
    assert onto(world.image, ["orders"], factor=3, share_machines=True)


def test_what_is_not_there_is_named() -> None:
    world = world_of([None] * 2, [[1]])

    with pytest.raises(UnknownBrokerError, match=r"no broker 9; there are 1, 2"):
        onto(world.image, ["orders"], [NodeId(9)])
    with pytest.raises(UnknownTopicError):
        onto(world.image, ["nope"], FOUR[:1])


replicas = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=2, unique=True)


@given(st.lists(replicas, min_size=1, max_size=12), st.sets(st.sampled_from(FOUR), min_size=2))
def test_no_replica_is_copied_that_could_stay(
    assignment: list[list[int]], brokers: set[NodeId]
) -> None:
    world = world_of([None] * 4, assignment)
    moves = onto(world.image, ["orders"], sorted(brokers))

    for number, before in enumerate(assignment):
        after = moves.get(TopicPartition("orders", number), tuple(map(NodeId, before)))
        kept = [node for node in before if node in brokers]
        assert set(after) <= brokers
        assert len(set(after)) == 2
        assert list(after[: len(kept)]) == kept
