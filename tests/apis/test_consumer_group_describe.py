"""ConsumerGroupDescribe: a server-side group, and what each member has and will have."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from tests.support.group_members import read_assignment
from waystation.messages.consumer_group_describe import (
    CONSUMER_MEMBER,
    NOT_ASKED,
    ConsumerGroupDescribeRequest,
)
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.CONSUMER_GROUP_DESCRIBE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_is_described_in_every_version(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic, partitions=2)
    joined = ann.beat_first(group, "m-1", topic, instance_id="i-1", rack_id="r-1")
    told = ann.describe_server_side(group, version=version)

    assert (told.error_code, told.error_message, told.group_id) == (0, None, group)
    assert told.group_epoch == told.assignment_epoch == joined.member_epoch
    assert told.assignor_name == "uniform"
    assert told.authorized_operations == NOT_ASKED
    (member,) = told.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m-1", "i-1", "r-1")
    assert member.member_epoch == joined.member_epoch
    assert (member.client_id, member.client_host) == ("kit", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex or None) == (
        [topic], None,
    )  # fmt: skip
    for part in (member.assignment, member.target_assignment):
        (one,) = part.topic_partitions
        assert (one.topic_id, one.topic_name) == (ann.topic_id(topic), topic)
        assert one.partitions == [0, 1]
    assert member.member_type == (CONSUMER_MEMBER if version >= 1 else -1)


def test_what_is_on_its_way_is_in_the_target(
    ann: Grouping, bob: Grouping, group: str, topic: str
) -> None:
    ann.create(topic, partitions=2)
    ann.beat_first(group, "m-1", topic)
    bob.beat_first(group, "m-2", topic)
    told = ann.describe_server_side(group)

    assert told.group_state == "Reconciling"
    by_id = {one.member_id: one for one in told.members}
    assert by_id["m-2"].assignment.topic_partitions == []
    (coming,) = by_id["m-2"].target_assignment.topic_partitions
    assert len(coming.partitions) == 1


def test_what_is_no_such_group_is_not_found(ann: Grouping, group: str) -> None:
    ann.sit_alone(group)
    asked = ConsumerGroupDescribeRequest(
        group_ids=["absent", group, ""], include_authorized_operations=True
    )
    absent, classic, nameless = ann.ask(asked, 1).groups

    for told, group_id in ((absent, "absent"), (classic, group)):
        assert (told.error_code, told.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        assert told.error_message
        assert told.authorized_operations == NOT_ASKED
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_operations_are_told_who_asks(ann: Grouping, group: str, topic: str) -> None:
    ann.create(topic)
    ann.beat_first(group, "m-1", topic)
    told = ann.describe_server_side(group, include_authorized_operations=True)

    assert told.authorized_operations == 0b1101_0100_1000


def test_tools_that_know_only_classic_groups_see_it_too(
    ann: Grouping, group: str, topic: str
) -> None:
    ann.create(topic)
    ann.beat_first(group, "m-1", topic)
    told = ann.describe(group)

    assert (told.error_code, told.group_state, told.protocol_type) == (0, "Stable", "consumer")
    (member,) = told.members
    assert read_assignment(member.member_assignment) == [(topic, 0)]
