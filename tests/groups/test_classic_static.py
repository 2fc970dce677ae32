"""Static members: they come back under a new member id and keep what they had."""

import pytest

from tests.groups.coordinator import REBALANCE_MS, SESSION_MS, Coordinator, subscription
from waystation.model.errors import (
    FencedInstanceIdError,
    RebalanceInProgressError,
    UnknownMemberError,
)


@pytest.fixture
def here() -> Coordinator:
    return Coordinator(group_initial_rebalance_delay_ms=100)


@pytest.fixture
def fast() -> Coordinator:
    return Coordinator()


def test_a_static_member_needs_no_second_join(fast: Coordinator) -> None:
    joined = fast.join_once(instance_id="a").joined

    assert joined.member_id.startswith("a-")
    assert joined.members[0].instance_id == "a"


def test_a_restarted_follower_keeps_its_assignment_without_a_rebalance(fast: Coordinator) -> None:
    leader, follower = fast.stable("a", "b")
    back = fast.join(instance_id="b").joined

    assert back.member_id != follower.member_id
    assert (back.generation, back.leader) == (leader.generation, leader.member_id)
    assert fast.state() == "Stable"
    assert fast.sync(back, instance_id="b").synced.assignment == follower.member_id.encode()


def test_the_member_that_was_replaced_is_fenced(fast: Coordinator) -> None:
    _, follower = fast.stable("a", "b")
    fast.join(instance_id="b")

    assert isinstance(fast.heartbeat(follower, instance_id="b"), FencedInstanceIdError)
    assert isinstance(fast.sync(follower, instance_id="b").value, FencedInstanceIdError)
    assert isinstance(fast.join(follower.member_id, instance_id="b").value, FencedInstanceIdError)
    answer = fast.commit({("orders", 0): 1}, follower.generation, follower.member_id, "b")
    assert isinstance(answer, FencedInstanceIdError)
    ((_, error),) = fast.leave((follower.member_id, "b")).members
    assert isinstance(error, FencedInstanceIdError)
    assert isinstance(fast.heartbeat(follower), UnknownMemberError)


def test_a_new_leader_id_is_remembered(fast: Coordinator) -> None:
    fast.stable("a", "b")
    back = fast.join(instance_id="a", may_skip_assignment=True).joined
    fast.restart()

    assert fast.heartbeat(back, instance_id="a") is None
    assert fast.sync(back, instance_id="a").synced.assignment


def test_a_returning_leader_is_told_not_to_assign(fast: Coordinator) -> None:
    fast.stable("a", "b")
    back = fast.join(instance_id="a", may_skip_assignment=True).joined

    assert back.skip_assignment
    assert back.leader == back.member_id
    assert [member.instance_id for member in back.members] == ["a", "b"]


def test_a_returning_follower_is_not_asked_to_skip_anything(fast: Coordinator) -> None:
    leader, _ = fast.stable("a", "b")
    back = fast.join(instance_id="b", may_skip_assignment=True).joined

    assert (back.skip_assignment, back.members, back.leader) == (False, (), leader.member_id)


def test_a_returning_leader_that_cannot_skip_is_told_that_another_leads(fast: Coordinator) -> None:
    leader, _ = fast.stable("a", "b")
    back = fast.join(instance_id="a").joined

    assert not back.skip_assignment
    assert back.leader == leader.member_id != back.member_id
    assert back.members == ()


def test_the_leader_that_came_back_still_leads_the_next_rebalance(fast: Coordinator) -> None:
    _, follower = fast.stable("a", "b")
    back = fast.join(instance_id="a", may_skip_assignment=True).joined
    again = fast.join(back.member_id, instance_id="a")
    fast.join(follower.member_id, instance_id="b")

    assert again.joined.leader == back.member_id
    assert len(again.joined.members) == 2


def test_another_subscription_causes_a_rebalance(fast: Coordinator) -> None:
    fast.stable("a", "b")
    back = fast.join(instance_id="b", protocols=(("range", subscription("bills")),))

    assert not back.is_there
    assert fast.state() == "PreparingRebalance"


