"""LeaveGroup: those who go are gone at once, and the others share out what they had."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.LEAVE_GROUP)
SEVERAL_FROM = 3


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_that_left_is_gone(ann: Grouping, group: str, version: int) -> None:
    seat = ann.sit_alone(group)
    told = ann.leave(group, (seat.member_id, None), version=version)

    assert told.error_code == 0
    gone = [(one.member_id, one.group_instance_id, one.error_code) for one in told.members]
    assert gone == ([(seat.member_id, None, 0)] if version >= SEVERAL_FROM else [])
    assert ann.heartbeat(seat) == ErrorCode.UNKNOWN_MEMBER_ID
    assert ann.describe(group).group_state == "Empty"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("somewhere", [True, False], ids=["a group", "no group"])
def test_who_was_not_there_is_unknown(
    ann: Grouping, group: str, version: int, somewhere: bool
) -> None:
    seat = ann.sit_alone(group)
    told = ann.leave(group if somewhere else "absent", ("ghost", None), version=version)

    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    if version >= SEVERAL_FROM:
        assert told.error_code == 0
        (one,) = told.members
        assert (one.member_id, one.group_instance_id, one.error_code) == ("ghost", None, unknown)
    else:
        assert told.error_code == unknown
    assert ann.heartbeat(seat) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_group_id_is_refused(ann: Grouping, version: int) -> None:
    told = ann.leave("", ("ghost", None), version=version)

    assert (told.error_code, told.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_several_leave_at_once_each_with_its_own_outcome(
    ann: Grouping, bob: Grouping, group: str
) -> None:
    first = ann.sit_alone(group, instance_id="i-1")
    bob.interrupt(group)
    ann.join(group, first.member_id, instance_id="i-1")
    second = bob.end_join()
    told = ann.leave(group, ("", "i-1"), (second.member_id, None), ("ghost", None), ("", "i-9"))

    assert told.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in told.members] == [
        ("", "i-1", 0),
        (second.member_id, None, 0),
        ("ghost", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i-9", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert ann.describe(group).group_state == "Empty"


def test_a_static_member_is_not_removed_under_another_ones_id(ann: Grouping, group: str) -> None:
    seat = ann.sit_alone(group, instance_id="i-1")
    (told,) = ann.leave(group, ("ghost", "i-1")).members

    assert told.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert ann.heartbeat(seat, instance_id="i-1") == 0


def test_those_who_stay_join_again(ann: Grouping, bob: Grouping, group: str) -> None:
    first = ann.sit_alone(group)
    bob.interrupt(group)
    ann.join(group, first.member_id)
    second = bob.end_join()
    seat = first._replace(generation=2)
    ann.sync(seat, {second.member_id: b"bob's"})
    bob.leave(group, (second.member_id, None))

    assert ann.heartbeat(seat) == ErrorCode.REBALANCE_IN_PROGRESS
    again = ann.join(group, first.member_id)
    assert (again.generation_id, len(again.members)) == (3, 1)
