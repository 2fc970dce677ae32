"""Elections among several brokers: who wants to stop, is drained, preferred, or lacks records."""

import pytest
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.controller import ControllerSettings, Decisions, decisions
from waystation.cluster.draining import drain, leave, may_stop
from waystation.cluster.elections import elect_preferred, elect_unclean
from waystation.cluster.membership import claim_controller
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import TopicPolicy, policy_of
from waystation.cluster.topics import TopicSpec
from waystation.cluster.values import ConfigValue, PartitionValue, encode
from waystation.model.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition
from waystation.model.topics import TopicSettings

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)
ORDERS = TopicPartition("orders", 0)
CAREFUL = TopicPolicy()


def world_of(**state: object) -> Items:
    world = Items()
    world.join(1, 2, 3)
    world.commit(claim_controller(world.image, ONE))
    world.create(TopicSpec("orders", assignments=[(0, ALL)]))
    fields = {"leader": ONE, "leader_epoch": LeaderEpoch(4), "in_sync": ALL, **state}
    key = keys.partition(world.image.topic("orders").id, 0)
    world.commit(Changes(puts={key: encode(PartitionValue(**fields))}))
    return world


def state_of(world: Items) -> PartitionImage:
    return world.image.topic("orders").partitions[0]


def kill(world: Items, *nodes: NodeId) -> None:
    world.commit(Changes(deletes=[keys.broker(node) for node in nodes]))


def decide(world: Items, policy: TopicPolicy = CAREFUL, *, prefer: bool = False) -> Decisions:
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: policy, prefer=prefer)
    made = decisions(world.image, settings)
    assert all(keys.CONTROLLER in each.compares for each in made.changes)
    assert world.commit(*made.changes)
    return made


def test_leaders_that_work_are_left_alone() -> None:
    assert decide(world_of(leader=TWO)) == ([], [], [], [])


def test_one_who_wants_to_stop_hands_over_and_then_may() -> None:
    world = world_of()
    world.commit(leave(world.image, ONE))
    assert not may_stop(world.image, ONE)
    decide(world)

    assert (state_of(world).leader, state_of(world).leader_epoch) == (TWO, 5)
    assert state_of(world).in_sync == ALL
    assert may_stop(world.image, ONE)


def test_one_who_wants_to_stop_leads_on_while_nobody_else_can() -> None:
    world = world_of(in_sync=(ONE,), eligible=(TWO,))
    world.commit(leave(world.image, ONE))
    decide(world)

    assert state_of(world).leader == ONE
    assert may_stop(world.image, ONE), "waiting would not help"


def test_one_who_wants_to_stop_is_not_elected() -> None:
    world = world_of(in_sync=(ONE, TWO))
    world.commit(leave(world.image, TWO))
    kill(world, ONE)
    made = decide(world)

    assert state_of(world).leader is None
    assert made.leaderless == [(ORDERS, (ONE, TWO))]
    assert decide(world).leaderless == made.leaderless, "told for as long as it is so"


def test_the_wish_of_a_former_life_does_not_count() -> None:
    world = world_of()
    world.commit(leave(world.image, TWO))
    kill(world, TWO)
    world.join(2)
    kill(world, ONE)
    decide(world)

    assert state_of(world).leader == TWO


def test_a_drained_node_leads_only_for_want_of_others() -> None:
    world = world_of()
    world.commit(drain(world.image, ONE))
    decide(world)
    assert state_of(world).leader == TWO

    world = world_of(in_sync=(ONE, TWO))
    world.commit(drain(world.image, TWO))
    kill(world, ONE)
    decide(world)
    assert state_of(world).leader == TWO


def test_preferred_leaders_lead_again_when_that_is_wished() -> None:
    world = world_of(leader=TWO)
    decide(world, prefer=True)

    assert (state_of(world).leader, state_of(world).leader_epoch) == (ONE, 5)

    world = world_of(leader=TWO, in_sync=(TWO, THREE))
    decide(world, prefer=True)
    assert state_of(world).leader == TWO


def test_an_eligible_leader_keeps_those_before_it_eligible() -> None:
    world = world_of(in_sync=(ONE,), eligible=(THREE,))
    kill(world, ONE)
    decide(world, TopicPolicy(min_insync=2))

    after = state_of(world)
    assert (after.leader, after.in_sync, after.eligible) == (THREE, (THREE,), (ONE,))


