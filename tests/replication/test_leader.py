"""A leader's view of its partition: what is committed, and whether it may acknowledge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.replication.leader import LeaderState

LEADER, FOLLOWER = NodeId(1), NodeId(2)
LIFE = BrokerEpoch(7)
EPOCH = LeaderEpoch(3)
START = Offset(0)


def alone(
    durability: str = "disk",
    min_insync: int = 1,
    mark: Offset = START,
    log_end: Offset = START,
    eligible: tuple[NodeId, ...] = (),
) -> LeaderState:
    return LeaderState(
        EPOCH,
        [LEADER],
        min_insync,
        durability,
        leader=LEADER,
        mark=mark,
        log_end=log_end,
        eligible=eligible,
    )


def pair(durability: str = "disk", min_insync: int = 1) -> LeaderState:
    return LeaderState(EPOCH, [LEADER, FOLLOWER], min_insync, durability, leader=LEADER)


def test_on_disk_the_mark_is_the_flushed_end() -> None:
    state = alone("disk")

    assert not state.on_local(Offset(10), Offset(0))
    assert state.on_local(Offset(10), Offset(6))
    assert state.high_watermark == 6


def test_in_memory_the_mark_is_the_log_end() -> None:
    state = alone("memory")

    assert state.on_local(Offset(10), Offset(0))
    assert state.high_watermark == 10


def test_the_mark_waits_for_the_follower_too() -> None:
    state = pair("disk")
    state.on_local(Offset(10), Offset(10))

    assert state.high_watermark == 0
    assert state.on_follower(FOLLOWER, LIFE, Offset(10), Offset(4))
    assert state.high_watermark == 4


def test_the_mark_waits_for_the_leader_too() -> None:
    state = pair("disk")
    state.on_local(Offset(10), Offset(2))
    state.on_follower(FOLLOWER, LIFE, Offset(10), Offset(10))

    assert state.high_watermark == 2


def test_too_few_replicas_commit_nothing() -> None:
    state = alone(min_insync=2)
    state.on_local(Offset(5), Offset(5))

    assert not state.enough_replicas()
    assert state.high_watermark == 0
    assert state.reconfigure(1, "disk")
    assert state.enough_replicas()
    assert state.high_watermark == 5


def test_a_proposal_to_shrink_keeps_waiting_for_the_one_who_leaves() -> None:
    state = pair()
    state.on_local(Offset(5), Offset(5))
    state.propose([LEADER])

    assert state.high_watermark == 0
    assert state.settle([LEADER])
    assert state.high_watermark == 5


def test_a_proposal_to_grow_waits_for_the_one_who_joins() -> None:
    state = alone()
    state.propose([LEADER, FOLLOWER])
    state.on_local(Offset(5), Offset(5))

    assert state.high_watermark == 0


def test_a_proposal_to_shrink_below_the_minimum_stops_acknowledging() -> None:
    state = pair(min_insync=2)
    state.propose([LEADER])

    assert not state.enough_replicas()


def test_a_new_leader_is_settled_once_its_mark_reaches_its_end_at_election() -> None:
    state = alone(mark=Offset(3), log_end=Offset(8))

    assert state.high_watermark == 3
    assert not state.settled

    state.on_local(Offset(9), Offset(8))

    assert state.settled


def test_an_empty_log_is_settled_at_once() -> None:
    assert alone().settled


def test_a_leader_outside_the_in_sync_set_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="not in sync"):
        LeaderState(EPOCH, [FOLLOWER], 1, "disk", leader=LEADER)


def test_from_memory_to_disk_nothing_unflushed_commits_any_more() -> None:
    nodes = [LEADER, FOLLOWER, NodeId(3)]
    state = LeaderState(EPOCH, nodes, 1, "memory", leader=LEADER)
    state.on_local(Offset(10), Offset(0))
    state.on_follower(FOLLOWER, LIFE, Offset(10), Offset(0))
    state.on_follower(NodeId(3), LIFE, Offset(5), Offset(0))
    state.reconfigure(1, "disk")
    state.on_local(Offset(10), Offset(10))
    state.on_follower(NodeId(3), LIFE, Offset(10), Offset(10))

    assert state.high_watermark == 5, "what the first follower has in memory does not count"

    state.on_follower(FOLLOWER, LIFE, Offset(10), Offset(7))

    assert state.high_watermark == 7


local_ends = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted)


@given(st.lists(st.tuples(st.booleans(), local_ends), max_size=50))
def test_on_disk_nothing_unflushed_by_an_in_sync_replica_commits(
    steps: list[tuple[bool, list[int]]],
) -> None:
    """Both replicas append and flush in any order; reports of the follower may be late."""
    state = pair("disk")
    flushed = {LEADER: 0, FOLLOWER: 0}
    log_ends = {LEADER: 0, FOLLOWER: 0}
    for by_leader, (flush, end) in steps:
        node = LEADER if by_leader else FOLLOWER
        log_ends[node] = max(log_ends[node], end)
        flushed[node] = max(flushed[node], flush)
        if by_leader:
            state.on_local(Offset(log_ends[node]), Offset(flushed[node]))
        else:
            state.on_follower(FOLLOWER, LIFE, Offset(end), Offset(flush))

        assert state.high_watermark <= min(flushed.values())

    state.on_follower(FOLLOWER, LIFE, Offset(log_ends[FOLLOWER]), Offset(flushed[FOLLOWER]))
    assert state.high_watermark == min(flushed.values()), "what is late is put right"


def test_the_mark_waits_for_who_is_about_to_join() -> None:
    state = alone("memory")
    state.on_local(Offset(10), Offset(0))
    state.on_follower(FOLLOWER, LIFE, Offset(9), Offset(9))
    state.court([FOLLOWER])
    state.on_local(Offset(12), Offset(0))

    assert state.high_watermark == 10
    assert state.on_follower(FOLLOWER, LIFE, Offset(11), Offset(11))
    assert state.high_watermark == 11
    assert state.court([])
    assert state.high_watermark == 12


def test_nothing_commits_while_others_may_lead_who_lack_it() -> None:
    state = alone(eligible=(FOLLOWER,))
    state.on_local(Offset(5), Offset(5))

    assert state.enough_replicas(), "what is written now may commit later"
    assert state.high_watermark == 0
    assert state.settle([LEADER])
    assert state.high_watermark == 5
