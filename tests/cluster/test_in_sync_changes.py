"""Who is in sync: a follower comes in as the life that was counted, and nobody stays too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.draining import leave
from waystation.cluster.in_sync_changes import Proposal, give_up, propose, sets_after
from waystation.cluster.membership import Condition, end_last_life, register
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.topics import TopicSpec
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import LeaderEpoch, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)
some_nodes = st.lists(st.sampled_from(ALL), unique=True).map(tuple)


def world_of(in_sync: tuple[NodeId, ...] = ALL, eligible: tuple[NodeId, ...] = ()) -> Items:
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", assignments=[(0, ALL)]))
    state = PartitionValue(ONE, LeaderEpoch(4), in_sync, eligible)
    key = keys.partition(world.image.topic("orders").id, 0)
    world.commit(Changes(puts={key: encode(state)}))
    return world


def state_of(world: Items) -> PartitionImage:
    return world.image.topic("orders").partitions[0]


def ask(world: Items, *wanted: NodeId, min_insync: int = 2) -> Proposal | None:
    image = world.image
    lives = {node: broker.epoch for node, broker in image.brokers.items()}
    return propose(image, image.topic("orders"), 0, wanted, lives, min_insync)


def change(world: Items, *wanted: NodeId, min_insync: int = 2) -> None:
    asked = ask(world, *wanted, min_insync=min_insync)
    assert asked is not None
    assert world.commit(asked.changes)


def test_a_smaller_set_keeps_leader_and_leader_epoch() -> None:
    world = world_of()
    change(world, ONE, THREE)

    after = state_of(world)
    assert (after.leader, after.leader_epoch, after.in_sync) == (ONE, 4, (ONE, THREE))
    assert after.partition_epoch == 1
    assert after.eligible == (), "enough are in sync"


def test_who_leaves_a_set_that_is_too_small_stays_eligible_until_it_is_not() -> None:
    world = world_of()
    change(world, ONE)
    assert state_of(world).eligible == (TWO, THREE)

    change(world, ONE, THREE)
    assert state_of(world).eligible == ()


def test_a_lowered_minimum_asks_for_a_state_without_eligible_ones() -> None:
    world = world_of((ONE,), (TWO,))

    assert ask(world, ONE, min_insync=2) is None
    change(world, ONE, min_insync=1)
    assert (state_of(world).in_sync, state_of(world).eligible) == ((ONE,), ())


def test_the_leader_stays_whatever_is_wanted() -> None:
    world = world_of()
    change(world, TWO)

    assert state_of(world).in_sync == (ONE, TWO)


def test_nothing_is_written_if_nothing_changes() -> None:
    assert ask(world_of(), *ALL) is None


def test_a_follower_that_was_counted_in_another_life_stays_out() -> None:
    world = world_of((ONE, TWO))
    image = world.image
    lives = {THREE: image.brokers[TWO].epoch}

    assert propose(image, image.topic("orders"), 0, ALL, lives, 2) is None


def test_a_follower_that_restarts_before_the_change_arrives_stays_out() -> None:
    world = world_of((ONE, TWO))
    asked = ask(world, *ALL)
    assert asked is not None
    world.commit(Changes(deletes=[keys.broker(THREE)]))
    world.join(3)

    assert not world.commit(asked.changes)


def test_a_follower_that_wants_to_stop_is_not_let_in() -> None:
    world = world_of((ONE, TWO))
    world.commit(leave(world.image, THREE))

    assert ask(world, *ALL) is None


def test_a_leader_whose_registration_is_gone_changes_nothing() -> None:
    world = world_of()
    asked = ask(world, ONE)
    assert asked is not None
    world.commit(Changes(deletes=[keys.broker(ONE)]))

    assert ask(world, ONE) is None
    assert not world.commit(asked.changes)


@given(some_nodes, some_nodes, some_nodes, st.integers(1, 3))
def test_everyone_in_either_set_held_everything_before(
    in_sync: tuple[NodeId, ...],
    eligible: tuple[NodeId, ...],
    members: tuple[NodeId, ...],
    min_insync: int,
) -> None:
    others = tuple(node for node in eligible if node not in in_sync)
    before = state_of(world_of(in_sync, others))
    after = sets_after(before, members, min_insync)

    assert {*after.in_sync} == {*members}
    assert {*after.eligible} <= {*before.holders}.difference(members)
    if len(members) >= min_insync:
        assert not after.eligible
    else:
        assert {*after.in_sync, *after.eligible} >= {*before.holders}


# --- a new life -----------------------------------------------------------------------------------


def restart(
    world: Items,
    node: NodeId,
    *,
    clean: bool,
    memory: bool,
    held: bool = True,
    renewed: bool = False,
) -> None:
    world.commit(Changes(deletes=[keys.broker(node)]))
    policy = TopicPolicy(2, memory)
    condition = Condition(clean, lambda topic, number: held, renewed)
    world.commit(*end_last_life(world.image, node, lambda _: policy, condition))
    assert end_last_life(world.image, node, lambda _: policy, condition) == []
    _, changes = register(world.image, node, "host", 9092, clean=clean)
    world.commit(changes)


def test_a_new_life_leads_nothing_before_it_is_elected() -> None:
    world = world_of()
    restart(world, ONE, clean=True, memory=False)

    assert (state_of(world).leader, state_of(world).leader_epoch) == (None, 5)
    assert state_of(world).in_sync == ALL


def test_a_crash_loses_what_was_only_in_memory_so_it_leaves_both_sets() -> None:
    world = world_of((ONE, TWO), (THREE,))
    restart(world, TWO, clean=False, memory=True)
    restart(world, THREE, clean=False, memory=True)

    assert (state_of(world).in_sync, state_of(world).eligible) == ((ONE,), ())


def test_the_last_who_could_know_stays() -> None:
    world = world_of((ONE,))
    restart(world, ONE, clean=False, memory=True)

    assert state_of(world).in_sync == (ONE,)


def test_an_eligible_leader_is_more_than_one_in_sync_that_lost_its_memory() -> None:
    world = world_of((ONE,), (TWO,))
    restart(world, ONE, clean=False, memory=True)

    assert (state_of(world).in_sync, state_of(world).eligible) == ((), (TWO,))


def test_what_is_on_disk_survives_a_crash() -> None:
    world = world_of()
    restart(world, TWO, clean=False, memory=False)

    assert state_of(world).in_sync == ALL


@pytest.mark.parametrize("renewed", [False, True])
def test_who_comes_back_without_the_log_is_not_in_sync(renewed: bool) -> None:
    world = world_of((ONE, TWO), (THREE,))
    restart(world, ONE, clean=True, memory=False, held=False, renewed=renewed)
    restart(world, THREE, clean=True, memory=False, held=False, renewed=renewed)

    assert (state_of(world).in_sync, state_of(world).eligible) == ((TWO,), ())


def test_a_log_that_was_never_made_is_no_loss_if_nobody_knows_more() -> None:
    world = world_of((ONE,))
    restart(world, ONE, clean=False, memory=False, held=False)

    assert state_of(world).in_sync == (ONE,)


def test_a_new_disk_is_never_taken_for_all_that_was_committed() -> None:
    """Those who are not in sync may have most of it: only an operator may let them lead."""
    world = world_of((ONE,))
    restart(world, ONE, clean=False, memory=False, held=False, renewed=True)

    assert (state_of(world).leader, state_of(world).in_sync) == (None, ())


def test_the_last_life_is_ended_only_while_nobody_is_registered() -> None:
    world = world_of()
    world.commit(Changes(deletes=[keys.broker(ONE)]))
    ending = end_last_life(world.image, ONE, lambda _: TopicPolicy(), Condition(True))
    world.join(1)

    assert not world.commit(*ending)


@pytest.mark.parametrize("node", [ONE, TWO])
def test_who_cannot_use_its_copy_leaves_both_sets_and_the_lead(node: NodeId) -> None:
    world = world_of((ONE, TWO), (THREE,))
    changes = give_up(world.image, world.image.topic("orders"), 0, node, 2)
    assert changes is not None
    assert world.commit(changes)

    after = state_of(world)
    assert node not in after.holders
    assert after.leader == (None if node == ONE else ONE)
    assert after.leader_epoch == (5 if node == ONE else 4)


def test_the_last_copy_is_not_given_up() -> None:
    world = world_of((ONE,), (TWO,))

    assert give_up(world.image, world.image.topic("orders"), 0, ONE, 1) is None
    assert give_up(world.image, world.image.topic("orders"), 0, THREE, 1) is None
