"""All groups of a coordinator together: administration, restarts, time, and many of them."""

from time import process_time
from types import SimpleNamespace

import pytest

from tests.groups.coordinator import GROUP, SESSION_MS, START, Coordinator
from waystation.groups.commands import GroupListing
from waystation.groups.records import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ClassicMemberStored,
    OffsetCommitted,
    OffsetForgotten,
)
from waystation.model.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from waystation.model.machines import Outcome
from waystation.model.offsets import Millis


@pytest.fixture
def here() -> Coordinator:
    return Coordinator()


# --- administration -----------------------------------------------------------------------------


def test_groups_are_listed_whatever_they_are(here: Coordinator) -> None:
    here.stable(None)
    here.committed({("orders", 0): 1}, group_id="program")
    here.stable(None, group_id="workers", protocol_type="connect")
    here.join(group_id="workers", protocol_type="connect")

    assert here.machine.list() == [
        GroupListing(GROUP, "consumer", "Stable", "classic", 1),
        GroupListing("workers", "connect", "PreparingRebalance", "classic", 2),
        GroupListing("program", "", "Empty", "classic", 0),
    ]


def test_a_stable_group_is_described_with_what_its_members_read(here: Coordinator) -> None:
    leader, follower = here.stable("a", None)
    described = here.describe()

    assert (described.state, described.protocol_type, described.protocol) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(one.member_id, one.instance_id, one.assignment) for one in described.members] == [
        (leader.member_id, "a", leader.member_id.encode()),
        (follower.member_id, None, follower.member_id.encode()),
    ]
    assert {(one.client_id, one.client_host) for one in described.members} == {
        ("app", "/127.0.0.1")
    }


def test_a_rebalancing_group_is_described_without(here: Coordinator) -> None:
    here.stable(None)
    here.join()
    described = here.describe()

    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert {(one.subscription, one.assignment) for one in described.members} == {(b"", b"")}


def test_a_group_that_is_not_there_is_dead(here: Coordinator) -> None:
    assert here.describe("nowhere") == ("nowhere", "Dead", "", "", ())
    answer = here.ask(lambda now, to: here.machine.describe_consumer(now, "nowhere", to)).value
    assert isinstance(answer, GroupNotFoundError)


def test_a_group_with_members_may_not_be_deleted(here: Coordinator) -> None:
    here.stable(None)

    assert isinstance(here.delete(), NonEmptyGroupError)
    assert isinstance(here.delete("nowhere"), GroupNotFoundError)


