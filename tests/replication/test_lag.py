"""Who keeps up is in sync; who does not, leaves; who comes back, joins, in its present life."""

import pytest

from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Millis, Offset
from waystation.replication.lag import Cluster, Paces
from waystation.replication.leader import LeaderState

LEADER, FAST, SLOW = NodeId(1), NodeId(2), NodeId(3)
EVERYONE = (LEADER, FAST, SLOW)
LIFE, NEXT_LIFE = BrokerEpoch(7), BrokerEpoch(8)
LIVES = dict.fromkeys(EVERYONE, LIFE)
LAG_MS = 1_000
CLUSTER = Cluster(EVERYONE, LIVES)


class Led:
    """A partition with ``in_sync``, elected at 0 ms with a log that ended at ``elected_at``."""

    def __init__(self, *in_sync: NodeId, elected_at: int = 0) -> None:
        self.state = LeaderState(
            LeaderEpoch(1), in_sync, 1, "disk", leader=LEADER, log_end=Offset(elected_at)
        )
        self.paces = Paces(LEADER, in_sync, LAG_MS, Millis(0))
        self.log_end = Offset(elected_at)

    def fetch(self, node: NodeId, end: int, now: int, life: BrokerEpoch = LIFE) -> None:
        self.paces.on_fetch(node, life, Offset(end), self.log_end, Millis(now))

    def wants(self, now: int, cluster: Cluster = CLUSTER) -> tuple[NodeId, ...] | None:
        return self.paces.proposal(self.state, cluster, self.log_end, Millis(now))


def test_a_follower_that_stops_leaves_after_its_time() -> None:
    led = Led(*EVERYONE)
    led.log_end = Offset(10)
    led.fetch(FAST, 10, 900)

    assert led.wants(LAG_MS) is None
    assert led.wants(LAG_MS + 1) == (LEADER, FAST)


def test_a_follower_that_has_everything_stays_however_long_it_is_quiet() -> None:
    led = Led(*EVERYONE)
    led.fetch(FAST, 0, 1)
    led.fetch(SLOW, 0, 1)

    assert led.wants(100 * LAG_MS) is None


def test_a_follower_that_is_always_a_little_behind_keeps_up() -> None:
    """What it has flushed is three fetches old, whatever is appended meanwhile."""
    led = Led(LEADER, FAST)
    cluster = Cluster((LEADER, FAST), LIVES)
    for now in range(0, 20 * LAG_MS, 100):
        led.log_end = Offset(now)
        led.fetch(FAST, max(0, now - 300), now)

        assert led.wants(now, cluster) is None


