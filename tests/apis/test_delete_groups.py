"""DeleteGroups: a group without members goes, with all its offsets."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_an_empty_group_goes_with_its_offsets(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    seat = ann.sit_alone(group)
    ann.commit(group, topic, 5, seat=seat)
    ann.leave(group, (seat.member_id, None))

    assert ann.delete_groups(group, version=version) == [(group, 0)]
    assert ann.committed(group, topic).committed_offset == -1
    assert ann.describe(group).group_state == "Dead"
    assert group not in ann.listed()


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_each_group_has_its_own_outcome(
    ann: Grouping, group: str, topic: str, version: int
) -> None:
    ann.create(topic)
    live, idle = f"{group}-live", f"{group}-idle"
    seat = ann.sit_alone(live)
    ann.commit(idle, topic, 1)

    assert ann.delete_groups("absent", live, idle, idle, version=version) == [
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        (live, ErrorCode.NON_EMPTY_GROUP),
        (idle, 0),
    ]
    assert ann.heartbeat(seat) == 0
    assert ann.delete_groups(version=version) == []


def test_a_group_of_the_server_side_protocol_goes_too(
    ann: Grouping, group: str, topic: str
) -> None:
    ann.create(topic)
    epoch = ann.beat_first(group, "m-1", topic).member_epoch
    assert epoch > 0

    assert ann.delete_groups(group) == [(group, ErrorCode.NON_EMPTY_GROUP)]
    assert ann.beat(group, "m-1", -1).error_code == 0
    assert ann.delete_groups(group) == [(group, 0)]
    assert ann.describe_server_side(group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