def test_one_who_may_lack_records_leads_only_where_the_topic_says_so() -> None:
    world = world_of(in_sync=(ONE,))
    kill(world, ONE)
    assert decide(world).unclean == []
    assert state_of(world).leader is None

    made = decide(world, TopicPolicy(unclean=True))

    after = state_of(world)
    assert made.unclean == [(ORDERS, TWO, 6, (ONE,))]
    assert made.leaderless == []
    assert (after.leader, after.in_sync, after.unclean_epoch) == (TWO, (TWO,), 6)


def test_an_unclean_election_is_remembered_by_later_states() -> None:
    world = world_of(in_sync=(ONE, TWO), unclean_epoch=LeaderEpoch(3))
    kill(world, ONE)
    decide(world)

    assert (state_of(world).leader_epoch, state_of(world).unclean_epoch) == (5, 3)


def test_an_election_is_void_once_the_chosen_one_is_gone() -> None:
    world = world_of()
    kill(world, ONE)
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: TopicPolicy())
    made = decisions(world.image, settings)
    kill(world, TWO)
    world.join(2)

    assert not world.commit(*made.changes)


def test_who_is_not_the_controller_decides_nothing() -> None:
    world = world_of()
    kill(world, ONE)

    for node in (TWO, THREE):
        settings = ControllerSettings(node=node, policy_of=lambda _: lambda _: TopicPolicy())
        assert decisions(world.image, settings).changes == []


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    world = world_of()
    kill(world, ONE)
    settings = ControllerSettings(node=ONE, policy_of=lambda _: lambda _: TopicPolicy())
    made = decisions(world.image, settings)
    world.commit(Changes(deletes=[keys.CONTROLLER]))
    world.commit(claim_controller(world.image, TWO))

    assert not world.commit(*made.changes)


def test_a_thousand_leaders_are_replaced_in_few_transactions() -> None:
    world = Items()
    world.join(1, 2, 3)
    world.commit(claim_controller(world.image, TWO))
    world.create(TopicSpec("wide", 1_000, 3))
    kill(world, ONE)
    settings = ControllerSettings(node=TWO, policy_of=lambda _: lambda _: TopicPolicy())
    made = decisions(world.image, settings)
    before = world.transactions
    world.commit(*made.changes)

    assert 330 <= len(made.changes) <= 340
    assert world.transactions - before == 4
    assert all(each.leader in (TWO, THREE) for each in world.image.topic("wide").partitions)


# --- as an operator asks --------------------------------------------------------------------------


def test_the_preferred_leader_is_elected_on_request() -> None:
    world = world_of(leader=TWO)
    world.commit(elect_preferred(world.image, "orders", 0))

    assert (state_of(world).leader, state_of(world).leader_epoch) == (ONE, 5)
    with pytest.raises(ElectionNotNeededError, match="orders-0"):
        elect_preferred(world.image, "orders", 0)


def test_a_preferred_leader_that_is_not_in_sync_is_refused() -> None:
    with pytest.raises(PreferredLeaderNotAvailableError, match="broker 1"):
        elect_preferred(world_of(leader=TWO, in_sync=(TWO,)).image, "orders", 0)


def test_a_loss_is_accepted_only_where_nobody_leads() -> None:
    world = world_of(in_sync=(ONE,))
    with pytest.raises(ElectionNotNeededError):
        elect_unclean(world.image, "orders", 0, TopicPolicy())
    kill(world, ONE)
    changes, told = elect_unclean(world.image, "orders", 0, TopicPolicy())
    world.commit(changes)

    assert told == (ORDERS, TWO, 5, (ONE,))
    assert state_of(world).leader == TWO
    kill(world, TWO, THREE)
    with pytest.raises(EligibleLeadersNotAvailableError, match=r"\[1, 2, 3\]"):
        elect_unclean(world.image, "orders", 0, TopicPolicy())


def test_one_who_holds_everything_is_preferred_to_a_loss() -> None:
    world = world_of(in_sync=(ONE,), eligible=(THREE,))
    kill(world, ONE)
    changes, told = elect_unclean(world.image, "orders", 0, TopicPolicy(2))
    world.commit(changes)

    assert told is None
    assert (state_of(world).leader, state_of(world).unclean_epoch) == (THREE, -1)


def test_a_policy_is_read_from_the_options() -> None:
    world = world_of()
    options = {
        "min.insync.replicas": "2",
        "durability": "memory",
        "unclean.leader.election.enable": "true",
    }
    assert policy_of(world.image, ONE, TopicSettings())("orders") == TopicPolicy(min_insync=2)
    world.commit(Changes(puts={keys.topic_config("orders"): encode(ConfigValue(options))}))

    assert policy_of(world.image, ONE, TopicSettings())("orders") == (2, True, True)
