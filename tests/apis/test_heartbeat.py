"""Heartbeat: all is well, or what the member has missed."""

import pytest

from tests.apis.grouping import Grouping
from tests.apis.kit import versions
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.HEARTBEAT)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_of_the_generation_is_well(ann: Grouping, group: str, version: int) -> None:
    seat = ann.sit_alone(group)

    assert ann.heartbeat(seat, version=version) == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "absent"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_everyone_else_is_told_what_is_wrong(
    ann: Grouping, group: str, version: int, changes: dict[str, str], code: ErrorCode
) -> None:
    seat = ann.sit_alone(group)

    assert ann.heartbeat(seat._replace(**changes), version=version) == code  # type: ignore[arg-type]
    assert ann.heartbeat(seat, version=version) == 0


def test_a_member_hears_of_a_rebalance(ann: Grouping, bob: Grouping, group: str) -> None:
    seat = ann.sit_alone(group)
    bob.interrupt(group)

    assert [ann.heartbeat(seat, version=one) for one in VERSIONS] == [
        ErrorCode.REBALANCE_IN_PROGRESS
    ] * len(VERSIONS)


def test_another_ones_instance_id_is_fenced(ann: Grouping, group: str) -> None:
    seat = ann.sit_alone(group, instance_id="i-1")
    other = seat._replace(member_id="ghost")

    assert ann.heartbeat(seat, instance_id="i-1") == 0
    assert ann.heartbeat(other, instance_id="i-1") == ErrorCode.FENCED_INSTANCE_ID
