"""What a member of the server-side protocol may say, and what it is told."""

from typing import Any

import pytest

from tests.groups.consumers import Consumer, Server, a_heartbeat, a_join, partitions, settle
from tests.groups.coordinator import GROUP
from waystation.groups.commands import ConsumerHeartbeatDone
from waystation.groups.partition_sets import flat
from waystation.groups.records import (
    ConsumerMemberStored,
    MemberCurrentStored,
    MemberTargetStored,
)
from waystation.model.errors import (
    FencedMemberEpochError,
    GroupFullError,
    GroupNotFoundError,
    InvalidRegexError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnsupportedAssignorError,
)
from waystation.model.ids import TopicId


@pytest.fixture
def server() -> Server:
    server = Server()
    server.create("orders", 6)
    return server


def orders(server: Server) -> TopicId:
    topic = server.topics.named("orders")
    assert topic is not None
    return topic.id


# --- joining and going on ---------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(server: Server) -> None:
    answer = server.joined("a", "orders")

    assert answer == ConsumerHeartbeatDone("a", 1, 5_000, partitions(orders(server), *range(6)))
    assert server.group.state == "Stable"


def test_who_joins_without_an_id_is_given_one(server: Server) -> None:
    answer = server.joined("", "orders")

    assert answer.member_id
    assert server.beat(answer.member_id, answer.member_epoch).member_epoch == 1


def test_a_quiet_heartbeat_changes_nothing_and_is_told_nothing(server: Server) -> None:
    server.joined("a", "orders")
    before = len(server.log)

    assert server.beat("a", 1).assignment is None
    assert len(server.log) == before


def test_who_says_all_is_told_all(server: Server) -> None:
    """After a lost answer clients send every field, and must learn what they missed."""
    told = server.joined("a", "orders").assignment

    answer = server.beat("a", 1, rebalance_timeout_ms=60_000, topics=("orders",), owned=told)

    assert answer.assignment == told


def test_joining_again_with_epoch_zero_returns_the_same_assignment(server: Server) -> None:
    first = server.joined("a", "orders")

    assert server.joined("a", "orders") == first


def test_the_second_member_waits_until_the_first_gave_up_its_half(server: Server) -> None:
    a = Consumer(server, "a", "orders")
    b = Consumer(server, "b", "orders")

    assert b.reads == set()
    assert server.group.state == "Reconciling"

    a.beat()
    assert (a.epoch, len(a.reads)) == (1, 3)
    b.beat()
    assert b.reads == set(), "given before it was given up"

    a.beat()
    assert (a.epoch, len(a.reads)) == (2, 3)
    b.beat()
    assert len(b.reads) == 3
    assert server.group.state == "Stable"


def test_what_is_still_owned_is_not_given_up(server: Server) -> None:
    a = Consumer(server, "a", "orders")
    b = Consumer(server, "b", "orders")
    everything = a.owned
    a.beat()

    server.beat("a", a.epoch, owned=everything)
    server.beat("a", a.epoch)
    b.beat()

    assert b.reads == set()


def test_a_member_that_never_gives_up_is_removed_after_its_rebalance_timeout(
    server: Server,
) -> None:
    stubborn = Consumer(server, "a", "orders")
    b = Consumer(server, "b", "orders")
    everything = stubborn.owned
    stubborn.beat()

    for _ in range(13):
        server.wait(5_000)
        b.beat()
        answer = server.beat("a", 1, owned=everything)

    assert isinstance(answer, UnknownMemberError)
    assert len(b.reads) == 6


def test_a_silent_member_is_removed_and_what_it_read_goes_to_others(server: Server) -> None:
    a, b = Consumer(server, "a", "orders"), Consumer(server, "b", "orders")
    settle(a, b)

    for _ in range(10):
        server.wait(5_000)
        b.beat()

    assert len(b.reads) == 6
    with pytest.raises(UnknownMemberError):
        a.beat()


def test_who_leaves_is_not_waited_for(server: Server) -> None:
    a, b = Consumer(server, "a", "orders"), Consumer(server, "b", "orders")
    settle(a, b)

    answer = server.beat("a", -1)

    assert answer == ConsumerHeartbeatDone("a", -1, 0, None)
    b.beat()
    assert len(b.reads) == 6


def test_the_last_one_leaves_an_empty_group_with_its_epoch(server: Server) -> None:
    a = Consumer(server, "a", "orders")
    a.leave()

    assert server.group.state == "Empty"
    assert server.joined("a2", "orders").member_epoch == 3


# --- adding one does not disturb the others ---------------------------------------------------


def test_adding_one_member_leaves_those_alone_who_keep_their_partitions(server: Server) -> None:
    """Thirteen members with three partitions each, one more: it gets two, from two of them; the
    others are told nothing new, and everyone reads on whatever it keeps at every moment.
    """
    server.create("events", 39)
    others = [Consumer(server, f"m{i:02}", "events") for i in range(13)]
    settle(*others)
    held = {one.member_id: one.reads for one in others}
    for one in others:
        one.replies.clear()

    newcomer = Consumer(server, "new", "events")
    final = {one.member_id: flat(server.group.book.targets[one.member_id]) for one in others}
    for _ in range(4):
        for one in [*others, newcomer]:
            one.beat()
            if one is not newcomer:
                assert one.reads >= held[one.member_id] & final[one.member_id]

    unaffected = [one for one in others if final[one.member_id] == held[one.member_id]]
    assert len(unaffected) == 11
    for one in unaffected:
        assert all(reply.assignment is None for reply in one.replies)
        assert [reply.member_epoch for reply in one.replies] == [14, 14, 14, 14]
    assert len(newcomer.reads) == 2


