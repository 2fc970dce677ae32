"""Joining a classic group: ids, protocols, sizes, leaders, and when a generation begins."""

import pytest

from tests.groups.coordinator import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Coordinator,
    a_join,
    subscription,
)
from waystation.groups.rebalances import NEW_MEMBER_TIMEOUT_MS
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupFullError,
    InconsistentProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)


@pytest.fixture
def here() -> Coordinator:
    return Coordinator()


# --- ids ----------------------------------------------------------------------------------------


def test_a_new_member_is_told_its_id_first(here: Coordinator) -> None:
    refusal = here.join_once(client_id="app").value

    assert isinstance(refusal, MemberIdRequiredError)
    assert refusal.member_id.startswith("app-")
    assert here.join_once(refusal.member_id).joined.member_id == refusal.member_id


def test_an_old_client_gets_in_without_being_told(here: Coordinator) -> None:
    joined = here.join_once(requires_member_id=False).joined

    assert joined.leader == joined.member_id
    assert joined.generation == 1


def test_an_id_that_was_told_and_not_used_expires(here: Coordinator) -> None:
    refusal = here.join_once().value
    assert isinstance(refusal, MemberIdRequiredError)
    here.wait(SESSION_MS)

    assert isinstance(here.join_once(refusal.member_id).value, UnknownMemberError)
    assert here.state() == "Dead"
    assert here.log == []


def test_a_member_id_nobody_was_told_is_unknown(here: Coordinator) -> None:
    assert isinstance(here.join_once("stranger").value, UnknownMemberError)

    here.stable(None)

    assert isinstance(here.join_once("stranger").value, UnknownMemberError)


def test_a_rebalance_waits_for_those_who_were_told_an_id(here: Coordinator) -> None:
    (first,) = here.stable(None)
    refusal = here.join_once().value
    assert isinstance(refusal, MemberIdRequiredError)
    again = here.join(first.member_id)

    assert not again.is_there

    second = here.join_once(refusal.member_id)

    assert again.joined.generation == second.joined.generation == 2
    assert len(again.joined.members) == 2


def test_a_told_id_that_expires_no_longer_holds_up_a_rebalance(here: Coordinator) -> None:
    (first,) = here.stable(None)
    here.join_once()
    again = here.join(first.member_id)
    here.wait(SESSION_MS)

    assert again.joined.generation == 2


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_out_of_bounds_is_refused(here: Coordinator, timeout_ms: int) -> None:
    assert isinstance(
        here.join_once(session_timeout_ms=timeout_ms).value, InvalidSessionTimeoutError
    )
    assert here.state() == "Dead"


# --- the first generation ---------------------------------------------------------------------


def test_an_empty_group_waits_for_more_members() -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=3_000)
    first = here.join()
    here.wait(2_999)

    assert not first.is_there

    here.wait(1)

    assert first.joined.generation == 1


def test_the_wait_is_extended_while_members_arrive() -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=3_000)
    joins = [here.join()]
    for _ in range(4):
        here.wait(2_000)
        joins.append(here.join())
    here.wait(3_000)

    assert not joins[0].is_there

    here.wait(3_000)

    assert len(joins[0].joined.members) == 5
    assert {join.joined.generation for join in joins} == {1}


def test_the_extended_wait_ends_with_the_rebalance_timeout() -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=3_000)
    first = here.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        here.wait(1_000)
        here.join(rebalance_timeout_ms=7_000)

    here.wait(999)
    assert not first.is_there

    here.wait(1)
    assert len(first.joined.members) == 7


def test_members_who_leave_before_the_first_generation_leave_an_empty_group() -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=3_000)
    first = here.join_once(requires_member_id=False)
    member_id = here.describe().members[0].member_id
    here.leave((member_id, None))

    assert isinstance(first.value, UnknownMemberError)
    assert here.state() == "Empty"


