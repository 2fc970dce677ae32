"""Founding, joining and deciding: epochs that are never given twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.membership import (
    claim_controller,
    found_cluster,
    register,
    take_producer_ids,
)
from waystation.model.errors import DuplicateBrokerError
from waystation.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_a_cluster_is_founded_once() -> None:
    world = Items()

    assert world.commit(found_cluster("first"))
    assert not world.commit(found_cluster("second"))
    assert world.image.cluster_id == "first"


def test_a_broker_registers_under_its_lease_with_an_epoch() -> None:
    world = Items()
    epoch, changes = register(world.image, ONE, "here", 9092, "rack-a")
    world.commit(changes)

    broker = world.image.brokers[ONE]
    assert (broker.epoch, broker.host, broker.port, broker.rack) == (epoch, "here", 9092, "rack-a")
    assert list(changes.leased) == [keys.broker(ONE)]


def test_a_second_broker_under_the_same_id_is_told_about_the_first() -> None:
    world = Items()
    world.join(1)

    with pytest.raises(DuplicateBrokerError, match="at host1:9092"):
        register(world.image, ONE, "there", 9093)


def test_of_two_that_register_one_id_at_once_one_is_registered() -> None:
    world = Items()
    _, first = register(world.image, ONE, "a", 1)
    _, second = register(world.image, ONE, "b", 2)

    assert world.commit(first)
    assert not world.commit(second)
    assert world.image.brokers[ONE].host == "a"


def test_of_two_that_register_at_once_the_second_decides_again() -> None:
    world = Items()
    _, first = register(world.image, ONE, "a", 1)
    _, second = register(world.image, TWO, "b", 2)

    assert world.commit(first)
    assert not world.commit(second), "they would share an epoch"


def test_only_one_decides_and_its_successor_has_a_higher_epoch() -> None:
    world = Items()
    first, late = claim_controller(world.image, ONE), claim_controller(world.image, TWO)

    assert list(first.leased) == [keys.CONTROLLER]
    assert world.commit(first)
    assert not world.commit(late)
    before = world.image.controller
    assert before
    assert before.node == ONE

    world.commit(Changes(deletes=[keys.CONTROLLER]))
    assert world.image.controller is None
    world.commit(claim_controller(world.image, TWO))

    after = world.image.controller
    assert after
    assert after.node == TWO
    assert after.epoch > before.epoch


@given(st.lists(st.sampled_from(["join", "leave"]), max_size=20))
def test_no_incarnation_shares_an_epoch(steps: list[str]) -> None:
    world = Items()
    epochs = []
    for step in steps:
        if step == "join" and ONE not in world.image.brokers:
            epoch, changes = register(world.image, ONE, "h", 1)
            assert world.commit(changes)
            epochs.append(epoch)
        elif step == "leave":
            world.commit(Changes(deletes=[keys.broker(ONE)]))

    assert epochs == sorted(set(epochs))


@given(st.lists(st.integers(1, 1_000), max_size=20))
def test_no_producer_id_is_given_twice(counts: list[int]) -> None:
    world = Items()
    given_out: list[int] = []
    for count in counts:
        stale = take_producer_ids(world.image)[1]
        block, changes = take_producer_ids(world.image, count)
        assert world.commit(changes)
        assert not world.commit(stale)
        given_out += block

    assert given_out == list(range(sum(counts)))