def test_a_deleted_group_leaves_nothing(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.committed({("orders", 0): 1, ("bills", 3): 1}, member.generation, member.member_id)
    here.leave((member.member_id, None))

    assert here.delete() is None
    assert here.log[-3:] == [
        OffsetForgotten(GROUP, "orders", 0),
        OffsetForgotten(GROUP, "bills", 3),
        ClassicGroupForgotten(GROUP),
    ]
    for _ in range(2):
        assert here.machine.list() == []
        assert here.offsets() == {}
        here.restart()


def test_a_program_without_a_group_may_be_deleted(here: Coordinator) -> None:
    here.committed({("orders", 0): 1})

    assert here.delete() is None
    assert here.state() == "Dead"


# --- restarts -------------------------------------------------------------------------------------


def test_more_than_a_record_holds_is_refused_and_harms_nobody(here: Coordinator) -> None:
    ann = here.join().joined
    here.sync(ann, {ann.member_id: b"all"})
    too_much = here.join_once(protocols=(("range", bytes(1 << 20)),))
    here.sync(ann, {ann.member_id: bytes(32 << 20)})
    too_long = here.join_once(client_id="x" * 5_000)

    assert isinstance(too_much.value, InvalidRequestError)
    assert isinstance(too_long.value, InvalidRequestError)
    assert here.sync(ann).synced.assignment == b"all"


def test_a_restart_finds_members_and_gives_them_their_time(here: Coordinator) -> None:
    leader, follower = here.stable(None, "b")
    described = here.describe()
    here.now += 5 * SESSION_MS
    here.restart()

    assert here.describe() == described
    here.wait(SESSION_MS - 1)
    assert here.heartbeat(leader) is None
    here.wait(1)
    assert isinstance(here.heartbeat(leader), RebalanceInProgressError)
    assert isinstance(here.heartbeat(follower, instance_id="b"), UnknownMemberError)


def test_a_restart_forgets_a_generation_that_was_not_shared_out(here: Coordinator) -> None:
    (leader,) = here.stable(None)
    second = here.join()
    again = here.join(leader.member_id).joined
    here.restart()

    assert here.describe().members[0].member_id == leader.member_id
    assert isinstance(here.heartbeat(second.joined), UnknownMemberError)
    assert here.heartbeat(leader) is None
    assert again.generation == leader.generation + 1


def test_everyone_who_waits_is_listed_when_the_machine_is_abandoned(here: Coordinator) -> None:
    leader, follower, _ = here.stable(None, None, None)
    waiting = [here.join(leader.member_id), here.join(follower.member_id)]
    other = here.join(group_id="others", instance_id="a").joined
    second = here.join(group_id="others", instance_id="b")
    here.join(other.member_id, group_id="others", instance_id="a")
    waiting.append(here.sync(second.joined, group_id="others", instance_id="b"))

    assert set(here.restart()) == set(waiting)
    assert not any(one.is_there for one in waiting)


def test_an_old_record_without_timeouts_of_its_own_is_understood(here: Coordinator) -> None:
    member = ClassicMemberStored("m", None, "app", "/host", -1, SESSION_MS, b"s", b"a")
    here.log.append(ClassicGroupStored(GROUP, "consumer", 4, "range", "m", -1, (member,)))
    here.restart()
    joined = SimpleNamespace(generation=4, member_id="m")
    assert here.heartbeat(joined) is None  # type: ignore[arg-type]

    here.wait(SESSION_MS)

    assert here.state() == "Empty"


def test_members_survive_more_than_one_restart(here: Coordinator) -> None:
    members = here.stable(None, None, None)
    for _ in range(3):
        here.restart()
        joins = [here.join(one.member_id) for one in members]
        assert [len(join.joined.members) for join in joins] == [3, 0, 0]
        for join in joins[1:]:
            here.sync(join.joined)
        members = [join.joined for join in joins]
        here.sync(joins[0].joined, {one.member_id: b"x" for one in members})

    assert members[0].generation == 2 + 3


def test_a_group_that_nobody_shared_out_in_begins_by_that(here: Coordinator) -> None:
    """So it comes out of the other kind of group, while the machine lives or in a replay."""
    members = tuple(
        ClassicMemberStored(name, None, "app", "/host", 60_000, SESSION_MS, b"s", b"")
        for name in "ab"
    )
    stored = ClassicGroupStored(GROUP, "consumer", 4, "range", None, START, members)
    here.take(Outcome([stored]))

    assert here.machine.next_deadline() == 0

    for _ in range(2):
        here.wait(0)
        assert here.state() == "PreparingRebalance"
        again = here.join("b", protocols=(("range", b"s"),))
        here.wait(SESSION_MS)
        assert again.joined.leader == "b"
        assert again.joined.generation == 5
        here.restart()


# --- time -----------------------------------------------------------------------------------------


def test_there_is_nothing_to_do_before_the_machine_is_loaded(here: Coordinator) -> None:
    here.stable(None)

    assert here.replayed().next_deadline() is None


def test_the_next_deadline_is_the_earliest_of_all_groups(here: Coordinator) -> None:
    here.stable(None, session_timeout_ms=30_000)
    here.wait(1)
    here.stable(None, group_id="others", session_timeout_ms=20_000)

    assert here.machine.next_deadline() == START + 1 + 20_000

    here.wait(20_000)

    assert here.state("others") == "Empty"
    assert here.machine.next_deadline() == START + 30_000


def test_ten_thousand_groups_cost_little_per_heartbeat(here: Coordinator) -> None:
    """Each heartbeat is followed by the host's question for the next deadline."""
    machine = here.machine
    for number in range(10_000):
        member = ClassicMemberStored(f"m{number}", None, "app", "/h", 60_000, 45_000, b"", b"")
        machine.apply(
            ClassicGroupStored(f"g{number}", "consumer", 1, "range", f"m{number}", 0, (member,))
        )
    here.take(machine.loaded(here.now))
    before = process_time()
    for number in range(10_000):
        here.now = Millis(here.now + 1)
        joined = SimpleNamespace(generation=1, member_id=f"m{number}")
        answer = here.heartbeat(joined, group_id=f"g{number}")  # type: ignore[arg-type]
        assert answer is None
        machine.next_deadline()

    assert (process_time() - before) / 10_000 < 100e-6


def test_two_hundred_members_settle_in_little_time(here: Coordinator) -> None:
    members = 200
    before = process_time()
    joins = [here.join(client_id=f"c{number}") for number in range(members)]
    joins[0] = here.join(joins[0].joined.member_id)
    leader = joins[0].joined
    syncs = [here.sync(join.joined) for join in joins[1:]]
    here.sync(leader, {one.member_id: bytes(5 * 4) for one in leader.members})

    assert process_time() - before < 1.0
    assert {len(sync.synced.assignment) for sync in syncs} == {20}
    assert len(here.describe().members) == members


def test_a_hundred_thousand_offsets_load_in_a_moment(here: Coordinator) -> None:
    records = [
        OffsetCommitted(f"group-{number // 100}", "orders", number % 100, number, 0, "", START)
        for number in range(100_000)
    ]
    apply, before = here.machine.apply, process_time()
    for record in records:
        apply(record)

    assert process_time() - before < 1.0
    assert here.offsets("group-999")["orders", 99] == 99_999
