"""The committed prefix: what every counted replica holds, and never less again."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.ids import BrokerEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.replication.high_watermark import HighWatermark

LEADER, FOLLOWER, LAGGARD = NodeId(1), NodeId(2), NodeId(3)
NODES = (LEADER, FOLLOWER, LAGGARD)
FIRST_LIFE, SECOND_LIFE = BrokerEpoch(1), BrokerEpoch(2)
START = Offset(0)

reports = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(0, 2).map(BrokerEpoch), st.integers(0, 50)),
    max_size=60,
)


def test_mark_waits_for_the_slowest_counted_replica() -> None:
    hw = HighWatermark([LEADER, FOLLOWER], START)

    assert not hw.record(LEADER, FIRST_LIFE, Offset(10))
    assert hw.mark == 0
    assert hw.record(FOLLOWER, FIRST_LIFE, Offset(7))
    assert hw.mark == 7


def test_a_report_of_a_copy_that_was_given_up_counts_only_until_the_next_ones_own() -> None:
    """It was on its way when the replica was removed and added again, in one life."""
    hw = HighWatermark([LEADER, FOLLOWER], START)
    hw.record(FOLLOWER, FIRST_LIFE, Offset(9))
    hw.forget_one(FOLLOWER)
    hw.count([LEADER], enough=True)
    hw.record(FOLLOWER, FIRST_LIFE, Offset(9))
    hw.record(FOLLOWER, FIRST_LIFE, Offset(0))
    hw.count([LEADER, FOLLOWER], enough=True)
    hw.record(LEADER, FIRST_LIFE, Offset(9))

    assert hw.end_of(FOLLOWER) == 0
    assert hw.mark == 0

    hw.record(FOLLOWER, FIRST_LIFE, Offset(5))
    assert hw.mark == 5


def test_a_lower_end_does_not_move_the_mark_back() -> None:
    hw = HighWatermark([LEADER, FOLLOWER], START)
    hw.record(LEADER, FIRST_LIFE, Offset(9))
    hw.record(FOLLOWER, FIRST_LIFE, Offset(7))

    assert not hw.record(FOLLOWER, FIRST_LIFE, Offset(4))
    assert (hw.mark, hw.end_of(FOLLOWER)) == (7, 4)


def test_the_dead_are_not_believed() -> None:
    hw = HighWatermark([LEADER, FOLLOWER], START)
    hw.record(FOLLOWER, SECOND_LIFE, Offset(4))
    hw.record(FOLLOWER, FIRST_LIFE, Offset(9))

    assert hw.end_of(FOLLOWER) == 4


def test_a_lower_end_of_a_newer_incarnation_is_believed() -> None:
    hw = HighWatermark([LEADER, FOLLOWER], START)
    hw.record(FOLLOWER, FIRST_LIFE, Offset(9))
    hw.record(FOLLOWER, SECOND_LIFE, Offset(4))
    hw.record(LEADER, FIRST_LIFE, Offset(9))

    assert hw.mark == 4


def test_a_replica_that_joins_counts_from_where_it_is() -> None:
    hw = HighWatermark([LEADER, LAGGARD], START)
    hw.record(LEADER, FIRST_LIFE, Offset(9))
    hw.record(FOLLOWER, FIRST_LIFE, Offset(7))
    hw.record(LAGGARD, FIRST_LIFE, Offset(3))

    assert hw.mark == 3
    assert hw.count([LEADER, FOLLOWER], enough=True)
    assert hw.mark == 7


def test_a_replica_that_leaves_holds_nobody_back() -> None:
    hw = HighWatermark([LEADER, LAGGARD], START)
    hw.record(LEADER, FIRST_LIFE, Offset(5))

    assert hw.count([LEADER], enough=True)
    assert hw.mark == 5


def test_mark_stands_still_while_too_few_count() -> None:
    hw = HighWatermark([LEADER], START)
    hw.count([LEADER], enough=False)

    assert not hw.record(LEADER, FIRST_LIFE, Offset(5))
    assert hw.count([LEADER], enough=True)
    assert hw.mark == 5


def test_mark_stands_still_until_forgotten_ends_are_reported_again() -> None:
    hw = HighWatermark([LEADER, FOLLOWER], START)
    hw.record(FOLLOWER, FIRST_LIFE, Offset(9))
    hw.forget()
    hw.restate(LEADER, Offset(9))

    assert hw.mark == 0

    hw.record(FOLLOWER, FIRST_LIFE, Offset(3))

    assert hw.mark == 3


@given(reports)
def test_mark_never_moves_back(reports: list[tuple[NodeId, BrokerEpoch, int]]) -> None:
    """Whatever order reports arrive in, and whoever restarts, committed stays committed."""
    hw = HighWatermark(NODES, START)
    for node, life, end in reports:
        before = hw.mark
        moved = hw.record(node, life, Offset(end))

        assert hw.mark >= before
        assert moved == (hw.mark > before)


@pytest.mark.parametrize("seed", range(50))
def test_mark_moves_only_to_where_every_counted_replica_is(seed: int) -> None:
    """Replicas grow, restart with less, join and leave; reports are delayed and reordered."""
    chance = random.Random(seed)
    hw = HighWatermark(NODES, START)
    counted = list(NODES)
    held = {node: {BrokerEpoch(0): 0} for node in NODES}
    wire: list[tuple[NodeId, BrokerEpoch, int]] = []
    for _ in range(300):
        node = chance.choice(NODES)
        life = max(held[node])
        match chance.randrange(10):
            case 0:
                held[node][BrokerEpoch(life + 1)] = max(0, held[node][life] - chance.randrange(3))
            case 1:
                counted = chance.sample(NODES, chance.randrange(1, 4))
                hw.count(counted, enough=True)
            case _:
                held[node][life] += chance.randrange(4)
        wire.append((node, max(held[node]), held[node][max(held[node])]))
        chance.shuffle(wire)
        before = hw.mark
        node, life, end = wire.pop()
        if hw.record(node, life, Offset(end)):
            assert all(hw.end_of(each) >= hw.mark for each in counted)
            assert all(max(held[each].values()) >= hw.mark for each in counted)
        assert hw.mark >= before
    assert hw.mark > 0, "no progress"