def test_only_records_of_those_who_change_are_written(server: Server) -> None:
    server.create("events", 39)
    others = [Consumer(server, f"m{i:02}", "events") for i in range(13)]
    settle(*others)
    before = len(server.log)

    server.joined("new", "events")

    written = server.log[before:]
    assert sum(isinstance(record, MemberTargetStored) for record in written) == 3
    assert sum(isinstance(record, ConsumerMemberStored) for record in written) == 1
    assert sum(isinstance(record, MemberCurrentStored) for record in written) == 1


# --- epochs -----------------------------------------------------------------------------------


def test_an_epoch_that_never_was_is_fenced(server: Server) -> None:
    server.joined("a", "orders")

    assert isinstance(server.beat("a", 2), FencedMemberEpochError)
    assert server.group.state == "Stable"


def test_the_epoch_before_is_accepted_if_the_member_owns_no_more_than_it_may(
    server: Server,
) -> None:
    a, b = Consumer(server, "a", "orders"), Consumer(server, "b", "orders")
    a.beat()
    kept = a.owned
    lost = server.beat("a", 1, owned=kept)
    assert lost.member_epoch == 2

    again = server.beat("a", 1, rebalance_timeout_ms=60_000, topics=("orders",), owned=kept)

    assert (again.member_epoch, again.assignment) == (2, kept)
    b.beat()
    assert len(b.reads) == 3


@pytest.mark.parametrize("owned", [None, "everything"])
def test_the_epoch_before_is_fenced_if_the_member_may_own_more(
    server: Server, owned: str | None
) -> None:
    a = Consumer(server, "a", "orders")
    everything = a.owned
    Consumer(server, "b", "orders")
    a.beat()
    a.beat()

    claimed = everything if owned else None
    assert isinstance(server.beat("a", 1, owned=claimed), FencedMemberEpochError)


def test_a_fenced_member_may_join_again_under_its_id(server: Server) -> None:
    server.joined("a", "orders")
    assert isinstance(server.beat("a", 7), FencedMemberEpochError)

    assert server.joined("a", "orders").member_epoch == 1


def test_epochs_that_mean_nothing_are_refused(server: Server) -> None:
    server.joined("a", "orders")

    assert isinstance(server.beat("a", -3), InvalidRequestError)


def test_a_stranger_is_unknown(server: Server) -> None:
    server.joined("a", "orders")

    assert isinstance(server.beat("b", 1), UnknownMemberError)
    assert isinstance(server.beat("b", -1), UnknownMemberError)


def test_without_a_group_only_joining_makes_sense(server: Server) -> None:
    assert isinstance(server.beat("a", 3), GroupNotFoundError)
    assert isinstance(server.beat("a", -1), GroupNotFoundError)


# --- requests that contradict themselves ------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": -5},
        {"owned": None},
        {"owned": ((TopicId, (1,)),)},
        {"topics": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"topics": tuple(f"{'t' * 240}{i}" for i in range(1_200))},
        {"topics": ("t" * 8_001,)},
        {"rack_id": "r" * 8_001},
        {"instance_id": "i" * 40_000},
    ],
)
def test_an_impossible_join_is_refused_and_leaves_no_trace(
    server: Server, said: dict[str, Any]
) -> None:
    answer = server.answer(a_join("a", "orders", **said))

    assert isinstance(answer, InvalidRequestError)
    assert server.log == []
    assert GROUP not in server.machine._groups


def test_only_who_joins_may_lack_a_member_id(server: Server) -> None:
    server.joined("a", "orders")

    assert isinstance(server.beat("", 1), InvalidRequestError)
    assert isinstance(server.beat("", -1), InvalidRequestError)


def test_leaving_for_a_while_needs_an_instance_id(server: Server) -> None:
    server.joined("a", "orders")

    assert isinstance(server.beat("a", -2), InvalidRequestError)


def test_an_unknown_assignor_is_refused_with_the_list_of_known_ones(server: Server) -> None:
    answer = server.answer(a_join("a", "orders", assignor="sticky"))

    assert isinstance(answer, UnsupportedAssignorError)
    assert "uniform, range" in str(answer)


def test_a_full_group_takes_nobody_but_its_own() -> None:
    server = Server(group_consumer_max_size=2)
    server.create("orders", 6)
    server.joined("a", "orders")
    server.joined("b", "orders")

    assert isinstance(server.answer(a_join("c", "orders")), GroupFullError)
    assert server.joined("b", "orders").member_epoch == 2