def test_a_new_member_does_not_wait_for_ever() -> None:
    here = Coordinator()
    (first,) = here.stable(None, rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    second = here.join(rebalance_timeout_ms=10 * NEW_MEMBER_TIMEOUT_MS)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000):
        assert not second.is_there
        assert isinstance(here.heartbeat(first), RebalanceInProgressError)
        here.wait(5_000)

    assert isinstance(second.value, UnknownMemberError)


# --- protocols ----------------------------------------------------------------------------------


def test_the_protocol_with_most_votes_among_common_ones_is_chosen(here: Coordinator) -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=100)
    a, b, c = b"a", b"b", b"c"
    joins = [
        here.join(protocols=(("range", a), ("sticky", a), ("own", a))),
        here.join(protocols=(("sticky", b), ("range", b), ("own", b))),
        here.join(protocols=(("own", c), ("sticky", c), ("range", c))),
        here.join(protocols=(("sticky", c), ("range", c))),
    ]
    here.wait(1_000)

    assert {join.joined.protocol for join in joins} == {"sticky"}
    assert [member.subscription for member in joins[0].joined.members] == [a, b, c, c]


def test_only_a_protocol_of_all_members_may_be_chosen() -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=100)
    here.join(protocols=(("range", b""), ("sticky", b"")))
    here.join(protocols=(("range", b""), ("sticky", b"")))
    last = here.join(protocols=(("sticky", b""),))
    here.wait(1_000)

    assert last.joined.protocol == "sticky"


@pytest.mark.parametrize(
    "foreign",
    [
        {"protocols": (("own", b""),)},
        {"protocol_type": "connect"},
        {"protocols": ()},
    ],
)
def test_a_member_that_shares_no_protocol_is_refused(
    here: Coordinator, foreign: dict[str, object]
) -> None:
    here.stable(None)

    assert isinstance(here.join_once(**foreign).value, InconsistentProtocolError)
    assert here.state() == "Stable"


