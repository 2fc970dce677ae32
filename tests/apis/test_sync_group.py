"""SyncGroup: everyone gets what the leader gave them, and nobody anything else."""

import pytest

from tests.apis.grouping import Grouping, Seat, sync_request
from tests.apis.kit import ThreadedNode, versions
from waystation.messages.sync_group import SyncGroupResponse
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

NAMES_PROTOCOL_FROM = 5


def two_members(ann: Grouping, bob: Grouping, group: str) -> tuple[Seat, Seat]:
    """Ann, who leads, and Bob, in a generation whose assignments are awaited."""
    first = ann.sit_alone(group)
    bob.interrupt(group)
    led, follows = ann.join(group, first.member_id), bob.end_join()
    assert led.generation_id == follows.generation_id == 2
    return Seat(group, led.member_id, 2), Seat(group, follows.member_id, 2)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_the_leader_hands_out_in_every_version(ann: Grouping, group: str, version: int) -> None:
    joined = ann.enter(group)
    seat = Seat(group, joined.member_id, 1)
    told = ann.sync(seat, {seat.member_id: b"what to read"}, version=version)

    assert (told.error_code, told.assignment) == (0, b"what to read")
    named = ("consumer", "range") if version >= NAMES_PROTOCOL_FROM else (None, None)
    assert (told.protocol_type, told.protocol_name) == named
    # Whoever lost the answer asks again.
    assert ann.sync(seat, version=version).assignment == b"what to read"


def test_the_others_wait_for_the_leader(ann: Grouping, bob: Grouping, group: str) -> None:
    leader, other = two_members(ann, bob, group)
    bob.send(sync_request(other), 5)
    assert ann.heartbeat(leader) == 0
    assert not bob.has_reply(0.05)

    assert ann.sync(leader, {other.member_id: b"bob's"}).assignment == b""
    assert bob.receive(ApiKey.SYNC_GROUP, 5).assignment == b"bob's"


def test_a_rebalance_ends_the_wait(
    coordinator: ThreadedNode, ann: Grouping, bob: Grouping, group: str
) -> None:
    _, other = two_members(ann, bob, group)
    bob.send(sync_request(other), 5)
    with Grouping(*coordinator.address) as cid:
        cid.interrupt(group)

        told: SyncGroupResponse = bob.receive(ApiKey.SYNC_GROUP, 5)
        assert (told.error_code, told.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")


def test_one_who_hangs_up_while_waiting_costs_nobody_anything(
    coordinator: ThreadedNode, ann: Grouping, group: str
) -> None:
    with Grouping(*coordinator.address) as hasty:
        leader, other = two_members(ann, hasty, group)
        hasty.send(sync_request(other), 5)

    assert ann.sync(leader, {leader.member_id: b"ann's"}).assignment == b"ann's"
    assert ann.heartbeat(leader) == 0


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group": "absent"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_is_no_member_of_the_generation_gets_nothing(
    ann: Grouping, group: str, version: int, changes: dict[str, str], code: ErrorCode
) -> None:
    seat = ann.sit_alone(group)
    told = ann.sync(seat._replace(**changes), {"ghost": b"x"}, version=version)  # type: ignore[arg-type]

    assert (told.error_code, told.assignment) == (code, b"")
    assert ann.heartbeat(seat) == 0


@pytest.mark.parametrize(
    "said",
    [{"protocol_type": None}, {"protocol": None}, {"protocol": "x"}, {"protocol_type": "x"}],
)
def test_the_protocol_must_be_named_rightly(
    ann: Grouping, group: str, said: dict[str, str | None]
) -> None:
    seat = ann.sit_alone(group)

    assert ann.sync(seat, **said).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ann.sync(seat).error_code == 0
