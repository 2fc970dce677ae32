"""Elections: only those who hold everything committed, and never twice under one epoch."""

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes, in_batches
from waystation.cluster.elections import elect
from waystation.cluster.parts import PartitionImage
from waystation.cluster.topics import TopicSpec
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import LeaderEpoch, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
nodes = st.lists(st.sampled_from([ONE, TWO, THREE]), unique=True)


def world_of(*assignment: list[NodeId]) -> Items:
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", assignments=list(enumerate(assignment))))
    return world


def partition(world: Items, number: int = 0) -> PartitionImage:
    return world.image.topic("orders").partitions[number]


def rewrite(world: Items, **fields: object) -> None:
    """Set the state of partition 0, as a leader or an earlier election might have."""
    state = {"leader": ONE, "leader_epoch": LeaderEpoch(4), "in_sync": (ONE, TWO, THREE), **fields}
    key = keys.partition(world.image.topic("orders").id, 0)
    world.commit(Changes(puts={key: encode(PartitionValue(**state))}))


def test_a_partition_whose_leader_lives_keeps_it() -> None:
    assert elect(world_of([ONE, TWO]).image, [ONE]) == []


def test_a_dead_leader_is_followed_by_the_next_in_sync() -> None:
    world = world_of([ONE, TWO, THREE])
    world.commit(*elect(world.image, [TWO, THREE]))

    assert partition(world).leader == TWO
    assert partition(world).leader_epoch == 1
    assert partition(world).partition_epoch == 1


def test_one_who_is_not_in_sync_is_passed_over() -> None:
    world = world_of([ONE, TWO, THREE])
    rewrite(world, in_sync=(ONE, THREE))
    world.commit(*elect(world.image, [TWO, THREE]))

    assert partition(world).leader == THREE


def test_nobody_leads_while_nobody_in_sync_lives() -> None:
    world = world_of([ONE, TWO, THREE])
    rewrite(world, in_sync=(ONE,))
    world.commit(*elect(world.image, [TWO, THREE]))

    assert partition(world).leader is None
    assert partition(world).leader_epoch == 5
    assert partition(world).in_sync == (ONE,)
    assert elect(world.image, [TWO, THREE]) == [], "asked again, nothing new"

    world.commit(*elect(world.image, [ONE, TWO, THREE]))

    assert partition(world).leader == ONE
    assert partition(world).leader_epoch == 6


def test_an_eligible_leader_steps_in_alone() -> None:
    world = world_of([ONE, TWO, THREE])
    rewrite(world, in_sync=(ONE,), eligible=(THREE,))
    world.commit(*elect(world.image, [TWO, THREE]))

    assert partition(world).leader == THREE
    assert partition(world).in_sync == (THREE,)
    assert partition(world).eligible == ()


def test_a_node_that_restarted_leads_again_under_a_new_epoch() -> None:
    world = Items()
    world.join(1)
    world.create(TopicSpec("orders", 250))
    before = world.transactions
    world.commit(*elect(world.image, [ONE], ended=[ONE]))

    assert {each.leader for each in world.image.topic("orders").partitions} == {ONE}
    assert {each.leader_epoch for each in world.image.topic("orders").partitions} == {1}
    assert world.transactions - before == 3


def test_an_election_is_void_once_the_leader_changed_the_in_sync_set() -> None:
    world = world_of([ONE, TWO, THREE])
    decided = elect(world.image, [TWO, THREE])
    rewrite(world, in_sync=(ONE, THREE))

    assert not world.commit(*decided)


@given(nodes, nodes, nodes, nodes, st.none() | st.sampled_from([ONE, TWO, THREE]))
def test_only_one_who_holds_everything_committed_is_elected(
    live: list[NodeId],
    ended: list[NodeId],
    in_sync: list[NodeId],
    eligible: list[NodeId],
    leader: NodeId | None,
) -> None:
    world = world_of([ONE, TWO, THREE])
    rewrite(world, leader=leader, in_sync=tuple(in_sync), eligible=tuple(eligible))
    before = partition(world)
    decisions = elect(world.image, live, ended)
    for txn in in_batches(decisions):
        assert world.txn(txn)
    after = partition(world)

    if not decisions:
        assert after == before
        assert leader in live or not {*live} & {*in_sync, *eligible}
        return
    assert after.leader_epoch == before.leader_epoch + 1
    if after.leader is None:
        assert not {*live} & {*in_sync, *eligible}
    else:
        assert after.leader in live
        assert after.leader in (in_sync if {*live} & {*in_sync} else eligible)
        assert after.leader in after.in_sync