def test_a_broken_expression_is_refused_on_join_and_later(server: Server) -> None:
    answer = server.answer(a_join("a", topics=None, topic_regex="ord["))
    assert isinstance(answer, InvalidRegexError)

    joined = server.joined("a", "orders")
    later = server.beat("a", joined.member_epoch, topic_regex="(?=x)")
    assert isinstance(later, InvalidRegexError)
    assert server.beat("a", joined.member_epoch).member_epoch == 1


# --- assignors --------------------------------------------------------------------------------


def test_the_assignor_that_most_ask_for_is_used(server: Server) -> None:
    server.joined("a", "orders", assignor="range")
    server.joined("b", "orders", assignor="range")
    server.joined("c", "orders", assignor="uniform")

    assert server.described().assignor == "range"
    targets = server.group.book.targets
    assert targets["a"] == partitions(orders(server), 0, 1)
    assert targets["c"] == partitions(orders(server), 4, 5)


def test_a_change_of_mind_about_the_assignor_shares_out_anew(server: Server) -> None:
    a = Consumer(server, "a", "orders")
    epoch = server.group.book.epoch

    a.beat(assignor="range")

    assert server.group.book.epoch == epoch + 1
    assert server.described().assignor == "range"


# --- offsets ----------------------------------------------------------------------------------


def test_offsets_are_committed_under_the_members_epoch_only(server: Server) -> None:
    server.joined("a", "orders")

    server.committed({("orders", 0): 5}, generation=1, member_id="a")

    stale = server.commit({("orders", 0): 9}, generation=0, member_id="a")
    assert isinstance(stale, StaleMemberEpochError)
    stranger = server.commit({("orders", 0): 9}, generation=1, member_id="b")
    assert isinstance(stranger, UnknownMemberError)
    nobody = server.commit({("orders", 0): 9})
    assert isinstance(nobody, UnknownMemberError)
    assert server.offsets() == {("orders", 0): 5}


def test_who_is_no_member_may_commit_once_the_group_is_empty(server: Server) -> None:
    Consumer(server, "a", "orders").leave()

    server.committed({("orders", 0): 5})


def test_offsets_are_fetched_under_the_members_epoch_or_by_anyone_without_one(
    server: Server,
) -> None:
    server.joined("a", "orders")
    group = server.group

    assert group.check_fetch("a", 1) is None
    assert group.check_fetch(None, -1) is None
    assert isinstance(group.check_fetch("a", 0), StaleMemberEpochError)
    assert isinstance(group.check_fetch("b", 1), UnknownMemberError)


# --- administration ---------------------------------------------------------------------------


def test_a_group_is_described_with_what_each_member_reads_and_shall_read(server: Server) -> None:
    a = Consumer(server, "a", "orders", rack_id="r1")
    server.joined("b", "orders")

    described = server.described()

    assert (described.state, described.epoch, described.target_epoch) == ("Reconciling", 2, 2)
    first, second = described.members
    assert (first.member_id, first.rack_id, first.member_epoch) == ("a", "r1", 1)
    assert first.assignment == a.owned
    assert len(flat(first.target)) == 3
    assert second.assignment == ()
    assert not first.is_classic


def test_classic_tools_see_topics_and_assignments_too(server: Server) -> None:
    server.joined("a", "orders")

    described = server.describe()

    assert (described.state, described.protocol_type) == ("Stable", "consumer")
    assert b"orders" in described.members[0].subscription
    assert b"orders" in described.members[0].assignment


def test_a_deleted_group_leaves_nothing_for_a_replay(server: Server) -> None:
    a = Consumer(server, "a", "orders", topic_regex="ev.*")
    assert server.delete() is not None
    a.leave()

    assert server.delete() is None

    replayed = server.replayed()
    assert GROUP not in replayed._groups


def test_a_replay_finds_the_group_and_gives_members_a_session_to_speak(server: Server) -> None:
    a, b = Consumer(server, "a", "orders"), Consumer(server, "b", "orders")
    settle(a, b)
    before = server.group.book.copy()

    server.restart()

    assert server.group.book == before
    a.beat()
    server.wait(44_000)
    b.beat()
    assert server.group.state == "Stable"
    server.wait(2_000)
    assert list(server.group.book.members) == ["b"]


def test_an_event_that_was_cut_off_is_made_up_for(server: Server) -> None:
    """Whatever part of an event's records survives, members get everything in the end."""
    Consumer(server, "a", "orders")
    start = len(server.log)
    server.joined("b", "orders")
    whole = list(server.log)
    for end in range(start, len(whole)):
        server.log = whole[:end]
        server.restart()
        members = [Consumer(server, name, "orders") for name in "ab"]
        settle(*members)

        assert len(members[0].reads | members[1].reads) == 6, f"after {end - start} records"
        assert not members[0].reads & members[1].reads


def test_a_heartbeat_is_the_servers_to_remember_not_the_members() -> None:
    """The same command twice, as after a lost answer, gives the same answer."""
    server = Server()
    server.create("orders", 3)
    command = a_join("a", "orders")
    assert server.answer(command) == server.answer(command)
    quiet = a_heartbeat("a", 1, owned=())
    assert server.answer(quiet) == server.answer(quiet)