@pytest.mark.parametrize("foreign", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_needs_a_type_and_a_protocol(
    here: Coordinator, foreign: dict[str, object]
) -> None:
    assert isinstance(here.join_once(**foreign).value, InconsistentProtocolError)
    assert here.state() == "Dead"


def test_an_empty_group_may_become_one_of_another_type(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.leave((member.member_id, None))
    here.stable(None, protocol_type="connect", protocols=(("v1", b""),))

    assert here.describe().protocol_type == "connect"


def test_a_member_may_not_drop_the_only_common_protocol(here: Coordinator) -> None:
    first, _ = here.stable(None, None)

    refusal = here.join(first.member_id, protocols=(("own", b""),)).value

    assert isinstance(refusal, InconsistentProtocolError)


# --- joining again --------------------------------------------------------------------------------


def test_a_follower_that_joins_a_stable_group_unchanged_is_answered_at_once(
    here: Coordinator,
) -> None:
    _, follower = here.stable(None, None)

    assert here.join(follower.member_id).joined == follower
    assert here.state() == "Stable"


def test_a_leader_that_joins_a_stable_group_again_wants_a_rebalance(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    again = here.join(leader.member_id)

    assert not again.is_there
    assert isinstance(here.heartbeat(follower), RebalanceInProgressError)

    here.join(follower.member_id)

    assert again.joined.generation == leader.generation + 1


def test_a_follower_with_another_subscription_causes_a_rebalance(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    changed = here.join(follower.member_id, protocols=(("range", subscription("orders", "bills")),))

    assert not changed.is_there

    again = here.join(leader.member_id)

    assert [member.subscription for member in again.joined.members] == [
        subscription("orders"),
        subscription("orders", "bills"),
    ]


def test_who_lost_the_answer_to_its_join_is_told_again(here: Coordinator) -> None:
    here.stable(None)
    (first,) = here.describe().members
    second = here.join()
    first_again = here.join(first.member_id)

    assert here.state() == "CompletingRebalance"
    assert here.join(first.member_id).joined == first_again.joined
    assert here.join(second.joined.member_id).joined == second.joined


def test_a_changed_subscription_while_the_leader_shares_out_begins_anew(here: Coordinator) -> None:
    leader = here.join().joined
    changed = here.join(leader.member_id, protocols=(("range", subscription("bills")),))

    assert changed.joined.generation == leader.generation + 1


def test_a_join_that_is_repeated_replaces_the_one_that_waits(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    before = here.join(leader.member_id)
    after = here.join(leader.member_id)

    assert isinstance(before.value, RebalanceInProgressError)

    here.join(follower.member_id)

    assert after.joined.generation == 2 + 1


def test_members_that_do_not_join_again_in_time_are_removed(here: Coordinator) -> None:
    leader, follower = here.stable(None, None, session_timeout_ms=600_000)
    again = here.join(follower.member_id, protocols=(("range", subscription("bills")),))
    here.wait(REBALANCE_MS - 1)
    assert not again.is_there

    here.wait(1)

    assert again.joined.leader == follower.member_id
    assert len(again.joined.members) == 1
    assert isinstance(here.heartbeat(leader), UnknownMemberError)


def test_the_greatest_rebalance_timeout_of_all_members_counts(here: Coordinator) -> None:
    leader = here.join(session_timeout_ms=600_000, rebalance_timeout_ms=10_000).joined
    here.sync(leader)
    second = here.join(session_timeout_ms=600_000, rebalance_timeout_ms=30_000)
    here.wait(29_999)

    assert not second.is_there

    here.wait(1)

    assert second.joined.leader == second.joined.member_id


def test_without_a_rebalance_timeout_the_sessions_counts(here: Coordinator) -> None:
    here.stable(None, rebalance_timeout_ms=-1)
    second = here.join(rebalance_timeout_ms=-1)
    here.wait(SESSION_MS)

    assert len(second.joined.members) == 1


def test_when_the_leader_is_late_another_member_leads(here: Coordinator) -> None:
    leader, follower, third = here.stable(None, None, None)
    joins = [here.join(one.member_id, protocols=(("range", b""),)) for one in (follower, third)]
    here.leave((leader.member_id, None))

    assert {join.joined.leader for join in joins} == {follower.member_id}
    assert joins[1].joined.members == ()


# --- sizes ----------------------------------------------------------------------------------------


def test_a_full_group_takes_no_one_else() -> None:
    here = Coordinator(group_max_size=2)
    first, _ = here.stable(None, None)

    assert isinstance(here.join_once().value, GroupFullError)
    assert here.state() == "Stable"
    assert here.heartbeat(first) is None


def test_a_full_group_takes_its_own_members_again() -> None:
    here = Coordinator(group_max_size=2)
    first, second = here.stable(None, None)
    again = here.join(first.member_id)
    here.join(second.member_id)

    assert len(again.joined.members) == 2


def test_of_a_group_that_is_too_large_the_last_to_join_again_are_removed() -> None:
    here = Coordinator()
    members = here.stable(None, None, None)
    here.settings = Coordinator(group_max_size=2).settings
    here.restart()

    assert here.state() == "PreparingRebalance"

    joins = [here.join(one.member_id) for one in members]

    assert [len(join.joined.members) for join in joins[:2]] == [2, 0]
    assert isinstance(joins[2].value, GroupFullError)


# --- static ids ------------------------------------------------------------------------------


def test_a_member_may_not_join_under_the_instance_id_of_another(here: Coordinator) -> None:
    first, second = here.stable("a", "b")

    assert isinstance(here.join(first.member_id, instance_id="b").value, FencedInstanceIdError)
    assert isinstance(here.join(second.member_id, instance_id="c").value, UnknownMemberError)


def test_a_told_id_is_for_dynamic_members_only(here: Coordinator) -> None:
    refusal = here.join_once().value
    assert isinstance(refusal, MemberIdRequiredError)

    answer = here.join_once(refusal.member_id, instance_id="a").value

    assert isinstance(answer, UnknownMemberError)


def test_groups_do_not_touch_each_other(here: Coordinator) -> None:
    here.stable(None)
    here.stable(None, group_id="others")
    here.join(group_id="others")

    assert (here.state(), here.state("others")) == ("Stable", "PreparingRebalance")
    assert a_join().group_id == GROUP