def test_what_a_member_owned_is_no_other_subscription(fast: Coordinator) -> None:
    owned = subscription("orders", owned=(("orders", (1, 2)),), generation=4)
    fast.stable("a", "b", protocols=(("cooperative-sticky", owned),))
    back = fast.join(instance_id="b", protocols=(("cooperative-sticky", subscription("orders")),))

    assert back.joined.generation == 2


def test_another_common_protocol_causes_a_rebalance(here: Coordinator) -> None:
    both = (("range", subscription("orders")), ("sticky", subscription("orders")))
    joins = [here.join(instance_id=one, protocols=both) for one in "ab"]
    here.wait(1_000)
    here.sync(joins[1].joined, instance_id="b")
    here.sync(joins[0].joined, instance_id="a")
    back = here.join(instance_id="a", protocols=both[1:])

    assert not back.is_there

    again = here.join(joins[1].joined.member_id, instance_id="b", protocols=both)

    assert again.joined.protocol == back.joined.protocol == "sticky"


def test_who_waits_under_the_old_id_is_fenced(fast: Coordinator) -> None:
    leader, follower = fast.stable("a", "b")
    old = fast.join(leader.member_id, instance_id="a")
    new = fast.join(instance_id="a")

    assert isinstance(old.value, FencedInstanceIdError)
    assert not new.is_there

    fast.join(follower.member_id, instance_id="b")

    assert new.joined.leader == new.joined.member_id


def test_a_member_that_comes_back_while_the_leader_shares_out_begins_a_rebalance(
    here: Coordinator,
) -> None:
    joins = [here.join(instance_id=one) for one in "abc"]
    here.wait(1_000)
    _, second, third = (join.joined for join in joins)
    waits_b, waits_c = here.sync(second, instance_id="b"), here.sync(third, instance_id="c")
    here.join(instance_id="c")

    assert isinstance(waits_b.value, RebalanceInProgressError)
    assert isinstance(waits_c.value, FencedInstanceIdError)
    assert here.state() == "PreparingRebalance"


def test_a_static_member_that_is_away_keeps_its_place_in_a_rebalance(fast: Coordinator) -> None:
    leader, away = fast.stable("a", "b", session_timeout_ms=600_000)
    again = fast.join(leader.member_id, instance_id="a", session_timeout_ms=600_000)
    fast.wait(REBALANCE_MS)

    assert [one.member_id for one in again.joined.members] == [leader.member_id, away.member_id]


def test_when_all_static_members_are_away_the_group_waits_for_their_sessions(
    fast: Coordinator,
) -> None:
    fast.stable("a", "b", session_timeout_ms=600_000)
    (first, second) = fast.describe().members
    fast.leave((second.member_id, "b"))
    fast.wait(REBALANCE_MS * 2)

    assert fast.state() == "PreparingRebalance"

    fast.wait(600_000)

    assert fast.state() == "Empty"
    assert first.instance_id == "a"


def test_a_static_member_that_came_back_while_new_is_not_expelled(here: Coordinator) -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=50_000)
    here.join(instance_id="a")
    back = here.join(instance_id="a")
    here.wait(SESSION_MS + 1)

    assert not back.is_there

    here.wait(50_000)

    assert back.joined.generation == 1


def test_leaving_by_instance_id_is_for_administrators(fast: Coordinator) -> None:
    fast.stable("a", "b")
    left = fast.leave(("", "b"), ("", "nobody"), ("", None)).members

    assert [error and type(error) for _, error in left] == [
        None,
        UnknownMemberError,
        UnknownMemberError,
    ]
    assert [member.instance_id for member in fast.describe().members] == ["a"]


def test_a_silent_static_member_is_removed_like_any_other(fast: Coordinator) -> None:
    fast.stable("a")
    fast.wait(SESSION_MS)

    assert fast.state() == "Empty"
    assert fast.join(instance_id="a").joined.generation == 3
