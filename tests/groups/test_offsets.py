"""Committed offsets: who may commit, what is kept, what it costs, and when it goes."""

import gc
import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.coordinator import GROUP, SESSION_MS, Coordinator, subscription
from waystation.groups.commands import (
    Committed,
    DeletedOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
)
from waystation.groups.offsets import Offsets
from waystation.groups.records import NEVER, ClassicGroupForgotten, OffsetCommitted, OffsetForgotten
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupNotFoundError,
    GroupSubscribedError,
    IllegalGenerationError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId

MINUTE_MS = 60_000
WEEK_MS = 10_080 * MINUTE_MS
ORDERS = {("orders", 0): 7}


@pytest.fixture
def here() -> Coordinator:
    return Coordinator()


# --- who may commit ----------------------------------------------------------------------------


def test_a_member_commits_under_its_generation(here: Coordinator) -> None:
    leader, _ = here.stable(None, None)
    here.committed(ORDERS, leader.generation, leader.member_id)

    assert here.offsets() == ORDERS


def test_a_program_without_a_group_commits_all_the_same(here: Coordinator) -> None:
    here.committed(ORDERS)

    assert here.offsets() == ORDERS
    assert here.state() == "Empty"


def test_a_group_without_members_takes_commits_of_no_generation(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.leave((member.member_id, None))
    here.committed(ORDERS)

    assert here.offsets() == ORDERS


def test_a_group_with_members_takes_their_commits_only(here: Coordinator) -> None:
    leader, _ = here.stable("a", None)

    refusals = [
        here.commit(ORDERS),
        here.commit(ORDERS, leader.generation, "stranger"),
        here.commit(ORDERS, -1, "stranger"),
        here.commit(ORDERS, leader.generation, leader.member_id, "b"),
        here.commit(ORDERS, leader.generation, "stranger", "a"),
        here.commit(ORDERS, leader.generation - 1, leader.member_id, "a"),
        here.commit(ORDERS, leader.generation + 1, leader.member_id, "a"),
        here.commit(ORDERS, -1, leader.member_id, "a"),
    ]

    assert [type(refusal) for refusal in refusals] == [
        UnknownMemberError,
        UnknownMemberError,
        UnknownMemberError,
        UnknownMemberError,
        FencedInstanceIdError,
        IllegalGenerationError,
        IllegalGenerationError,
        IllegalGenerationError,
    ]
    assert here.offsets() == {}


def test_a_generation_of_a_group_that_is_not_there_is_refused(here: Coordinator) -> None:
    assert isinstance(here.commit(ORDERS, 1, "m"), GroupNotFoundError)

    here.committed(ORDERS)

    assert isinstance(here.commit(ORDERS, 1, "m"), UnknownMemberError)


def test_while_the_leader_shares_out_nobody_commits(here: Coordinator) -> None:
    leader = here.join().joined

    answer = here.commit(ORDERS, leader.generation, leader.member_id)

    assert isinstance(answer, RebalanceInProgressError)


def test_members_may_commit_until_they_join_again(here: Coordinator) -> None:
    leader, follower = here.stable(None, None)
    here.join(leader.member_id)
    here.committed(ORDERS, follower.generation, follower.member_id)

    assert here.offsets() == ORDERS


def test_a_commit_shows_that_the_member_is_alive(here: Coordinator) -> None:
    (member,) = here.stable(None)
    for _ in range(4):
        here.wait(SESSION_MS - 1)
        here.committed(ORDERS, member.generation, member.member_id)

    assert here.state() == "Stable"


def test_a_note_that_is_too_long_harms_only_its_partition(here: Coordinator) -> None:
    here.settings = Coordinator(offset_metadata_max_bytes=3).settings
    here.committed({("orders", 0): 1}, metadata="abc")
    answer = here.commit({("orders", 0): 2, ("orders", 1): 2}, metadata="abcd")

    assert isinstance(answer, Committed)
    assert [type(error) for error in answer.errors] == [OffsetMetadataTooLargeError] * 2
    assert here.offsets() == {("orders", 0): 1}


# --- what is fetched ----------------------------------------------------------------------------


def fetch(here: Coordinator, *topics: tuple[str, tuple[int, ...]]) -> tuple[FetchedOffset, ...]:
    command = FetchOffsets(GROUP, topics)
    answer = here.ask(lambda now, to: here.machine.fetch_offsets(now, command, to)).value
    assert isinstance(answer, FetchedOffsets)
    return answer.offsets


def test_what_was_never_committed_is_minus_one_and_no_error(here: Coordinator) -> None:
    assert fetch(here, ("orders", (0,))) == (FetchedOffset("orders", 0, -1, -1, ""),)
    assert here.offsets() == {}

    here.committed({("orders", 1): 5}, metadata="half way")

    assert fetch(here, ("bills", (0,)), ("orders", (1, 0))) == (
        FetchedOffset("bills", 0, -1, -1, ""),
        FetchedOffset("orders", 1, 5, 3, "half way"),
        FetchedOffset("orders", 0, -1, -1, ""),
    )


def test_all_offsets_come_by_topic_and_partition(here: Coordinator) -> None:
    here.committed({("orders", 2): 1, ("bills", 9): 2, ("orders", 1): 3})

    assert list(here.offsets()) == [("bills", 9), ("orders", 1), ("orders", 2)]
    assert sorted(here.machine.committed_offsets()) == [
        (GROUP, "bills", 9, 2),
        (GROUP, "orders", 1, 3),
        (GROUP, "orders", 2, 1),
    ]


def test_offsets_survive_a_restart(here: Coordinator) -> None:
    here.committed({("orders", 2): 1 << 62, ("bills", 9): 0}, metadata="é")
    before = here.offsets(), fetch(here, ("bills", (9,)))
    here.restart()

    assert (here.offsets(), fetch(here, ("bills", (9,)))) == before


# --- when they go ----------------------------------------------------------------------------


def test_offsets_of_an_empty_group_go_after_the_retention() -> None:
    here = Coordinator(offsets_retention_minutes=60)
    (member,) = here.stable(None, session_timeout_ms=1_800_000)
    here.committed(ORDERS, member.generation, member.member_id)
    for _ in range(5):  # a long life after the commit
        here.wait(25 * MINUTE_MS)
        assert here.heartbeat(member) is None
    here.leave((member.member_id, None))
    here.wait(59 * MINUTE_MS)

    assert here.offsets() == ORDERS

    here.wait(12 * MINUTE_MS)

    assert here.offsets() == {}
    assert here.log[-2:] == [OffsetForgotten(GROUP, "orders", 0), ClassicGroupForgotten(GROUP)]
    assert here.state() == "Dead"


def test_offsets_of_a_program_without_a_group_go_after_their_commit(here: Coordinator) -> None:
    here.committed(ORDERS)
    here.wait(WEEK_MS // 2)
    here.committed({("orders", 1): 1})
    here.wait(WEEK_MS // 2 + 11 * MINUTE_MS)

    assert here.offsets() == {("orders", 1): 1}

    here.wait(WEEK_MS // 2)

    assert here.state() == "Dead"
    assert list(here.machine.list()) == []


def test_members_keep_the_offsets_of_what_they_read() -> None:
    here = Coordinator(offsets_retention_minutes=10)
    (member,) = here.stable(None, session_timeout_ms=1_800_000)
    here.committed({("orders", 0): 1, ("bills", 0): 1}, member.generation, member.member_id)
    here.wait(21 * MINUTE_MS)

    assert here.offsets() == {("orders", 0): 1}
    assert here.state() == "Stable"


def test_nothing_expires_while_the_members_are_not_understood() -> None:
    here = Coordinator(offsets_retention_minutes=10)
    (member,) = here.stable(None, session_timeout_ms=1_800_000, protocols=(("range", b"?"),))
    here.committed(ORDERS, member.generation, member.member_id)
    here.stable(None, group_id="w", session_timeout_ms=1_800_000, protocol_type="connect")
    here.wait(21 * MINUTE_MS)

    assert here.offsets() == ORDERS
    assert here.state("w") == "Stable"


def test_a_time_that_the_client_asked_for_counts_first(here: Coordinator) -> None:
    here.committed(ORDERS, retention_ms=5 * MINUTE_MS)
    here.committed({("orders", 1): 1})
    here.restart()
    here.wait(11 * MINUTE_MS)

    assert here.offsets() == {("orders", 1): 1}


def test_a_newer_commit_takes_back_the_time_asked_for(here: Coordinator) -> None:
    here.committed(ORDERS, retention_ms=5 * MINUTE_MS)
    here.committed(ORDERS)
    here.wait(11 * MINUTE_MS)

    assert here.offsets() == ORDERS


def test_offsets_of_an_archive_stay_while_a_topic_waits_for_it() -> None:
    here = Coordinator(offsets_retention_minutes=10)
    here.topics.archives = {GROUP, "member"}
    here.committed(ORDERS)
    here.committed({("orders", 1): 1}, retention_ms=1)
    (member,) = here.stable(None, group_id="member")
    here.committed(ORDERS, member.generation, member.member_id, group_id="member")
    here.leave((member.member_id, None), group_id="member")
    here.committed(ORDERS, group_id="other")
    here.wait(WEEK_MS)
    here.restart()
    here.wait(WEEK_MS)

    assert here.offsets() == {**ORDERS, ("orders", 1): 1}
    assert here.offsets("member") == ORDERS
    assert here.offsets("other") == {}

    here.topics.archives = {"member"}
    here.wait(21 * MINUTE_MS)

    assert here.offsets() == {}
    assert here.offsets("member") == ORDERS


def test_an_empty_group_without_offsets_is_forgotten(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.leave((member.member_id, None))
    here.wait(10 * MINUTE_MS)

    assert here.state() == "Dead"
    assert here.log[-1] == ClassicGroupForgotten(GROUP)
    here.restart()
    assert list(here.machine.list()) == []


def test_looking_for_old_offsets_comes_in_slices() -> None:
    here = Coordinator(offsets_retention_minutes=1)
    partitions = {("orders", number): 1 for number in range(3_000)}
    for number in range(10):
        here.committed(partitions, group_id=f"g{number}")
    here.now += 10 * MINUTE_MS
    ticks = 0
    while (deadline := here.machine.next_deadline()) is not None and deadline <= here.now:
        outcome = here.machine.tick(here.now)
        assert len(outcome.records) <= 13_000
        here.take(outcome)
        ticks += 1

    assert ticks == 3
    assert list(here.machine.list()) == []


# --- on demand ----------------------------------------------------------------------------


def kinds(answer: object) -> dict[tuple[str, int], type | None]:
    assert isinstance(answer, DeletedOffsets), answer
    return {key: error and type(error) for key, error in answer.errors.items()}


def test_offsets_of_topics_that_nobody_reads_may_be_deleted(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.committed({("orders", 0): 1, ("bills", 0): 1}, member.generation, member.member_id)
    answer = here.delete_offsets(("orders", (0,)), ("bills", (0, 1)))

    assert kinds(answer) == {
        ("orders", 0): GroupSubscribedError,
        ("bills", 0): None,
        ("bills", 1): None,
    }
    assert here.offsets() == {("orders", 0): 1}


def test_offsets_of_an_empty_group_may_be_deleted(here: Coordinator) -> None:
    here.committed(ORDERS)

    assert kinds(here.delete_offsets(("orders", (0,)))) == {("orders", 0): None}
    assert here.offsets() == {}
    assert isinstance(here.delete_offsets(("orders", (0,))), GroupNotFoundError)


def test_offsets_of_members_that_are_not_consumers_may_not_be_deleted(here: Coordinator) -> None:
    here.stable(None, protocol_type="connect")

    assert isinstance(here.delete_offsets(("orders", (0,))), NonEmptyGroupError)


def test_an_unreadable_subscription_keeps_nothing(here: Coordinator) -> None:
    first = here.join(protocols=(("range", b"?"),)).joined
    here.sync(first)
    second = here.join(protocols=(("range", subscription("bills")),))
    here.join(first.member_id, protocols=(("range", b"?"),))
    here.sync(second.joined)

    assert kinds(here.delete_offsets(("orders", (0,)), ("bills", (0,)))) == {
        ("orders", 0): None,
        ("bills", 0): GroupSubscribedError,
    }


# --- with their topics ----------------------------------------------------------------------------


def test_the_offsets_of_a_deleted_topic_are_forgotten(here: Coordinator) -> None:
    here.topics.create("orders")
    here.topics.create("bills")
    here.committed({("orders", 0): 1, ("bills", 0): 1})
    here.committed({("orders", 5): 1}, group_id="others")
    here.topics.delete("orders")
    here.take(here.machine.topics_changed(here.now))

    assert (here.offsets(), here.offsets("others")) == ({("bills", 0): 1}, {})


def test_the_offsets_of_a_former_topic_of_the_name_are_forgotten(here: Coordinator) -> None:
    here.topics.create("orders")
    here.committed({("orders", 0): 1, ("orders", 1): 1})
    here.topics.delete("orders")
    here.topics.create("orders")
    here.committed({("orders", 1): 2})
    here.take(here.machine.topics_changed(here.now))

    assert here.offsets() == {("orders", 1): 2}


def test_a_restart_finds_offsets_of_a_former_topic_too(here: Coordinator) -> None:
    here.topics.create("orders")
    here.committed(ORDERS)
    here.topics.delete("orders")
    here.topics.create("orders")
    here.restart()

    assert here.offsets() == {}


def test_offsets_of_a_topic_never_seen_stay(here: Coordinator) -> None:
    here.committed(ORDERS)
    here.topics.create("bills")
    here.take(here.machine.topics_changed(here.now))
    here.restart()

    assert here.offsets() == ORDERS


def test_offsets_without_an_id_stay_with_the_name(here: Coordinator) -> None:
    here.committed(ORDERS)
    here.topics.create("orders")
    here.take(here.machine.topics_changed(here.now))

    assert here.offsets() == ORDERS


# --- the store by itself --------------------------------------------------------------------------

ids = st.sampled_from([NO_TOPIC_ID, TopicId(UUID(int=1)), TopicId(UUID(int=2))])
keys = st.tuples(st.sampled_from("gh"), st.sampled_from(["t", "u"]), st.integers(-1, 3))
commits = st.builds(
    lambda key, *rest: OffsetCommitted(*key, *rest),
    keys,
    st.integers(-1, (1 << 63) - 1),
    st.integers(-1, (1 << 31) - 1),
    st.sampled_from(["", "note"]),
    st.integers(0, 1 << 50),
    st.sampled_from([NEVER, 5]),
    ids,
)
forgets = keys.map(lambda key: OffsetForgotten(*key))


@given(st.lists(commits | forgets))
def test_the_store_agrees_with_a_plain_table(
    records: list[OffsetCommitted | OffsetForgotten],
) -> None:
    offsets, table = Offsets(), dict[tuple[str, str, int], OffsetCommitted]()
    for record in records:
        if isinstance(record, OffsetCommitted):
            offsets.keep(record)
            table[record[:3]] = record
        else:
            offsets.forget(*record)
            table.pop(tuple(record), None)  # type: ignore[call-overload]

    found = {
        (group, *position[:2]): position for group in "gh" for position in offsets.of_group(group)
    }
    assert {key: OffsetCommitted(key[0], *position) for key, position in found.items()} == table
    assert list(offsets.group_ids()) == [g for g in offsets.group_ids() if offsets.count(g)]
    for key, record in table.items():
        assert offsets.find(*key) == record[1:]
    for group in {key[0] for key in table}:
        assert offsets.oldest_commit(group) == min(
            record.committed_at for key, record in table.items() if key[0] == group
        )
        for name in ("t", "u"):
            if any(key[1] == name for key in table):
                assert dict(offsets.in_topic(name)).keys() == {
                    key[0] for key in table if key[1] == name
                }


@pytest.mark.parametrize(("topics", "partitions"), [(1, 100), (100, 1)])
def test_an_offset_takes_at_most_150_bytes(topics: int, partitions: int) -> None:
    groups = [f"group-{number}" for number in range(200)]
    names = [f"topic-{number}" for number in range(topics)]
    gc.collect()
    tracemalloc.start()
    offsets = Offsets()
    for group in groups:
        for name in names:
            for partition in range(partitions):
                offset = 1_000_000_000 + partition
                offsets.keep(
                    OffsetCommitted(group, name, partition, offset, 0, "", 1_700_000_000_000)
                )
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert taken / (len(groups) * topics * partitions) < 150
