"""JoinGroup: who is in the next generation, whatever they speak and whenever they come."""

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import REBALANCE_MS, SESSION_MS, Grouping, Seat
from tests.apis.kit import ThreadedNode, versions
from waystation.groups.records import ClassicGroupStored
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey

MEMBER_ID_REQUIRED_FROM = 4


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_alone_leads_itself_in_every_version(
    ann: Grouping, group: str, version: int
) -> None:
    said = [("roundrobin", b"mine"), ("range", b"also")]
    asked = {"protocols": said, "version": version, "reason": "why not"}
    told = ann.join(group, **asked)
    if version >= MEMBER_ID_REQUIRED_FROM:
        assert (told.error_code, told.generation_id, told.leader, told.members) == (
            ErrorCode.MEMBER_ID_REQUIRED, -1, "", [],
        )  # fmt: skip
        assert told.member_id.startswith("kit-")
        told = ann.join(group, told.member_id, **asked)

    assert (told.error_code, told.generation_id, told.protocol_name) == (0, 1, "roundrobin")
    assert told.protocol_type == ("consumer" if version >= 7 else None)
    assert told.leader == told.member_id
    assert told.member_id.startswith("kit-")
    assert not told.skip_assignment
    (listed,) = told.members
    assert (listed.member_id, listed.metadata) == (told.member_id, b"mine")
    assert listed.group_instance_id is None


@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, SESSION_MS), (1, REBALANCE_MS)])
def test_the_oldest_version_rebalances_within_its_session(
    ann: Grouping, group: str, version: int, rebalance_ms: int
) -> None:
    joined = ann.join(group, version=version)
    ann.sync(Seat(group, joined.member_id, 1), {joined.member_id: b""}, version=0)

    (stored,) = [one for one in ann.remembered(group) if isinstance(one, ClassicGroupStored)]
    (member,) = stored.members
    assert member.rebalance_timeout_ms == rebalance_ms
    assert member.session_timeout_ms == SESSION_MS
    assert (member.client_id, member.client_host) == ("kit", "/127.0.0.1")


def test_a_second_member_waits_until_the_first_has_joined_again(
    ann: Grouping, bob: Grouping, group: str
) -> None:
    first = ann.sit_alone(group)
    bob.interrupt(group)

    assert ann.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert not bob.has_reply()
    led = ann.join(group, first.member_id)
    follows = bob.end_join()
    assert led.generation_id == follows.generation_id == 2
    assert led.leader == follows.leader == first.member_id
    assert sorted(one.member_id for one in led.members) == sorted(
        [first.member_id, follows.member_id]
    )
    assert follows.members == []


def test_the_protocol_that_all_speak_is_chosen(ann: Grouping, bob: Grouping, group: str) -> None:
    joined = ann.enter(group, protocols=[("sticky", b"1"), ("range", b"2")])
    assert joined.protocol_name == "sticky"
    bob.interrupt(group, protocols=[("range", b"3")])
    led = ann.join(group, joined.member_id, protocols=[("sticky", b"1"), ("range", b"2")])

    assert led.protocol_name == bob.end_join().protocol_name == "range"
    assert sorted(one.metadata for one in led.members) == [b"2", b"3"]


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_an_empty_group_id_is_refused(ann: Grouping, version: int) -> None:
    told = ann.join("", "me", version=version)

    assert (told.error_code, told.member_id) == (ErrorCode.INVALID_GROUP_ID, "me")
    assert (told.generation_id, told.leader, told.members) == (-1, "", [])


@pytest.mark.parametrize("timeout_ms", [0, -1, 5_999, 1_800_001])
def test_a_session_outside_the_bounds_is_refused(
    ann: Grouping, group: str, timeout_ms: int
) -> None:
    told = ann.join(group, session_timeout_ms=timeout_ms)

    assert told.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert ann.describe(group, version=5).group_state == "Dead"


