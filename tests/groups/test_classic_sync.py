"""From a new generation to a stable group: syncs, heartbeats, and whoever stays silent."""

import pytest

from tests.groups.coordinator import GROUP, REBALANCE_MS, SESSION_MS, Coordinator, subscription
from waystation.groups.commands import Joined
from waystation.groups.records import ClassicGroupStored
from waystation.model.errors import (
    IllegalGenerationError,
    InconsistentProtocolError,
    RebalanceInProgressError,
    UnknownMemberError,
)


@pytest.fixture
def here() -> Coordinator:
    return Coordinator(group_initial_rebalance_delay_ms=100)


def pair(here: Coordinator) -> tuple[Joined, Joined]:
    """Two members of a generation that waits for its leader; the first one leads."""
    joins = [here.join(), here.join()]
    here.wait(1_000)
    leader, follower = (join.joined for join in joins)
    return leader, follower


def test_followers_wait_for_the_leader(here: Coordinator) -> None:
    leader, follower = pair(here)
    waits = here.sync(follower)

    assert not waits.is_there
    assert here.state() == "CompletingRebalance"

    own = here.sync(leader, {leader.member_id: b"0-4", follower.member_id: b"5-9"})

    assert (own.synced.assignment, waits.synced.assignment) == (b"0-4", b"5-9")
    assert (own.synced.protocol_type, own.synced.protocol) == ("consumer", "range")
    assert here.state() == "Stable"


def test_what_the_leader_shares_out_is_remembered_before_anyone_hears_of_it(
    here: Coordinator,
) -> None:
    leader, follower = pair(here)
    told = here.log.copy()
    here.sync(follower)

    assert here.log == told == []

    here.sync(leader, {follower.member_id: b"all"})

    (stored,) = here.log
    assert isinstance(stored, ClassicGroupStored)
    assert (stored.generation, stored.protocol, stored.leader) == (1, "range", leader.member_id)
    assert [(one.member_id, one.assignment) for one in stored.members] == [
        (leader.member_id, b""),
        (follower.member_id, b"all"),
    ]
    assert {one.subscription for one in stored.members} == {subscription("orders")}


def test_a_follower_that_is_late_gets_its_assignment_at_once(here: Coordinator) -> None:
    leader, follower = pair(here)
    here.sync(leader, {follower.member_id: b"5-9"})

    assert here.sync(follower).synced.assignment == b"5-9"
    assert here.sync(follower).synced.assignment == b"5-9"


def test_whom_the_leader_forgot_gets_nothing(here: Coordinator) -> None:
    leader, follower = pair(here)
    here.sync(leader, {leader.member_id: b"all", "stranger": b"?"})

    assert here.sync(follower).synced.assignment == b""
    assert len(here.describe().members) == 2


def test_a_sync_of_another_generation_is_refused(here: Coordinator) -> None:
    leader, _ = pair(here)

    for generation in (leader.generation - 1, leader.generation + 1, -1):
        answer = here.sync(leader, generation=generation).value
        assert isinstance(answer, IllegalGenerationError)
    assert here.state() == "CompletingRebalance"


@pytest.mark.parametrize("wrong", [{"protocol": "sticky"}, {"protocol_type": "connect"}])
def test_a_sync_of_another_protocol_is_refused(here: Coordinator, wrong: dict[str, object]) -> None:
    leader, _ = pair(here)

    assert isinstance(here.sync(leader, **wrong).value, InconsistentProtocolError)


def test_a_sync_of_an_old_client_names_no_protocol(here: Coordinator) -> None:
    leader, _ = pair(here)

    assert here.sync(leader, protocol=None, protocol_type=None).synced.protocol == "range"


def test_a_sync_during_a_rebalance_is_told_to_join(here: Coordinator) -> None:
    leader, _ = pair(here)
    here.sync(leader)
    here.join()

    assert isinstance(here.sync(leader).value, RebalanceInProgressError)


def test_syncs_of_strangers_are_refused(here: Coordinator) -> None:
    leader, _ = pair(here)

    assert isinstance(here.sync(leader, member_id="stranger").value, UnknownMemberError)
    assert isinstance(here.sync(leader, group_id="nowhere").value, UnknownMemberError)
    here.leave(*((one.member_id, None) for one in here.describe().members))
    assert here.state() == "Empty"
    assert isinstance(here.sync(leader).value, UnknownMemberError)