def test_a_follower_that_falls_ever_further_behind_leaves() -> None:
    led = Led(LEADER, FAST)
    cluster = Cluster((LEADER, FAST), LIVES)
    for now in range(0, 5 * LAG_MS, 100):
        led.log_end = Offset(now)
        led.fetch(FAST, now // 3, now)

    assert led.wants(5 * LAG_MS, cluster) == (LEADER,)


def test_a_follower_that_catches_up_joins() -> None:
    led = Led(LEADER, FAST)
    led.log_end = Offset(10)
    led.fetch(FAST, 10, 1)
    led.fetch(SLOW, 9, 1)

    assert led.wants(2) is None

    led.fetch(SLOW, 10, 3)

    assert led.wants(4) == EVERYONE


def test_nobody_joins_below_the_end_that_the_log_had_at_the_election() -> None:
    """Below it the predecessor may have committed what this leader has not heard of."""
    led = Led(LEADER, FAST, elected_at=10)
    led.fetch(FAST, 10, 1)
    led.log_end = Offset(5)
    led.fetch(SLOW, 5, 1)

    assert led.state.needed_to_join == 10
    assert led.paces.caught_up(SLOW, led.log_end, Millis(2))
    assert led.wants(2) is None


@pytest.mark.parametrize("registered", [NEXT_LIFE, BrokerEpoch(6)])
def test_only_the_incarnation_that_is_registered_joins(registered: BrokerEpoch) -> None:
    led = Led(LEADER, FAST)
    led.fetch(FAST, 0, 1)
    led.fetch(SLOW, 0, 1)

    assert led.wants(2, Cluster(EVERYONE, {**LIVES, SLOW: registered})) is None
    assert led.wants(2) == EVERYONE


def test_an_earlier_incarnation_is_not_listened_to() -> None:
    led = Led(LEADER, FAST)
    led.log_end = Offset(10)
    led.fetch(FAST, 10, 1)
    led.fetch(SLOW, 4, 1, NEXT_LIFE)
    led.fetch(SLOW, 10, 2, LIFE)

    assert led.wants(3, Cluster(EVERYONE, {**LIVES, SLOW: NEXT_LIFE})) is None


def test_a_restart_may_have_lost_something() -> None:
    led = Led(LEADER, SLOW)
    led.log_end = Offset(10)
    led.fetch(SLOW, 10, 1)
    led.fetch(SLOW, 6, 2, NEXT_LIFE)
    cluster = Cluster((LEADER, SLOW), {LEADER: LIFE, SLOW: NEXT_LIFE})

    assert led.wants(3, cluster) is None
    assert led.wants(LAG_MS + 2, cluster) == (LEADER,)


def test_who_is_not_registered_leaves_at_once() -> None:
    led = Led(*EVERYONE)
    for node in (FAST, SLOW):
        led.fetch(node, 0, 1)

    assert led.wants(2, Cluster(EVERYONE, {LEADER: LIFE, FAST: LIFE})) == (LEADER, FAST)


def test_who_is_assigned_no_more_leaves() -> None:
    led = Led(*EVERYONE)
    for node in (FAST, SLOW):
        led.fetch(node, 0, 1)

    assert led.wants(2, Cluster((LEADER, SLOW), LIVES)) == (LEADER, SLOW)


def test_who_wants_to_stop_does_not_join_but_may_stay() -> None:
    led = Led(LEADER, FAST)
    for node in (FAST, SLOW):
        led.fetch(node, 0, 1)

    assert led.wants(2, CLUSTER._replace(leaving=(FAST, SLOW))) is None


def test_the_leader_is_always_a_member() -> None:
    led = Led(LEADER, FAST)
    led.fetch(FAST, 0, 1)

    assert led.wants(2, Cluster((FAST,), LIVES)) is None
    assert led.wants(2, Cluster((LEADER,), {})) == (LEADER,)


def test_nothing_is_proposed_while_a_proposal_is_unanswered() -> None:
    led = Led(*EVERYONE)
    led.state.propose((LEADER,))

    assert led.wants(10 * LAG_MS) is None


def test_who_keeps_up_but_never_quite_reaches_the_mark_is_courted() -> None:
    led = Led(LEADER, FAST)
    led.log_end = Offset(10)
    led.fetch(SLOW, 8, 1)
    led.log_end = Offset(20)
    led.fetch(SLOW, 18, 2)

    assert led.paces.candidates(led.state, CLUSTER, led.log_end, Millis(3)) == (SLOW,)
    assert led.paces.candidates(led.state, CLUSTER, led.log_end, Millis(2 * LAG_MS)) == ()
    strangers = Cluster(EVERYONE, {**LIVES, SLOW: NEXT_LIFE})
    assert led.paces.candidates(led.state, strangers, led.log_end, Millis(3)) == ()


def test_who_waits_for_news_has_its_time_from_when_there_are_some() -> None:
    led = Led(*EVERYONE)
    for node in (FAST, SLOW):
        led.fetch(node, 0, 1)
    led.paces.refresh(led.log_end, Millis(100 * LAG_MS))
    led.log_end = Offset(1)

    assert led.wants(101 * LAG_MS) is None
    assert led.wants(101 * LAG_MS + 1) == (LEADER,)


def test_a_copy_that_begins_anew_has_what_it_says_and_not_what_the_last_one_had() -> None:
    led = Led(LEADER, elected_at=10)
    led.fetch(FAST, 10, 1)
    assert led.wants(2) == (LEADER, FAST)

    led.fetch(FAST, 0, 3)
    assert led.paces.end_of(FAST) == 0
    assert led.wants(4) is None