def test_a_member_id_that_nobody_gave_is_unknown(ann: Grouping, group: str) -> None:
    assert ann.join(group, "ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    seat = ann.sit_alone(group)

    assert ann.join(group, "ghost").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert ann.heartbeat(seat) == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"protocols": []},
        {"protocols": [("other", b"")]},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
    ids=["no protocol", "another protocol", "another type", "no type"],
)
def test_who_shares_no_protocol_stays_out_and_harms_nobody(
    ann: Grouping, bob: Grouping, group: str, asked: dict[str, object]
) -> None:
    seat = ann.sit_alone(group)
    told = bob.join(group, **asked)

    assert told.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ann.heartbeat(seat) == 0


@pytest.mark.parametrize("asked", [{"protocols": []}, {"protocol_type": ""}])
def test_not_even_the_first_member_may_speak_nothing(
    ann: Grouping, group: str, asked: dict[str, object]
) -> None:
    told = ann.join(group, **asked)

    assert told.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_that_returns_goes_on_where_it_was(
    ann: Grouping, bob: Grouping, group: str
) -> None:
    first = ann.sit_alone(group, instance_id="i-1")
    back = bob.join(group, instance_id="i-1")

    assert (back.error_code, back.generation_id) == (0, first.generation)
    assert back.member_id != first.member_id
    assert back.skip_assignment
    assert back.leader == back.member_id
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert ann.heartbeat(first, instance_id="i-1") == fenced
    assert ann.join(group, first.member_id, instance_id="i-1").error_code == fenced
    now = Seat(group, back.member_id, back.generation_id)
    assert bob.heartbeat(now, instance_id="i-1") == 0


def test_older_leaders_are_not_told_to_skip(ann: Grouping, bob: Grouping, group: str) -> None:
    first = ann.sit_alone(group, instance_id="i-1")
    back = bob.join(group, instance_id="i-1", version=8)

    assert (back.error_code, back.generation_id) == (0, first.generation)
    assert not back.skip_assignment
    assert back.leader != back.member_id
    assert back.members == []


def test_a_full_group_takes_nobody_and_is_unharmed(make_node: MakeNode, group: str) -> None:
    running = make_node(group_max_size="2", group_initial_rebalance_delay_ms="0")
    coordinate(running)
    with (
        Grouping(*running.address) as ann,
        Grouping(*running.address) as bob,
        Grouping(*running.address) as cid,
    ):
        first = ann.sit_alone(group)
        bob.interrupt(group)
        led = ann.join(group, first.member_id)
        second = bob.end_join()

        refused = cid.join(group)
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (refused.generation_id, refused.members) == (-1, [])
        assert cid.join(group, version=3).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

        seats = [Seat(group, one.member_id, 2) for one in (led, second)]
        assert ann.sync(seats[0], {seats[1].member_id: b"yours"}).error_code == 0
        assert bob.sync(seats[1]).assignment == b"yours"
        assert [ann.heartbeat(one) for one in seats] == [0, 0]


def test_one_who_hangs_up_while_joining_costs_nobody_anything(
    coordinator: ThreadedNode, ann: Grouping, group: str
) -> None:
    first = ann.sit_alone(group)
    with Grouping(*coordinator.address) as hasty:
        hasty.interrupt(group)
    led = ann.join(group, first.member_id)

    assert (led.error_code, led.generation_id, len(led.members)) == (0, 2, 2)
    seat = Seat(group, first.member_id, 2)
    assert ann.sync(seat, {seat.member_id: b"all"}).assignment == b"all"
    assert ann.heartbeat(seat) == 0


def test_a_waiting_member_is_answered_when_the_node_stops(make_node: MakeNode, group: str) -> None:
    running = make_node(group_initial_rebalance_delay_ms="60000")
    coordinate(running)
    with Grouping(*running.address) as ann:
        ann.interrupt(group)
        running.stop()

        assert ann.end_join().error_code == ErrorCode.NOT_COORDINATOR