def test_those_who_wait_for_the_leader_are_told_of_a_new_rebalance(here: Coordinator) -> None:
    _, follower = pair(here)
    waits = here.sync(follower)
    here.join()

    assert isinstance(waits.value, RebalanceInProgressError)
    assert here.state() == "PreparingRebalance"


def test_a_sync_that_is_repeated_replaces_the_one_that_waits(here: Coordinator) -> None:
    leader, follower = pair(here)
    before, after = here.sync(follower), here.sync(follower)

    assert isinstance(before.value, RebalanceInProgressError)

    here.sync(leader, {follower.member_id: b"x"})

    assert after.synced.assignment == b"x"


# --- time-outs ------------------------------------------------------------------------------------


def alive(here: Coordinator, members: list[Joined], until_ms: int) -> list[object]:
    """Heartbeats of all for a while; the last answers."""
    answers: list[object] = []
    for _ in range(until_ms // 5_000):
        here.wait(5_000)
        answers = [here.heartbeat(one) for one in members]
    return answers


def test_a_leader_that_never_syncs_is_removed(here: Coordinator) -> None:
    leader, follower = pair(here)
    waits = here.sync(follower)
    alive(here, [leader], REBALANCE_MS - 5_000)
    assert not waits.is_there

    here.wait(5_000)

    assert isinstance(waits.value, RebalanceInProgressError)
    assert here.join(follower.member_id).joined.leader == follower.member_id
    assert isinstance(here.heartbeat(leader), UnknownMemberError)


def test_a_follower_that_never_syncs_is_removed_from_a_stable_group(here: Coordinator) -> None:
    leader, follower = pair(here)
    here.sync(leader)
    answers = alive(here, [leader, follower], REBALANCE_MS)

    assert isinstance(answers[0], RebalanceInProgressError)
    assert isinstance(answers[1], UnknownMemberError)


def test_when_all_have_synced_nobody_is_removed(here: Coordinator) -> None:
    leader, follower = pair(here)
    here.sync(follower)
    here.sync(leader)

    assert alive(here, [leader, follower], 3 * REBALANCE_MS) == [None, None]


def test_a_silent_member_is_removed_when_its_session_ends(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    here.wait(SESSION_MS - 1)
    assert here.heartbeat(leader) is None

    here.wait(1)

    assert isinstance(here.heartbeat(leader), RebalanceInProgressError)
    assert isinstance(here.heartbeat(follower), UnknownMemberError)


def test_when_all_are_silent_the_group_is_empty(here: Coordinator) -> None:
    here.stable(None, None)
    here.wait(SESSION_MS)

    assert here.state() == "Empty"
    (*_, stored) = here.log
    assert isinstance(stored, ClassicGroupStored)
    assert (stored.generation, stored.members, stored.leader) == (2, (), None)


def test_who_waits_need_not_speak(here: Coordinator) -> None:
    leader, follower = pair(here)
    waits = here.sync(follower)
    alive(here, [leader], 3 * SESSION_MS)

    assert not waits.is_there
    here.sync(leader, {follower.member_id: b"x"})
    assert waits.synced.assignment == b"x"

    here.wait(SESSION_MS - 1)
    assert here.heartbeat(follower) is None


def test_a_rebalance_outlives_the_sessions_of_those_who_joined(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    again = here.join(leader.member_id)
    alive(here, [follower], 3 * SESSION_MS)
    here.join(follower.member_id)

    assert len(again.joined.members) == 2


# --- heartbeats -----------------------------------------------------------------------------------


def test_heartbeats_are_answered_by_state(here: Coordinator) -> None:
    leader, _ = pair(here)

    assert here.heartbeat(leader) is None  # CompletingRebalance

    here.sync(leader)

    assert here.heartbeat(leader) is None  # Stable

    here.join()

    assert isinstance(here.heartbeat(leader), RebalanceInProgressError)

    here.leave((leader.member_id, None))

    assert isinstance(here.heartbeat(leader), UnknownMemberError)


def test_heartbeats_of_another_generation_or_group_are_refused(here: Coordinator) -> None:
    leader, _ = pair(here)

    assert isinstance(here.heartbeat(leader, generation=7), IllegalGenerationError)
    assert isinstance(here.heartbeat(leader, group_id="nowhere"), UnknownMemberError)
    assert here.describe(GROUP).state == "CompletingRebalance"
