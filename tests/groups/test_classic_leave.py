"""Leaving a classic group, one or many, and what is left of it."""

import pytest

from tests.groups.coordinator import Coordinator
from waystation.groups.records import ClassicGroupStored
from waystation.model.errors import (
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)


@pytest.fixture
def here() -> Coordinator:
    return Coordinator()


def test_the_others_share_out_anew(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    here.leave((leader.member_id, None))

    assert isinstance(here.heartbeat(follower), RebalanceInProgressError)

    again = here.join(follower.member_id).joined

    assert (again.generation, again.leader) == (3, follower.member_id)


def test_the_last_to_leave_leaves_an_empty_group(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.wait(5)
    here.leave((member.member_id, None))

    assert here.state() == "Empty"
    assert here.log[-1] == ClassicGroupStored(
        "orders-readers", "consumer", 2, None, None, here.now, ()
    )


def test_many_leave_at_once_each_with_its_own_answer(here: Coordinator) -> None:
    first, second, third = here.stable(None, None, None)
    left = here.leave((first.member_id, None), ("stranger", None), (second.member_id, None))

    assert [error and type(error) for _, error in left.members] == [None, UnknownMemberError, None]
    assert [leaving.member_id for leaving, _ in left.members] == [
        first.member_id,
        "stranger",
        second.member_id,
    ]
    assert here.join(third.member_id).joined.leader == third.member_id


def test_who_is_named_twice_leaves_once(here: Coordinator) -> None:
    first, _ = here.stable(None, None)
    left = here.leave((first.member_id, None), (first.member_id, None))

    assert [error and type(error) for _, error in left.members] == [None, UnknownMemberError]


def test_nobody_leaves_a_group_that_is_not_there(here: Coordinator) -> None:
    ((leaving, error),) = here.leave(("stranger", None), group_id="nowhere").members

    assert isinstance(error, UnknownMemberError)
    assert leaving.member_id == "stranger"


def test_if_nobody_left_nothing_happens(here: Coordinator) -> None:
    here.stable(None)
    here.leave(("stranger", None))

    assert here.state() == "Stable"


def test_who_leaves_while_it_waits_is_answered(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    joins = here.join(follower.member_id, protocols=(("range", b"changed"),))
    here.leave((follower.member_id, None))

    assert isinstance(joins.value, UnknownMemberError)
    assert here.join(leader.member_id).joined.generation == 3


def test_who_leaves_while_it_waits_for_the_leader_is_answered(here: Coordinator) -> None:
    here = Coordinator(group_initial_rebalance_delay_ms=10)
    joins = [here.join(), here.join()]
    here.wait(100)
    waits = here.sync(joins[1].joined)
    here.leave((joins[1].joined.member_id, None))

    assert isinstance(waits.value, UnknownMemberError)
    assert here.state() == "PreparingRebalance"


def test_the_last_one_to_be_waited_for_may_leave_instead(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    again = here.join(leader.member_id)
    here.leave((follower.member_id, None))

    assert again.joined.generation == 3


def test_a_told_id_may_be_given_back(here: Coordinator) -> None:
    refusal = here.join_once().value
    assert isinstance(refusal, MemberIdRequiredError)
    ((_, error),) = here.leave((refusal.member_id, None)).members

    assert error is None
    assert here.state() == "Dead"
    assert here.machine.next_deadline() is not None  # the next look for old offsets
    assert list(here.machine.list()) == []
