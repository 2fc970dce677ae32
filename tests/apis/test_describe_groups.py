"""DescribeGroups: a group and its members, as far as they are known."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from tests.support.group_members import read_assignment, written_subscription
from waystation.messages.describe_groups import NOT_ASKED, DescribeGroupsRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.DESCRIBE_GROUPS)
OPERATIONS_FROM, INSTANCES_FROM, NOT_FOUND_FROM = 3, 4, 6


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stable_group_is_described_in_every_version(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    seat = ann.sit_alone(group, topic, instance_id="i-1")
    told = ann.describe(group, version=version)

    assert (told.error_code, told.error_message, told.group_id) == (0, None, group)
    assert (told.group_state, told.protocol_type, told.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    assert told.authorized_operations == NOT_ASKED
    (member,) = told.members
    assert member.member_id == seat.member_id
    assert member.group_instance_id == ("i-1" if version >= INSTANCES_FROM else None)
    assert (member.client_id, member.client_host) == ("kit", "/127.0.0.1")
    assert member.member_metadata == written_subscription([topic])
    assert read_assignment(member.member_assignment) == [(topic, 0)]


def test_what_is_not_decided_yet_is_not_told(ann: Grouping, bob: Grouping, group: str) -> None:
    first = ann.sit_alone(group, "t")
    bob.interrupt(group)
    told = ann.describe(group)

    assert (told.group_state, told.protocol_type) == ("PreparingRebalance", "consumer")
    assert told.protocol_data == ""
    assert len(told.members) == 2
    assert {one.member_assignment for one in told.members} == {b""}
    ann.join(group, first.member_id)
    bob.end_join()
    assert ann.describe(group).group_state == "CompletingRebalance"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_is_not_there_is_dead(ann: Grouping, group: str, version: int) -> None:
    told = ann.describe(group, version=version, include_authorized_operations=True)

    assert (told.group_id, told.group_state, told.members) == (group, "Dead", [])
    if version >= NOT_FOUND_FROM:
        assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group in told.error_message
        assert told.authorized_operations == NOT_ASKED
    else:
        assert (told.error_code, told.error_message) == (0, None)


def test_a_group_of_offsets_alone_is_empty(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.commit(group, topic, 1)
    told = ann.describe(group)

    assert (told.error_code, told.group_state, told.protocol_type) == (0, "Empty", "")


def test_many_are_described_in_the_order_asked(ann: Grouping, group: str) -> None:
    ann.sit_alone(group)
    asked = ["absent-1", group, "absent-2", group]
    told = ann.ask(DescribeGroupsRequest(groups=asked), 5).groups

    assert [(one.group_id, one.group_state) for one in told] == [
        ("absent-1", "Dead"), (group, "Stable"), ("absent-2", "Dead"), (group, "Stable"),
    ]  # fmt: skip
    assert ann.ask(DescribeGroupsRequest(groups=[]), 5).groups == []


@pytest.mark.parametrize("version", range(OPERATIONS_FROM, VERSIONS[-1] + 1))
def test_operations_are_told_who_asks(ann: Grouping, group: str, version: int) -> None:
    ann.sit_alone(group)
    told = ann.describe(group, version=version, include_authorized_operations=True)

    assert told.authorized_operations == 0b1101_0100_1000
