"""Offsets in transactions: who may commit them, when they count, and what they wait for."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.groups.consumers import Consumer, Server
from tests.groups.coordinator import GROUP, SESSION_MS, Coordinator
from waystation.groups.commands import Committed, DeletedOffsets, GroupListing, OffsetToCommit
from waystation.groups.records import OffsetCommitted, OffsetForgotten, Record
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupNotFoundError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OffsetMetadataTooLargeError,
    TransactionCoordinatorFencedError,
    UnknownMemberError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.machines import InTransaction
from waystation.records.control import Marker

WEEK_MS = 10_080 * 60_000
PLACE = ("orders", 0)
ELSEWHERE = ("orders", 1)
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
ANN, BOB = 1, 2  # producers, each with a transaction of its own
TAKEN = Committed((None,))


@pytest.fixture
def here() -> Coordinator:
    return Coordinator()


# --- when they count ------------------------------------------------------------------------------


def test_offsets_count_once_their_transaction_is_committed(here: Coordinator) -> None:
    here.committed({PLACE: 3})

    assert here.commit_in(ANN, {PLACE: 7, ELSEWHERE: 1}) == Committed((None, None))
    assert here.offsets() == {PLACE: 3}

    assert here.end(ANN, committed=True) is None
    assert here.offsets() == {PLACE: 7, ELSEWHERE: 1}


def test_offsets_of_an_aborted_transaction_never_count(here: Coordinator) -> None:
    here.committed({PLACE: 3})
    here.commit_in(ANN, {PLACE: 7, ELSEWHERE: 1})
    here.end(ANN, committed=False)

    for _ in range(2):
        assert here.offsets() == here.stable_offsets() == {PLACE: 3}
        here.restart()


@pytest.mark.parametrize("committed", [True, False])
def test_a_restart_leaves_open_what_was_open(here: Coordinator, committed: bool) -> None:
    here.committed({PLACE: 3})
    here.commit_in(ANN, {PLACE: 7})
    here.restart()

    assert here.offsets() == {PLACE: 3}
    assert here.stable_offsets() == {PLACE: UNSTABLE}

    here.end(ANN, committed=committed)

    for _ in range(2):
        assert here.offsets() == {PLACE: 7 if committed else 3}
        here.restart()


def test_an_end_touches_its_own_transaction_only(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.commit_in(BOB, {ELSEWHERE: 8})
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 7}
    assert here.stable_offsets(PLACE, ELSEWHERE) == {PLACE: 7, ELSEWHERE: UNSTABLE}


def test_an_end_may_be_repeated_and_may_find_nothing(here: Coordinator) -> None:
    assert here.end(ANN, committed=True) is None

    here.commit_in(ANN, {PLACE: 7})
    here.end(ANN, committed=True)
    here.committed({PLACE: 8})

    assert here.end(ANN, committed=True) is None
    assert here.offsets() == {PLACE: 8}


def test_a_producer_begins_anew_after_each_end(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.end(ANN, committed=False)
    here.commit_in(ANN, {PLACE: 8}, producer_epoch=ProducerEpoch(1))
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 8}


def test_the_last_commit_of_a_transaction_counts(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 9})
    here.commit_in(ANN, {PLACE: 7})
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 7}


def test_the_time_of_a_commit_is_when_it_was_made(here: Coordinator) -> None:
    at = here.now
    here.commit_in(ANN, {PLACE: 9})
    here.wait(1_000)
    here.end(ANN, committed=True)
    (position,) = here.ask(lambda now, to: here.machine.positions(now, GROUP, to)).value  # type: ignore[misc]

    assert position.committed_at == at


# --- whose is newer -------------------------------------------------------------------------------


def test_a_later_plain_commit_wins_whenever_the_transaction_ends(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.committed({PLACE: 5})

    assert here.offsets() == {PLACE: 5}
    assert here.stable_offsets() == {PLACE: UNSTABLE}

    here.end(ANN, committed=True)

    assert here.stable_offsets() == {PLACE: 5}


def test_of_two_transactions_the_later_commit_wins_not_the_later_end(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.commit_in(BOB, {PLACE: 8})
    here.end(BOB, committed=True)
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 8}


def test_an_aborted_transaction_overtakes_nobody(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.commit_in(BOB, {PLACE: 8})
    here.end(BOB, committed=False)
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 7}


def test_a_transaction_that_commits_again_is_the_later_one(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.commit_in(BOB, {PLACE: 8})
    here.commit_in(ANN, {PLACE: 9})
    here.end(ANN, committed=True)
    here.end(BOB, committed=True)

    assert here.offsets() == {PLACE: 9}


PRODUCERS, TOPICS = (ANN, BOB, 3), ("orders", "bills")
places = st.tuples(st.sampled_from(["g", "h"]), st.sampled_from(TOPICS), st.integers(0, 1))
offset_records = st.builds(
    lambda place, offset: OffsetCommitted(*place, offset, -1, "", 1), places, st.integers(0, 99)
)
producers = st.sampled_from(PRODUCERS).map(ProducerId)
log_records: st.SearchStrategy[Record] = st.one_of(
    offset_records,
    st.builds(
        lambda who, one: InTransaction(who, ProducerEpoch(0), one), producers, offset_records
    ),
    st.builds(
        lambda who, committed: Marker(who, ProducerEpoch(0), 0, committed), producers, st.booleans()
    ),
    places.map(lambda place: OffsetForgotten(*place)),
)
Visible = dict[tuple[str, str, int], int]


@given(st.lists(log_records, max_size=40))
def test_the_newest_record_that_counts_is_what_is_told(log: list[Record]) -> None:
    machine = Coordinator().machine
    for record in log:
        machine.apply(record)

    told = {one[:3]: one[3] for one in machine.committed_offsets()}
    assert told == visible(log)
    assert {
        (group, *place) for group, waiting in machine._pending.items() for place in waiting
    } == unstable(log)


@given(st.lists(log_records, max_size=40))
def test_a_compacted_log_says_the_same(log: list[Record]) -> None:
    whole, rest = Coordinator().machine, Coordinator().machine
    for record in log:
        whole.apply(record)
    for record in compacted(log):
        rest.apply(record)

    assert sorted(rest.committed_offsets()) == sorted(whole.committed_offsets())
    assert rest._pending == whole._pending


def outcomes(log: Sequence[Record]) -> list[bool | None]:
    """Of each record, whether its transaction was committed; ``None`` while that is open."""
    found: list[bool | None] = [True] * len(log)
    open_since: dict[ProducerId, list[int]] = {}
    for at, record in enumerate(log):
        match record:
            case InTransaction():
                found[at] = None
                open_since.setdefault(record.producer_id, []).append(at)
            case Marker():
                for earlier in open_since.pop(record.producer_id, []):
                    found[earlier] = record.committed
    return found


def place_of(record: Record) -> tuple[str, str, int] | None:
    match record:
        case InTransaction(record=offset):
            return offset[:3]
        case OffsetCommitted() | OffsetForgotten():
            return record[:3]
    return None


def visible(log: Sequence[Record]) -> Visible:
    """What is committed, by the order of the log alone."""
    told: Visible = {}
    for record, counts in zip(log, outcomes(log), strict=True):
        place = place_of(record)
        if place is None or not counts:
            continue
        if isinstance(record, OffsetForgotten):
            told.pop(place, None)
        else:
            offset = record.record if isinstance(record, InTransaction) else record
            assert isinstance(offset, OffsetCommitted), offset
            told[place] = offset.offset
    return told


def unstable(log: Sequence[Record]) -> set[tuple[str, str, int]]:
    """Where an open transaction has something."""
    found = set()
    for record, counts in zip(log, outcomes(log), strict=True):
        place = place_of(record)
        if place is not None and isinstance(record, OffsetForgotten):
            found.discard(place)
        elif place is not None and counts is None:
            found.add(place)
    return found


def compacted(log: Sequence[Record]) -> list[Record]:
    """The log without what is old or aborted, before the first transaction that is open."""
    ends = outcomes(log)
    stable = next((at for at, counts in enumerate(ends) if counts is None), len(log))
    newest = {
        place_of(record): at for at, record in enumerate(log[:stable]) if ends[at] is not False
    }
    return [
        record
        for at, record in enumerate(log)
        if at >= stable or isinstance(record, Marker) or newest.get(place_of(record)) == at
    ]


# --- what waits for them --------------------------------------------------------------------------


def test_who_requires_stable_offsets_is_told_to_ask_again(here: Coordinator) -> None:
    here.committed({PLACE: 3, ELSEWHERE: 4})
    here.commit_in(ANN, {PLACE: 7, ("bills", 0): 1})

    assert here.stable_offsets(PLACE, ELSEWHERE, ("bills", 0), ("bills", 1)) == {
        PLACE: UNSTABLE,
        ELSEWHERE: 4,
        ("bills", 0): UNSTABLE,
        ("bills", 1): -1,
    }
    assert here.stable_offsets() == {PLACE: UNSTABLE, ELSEWHERE: 4}
    assert here.offsets() == {PLACE: 3, ELSEWHERE: 4}


def test_a_group_is_there_while_a_transaction_has_its_offsets(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})

    assert here.state() == "Empty"
    assert here.machine.list() == [GroupListing(GROUP, "", "Empty", "classic", 0)]
    assert isinstance(here.commit({PLACE: 1}, 4, "m"), UnknownMemberError)

    here.end(ANN, committed=False)

    assert here.state() == "Dead"
    assert here.machine.list() == []
    assert isinstance(here.delete(), GroupNotFoundError)


@pytest.mark.parametrize("committed", [True, False])
def test_a_deleted_group_is_not_brought_back_by_a_transaction(
    here: Coordinator, committed: bool
) -> None:
    here.committed({PLACE: 3})
    here.commit_in(ANN, {PLACE: 7, ELSEWHERE: 1})

    assert here.delete() is None
    assert here.log[-2:] == [OffsetForgotten(GROUP, *PLACE), OffsetForgotten(GROUP, *ELSEWHERE)]

    here.end(ANN, committed=committed)

    for _ in range(2):
        assert here.state() == "Dead"
        here.restart()


def test_deleted_offsets_are_not_brought_back_either(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7, ELSEWHERE: 1})

    assert here.delete_offsets(("orders", (0, 5))) == DeletedOffsets(
        {PLACE: None, ("orders", 5): None}
    )

    here.end(ANN, committed=True)

    assert here.offsets() == {ELSEWHERE: 1}
    assert here.log.count(OffsetForgotten(GROUP, *PLACE)) == 1


def test_offsets_do_not_expire_under_an_open_transaction(here: Coordinator) -> None:
    here.committed({PLACE: 3, ELSEWHERE: 4})
    here.commit_in(ANN, {PLACE: 7})
    here.wait(2 * WEEK_MS)

    assert here.offsets() == {PLACE: 3}

    here.end(ANN, committed=False)
    here.wait(WEEK_MS)

    assert here.offsets() == {}


def test_a_group_does_not_expire_under_an_open_transaction(here: Coordinator) -> None:
    (member,) = here.stable(None)
    here.commit_in(ANN, {PLACE: 7}, member.generation, member.member_id)
    here.leave((member.member_id, None))
    here.wait(2 * WEEK_MS)

    assert here.machine.list() == [GroupListing(GROUP, "consumer", "Empty", "classic", 0)]

    here.end(ANN, committed=False)
    here.wait(WEEK_MS)

    assert here.machine.list() == []


@pytest.mark.parametrize("other_offsets", [True, False])
@pytest.mark.parametrize("anew", [True, False])
def test_offsets_of_a_topic_that_is_gone_do_not_come_to_count(
    here: Coordinator, anew: bool, other_offsets: bool
) -> None:
    here.topics.create("orders")
    if other_offsets:
        here.committed({PLACE: 3})
    here.commit_in(ANN, {PLACE: 7, ELSEWHERE: 1, ("bills", 0): 5})
    here.topics.delete("orders")
    if anew:
        here.topics.create("orders")
    here.take(here.machine.topics_changed(here.now))
    here.end(ANN, committed=True)

    assert here.offsets() == {("bills", 0): 5}
    assert here.log.count(OffsetForgotten(GROUP, *PLACE)) == 1


def test_offsets_without_an_id_stay_with_the_name(here: Coordinator) -> None:
    here.commit_in(ANN, {PLACE: 7})
    here.topics.create("orders")
    here.take(here.machine.topics_changed(here.now))
    here.end(ANN, committed=True)

    assert here.offsets() == {PLACE: 7}


# --- who may commit them --------------------------------------------------------------------------


def test_members_of_a_classic_group_commit_under_their_generation(here: Coordinator) -> None:
    leader, _ = here.stable("a", None)
    generation, member = leader.generation, leader.member_id

    assert here.commit_in(ANN, {PLACE: 1}, generation, member, instance_id="a") == TAKEN
    assert here.commit_in(ANN, {PLACE: 1}) == TAKEN
    refusals = [
        here.commit_in(ANN, {PLACE: 9}, generation, "stranger"),
        here.commit_in(ANN, {PLACE: 9}, -1, "stranger"),
        here.commit_in(ANN, {PLACE: 9}, generation, "stranger", instance_id="a"),
        here.commit_in(ANN, {PLACE: 9}, generation - 1, member),
        here.commit_in(ANN, {PLACE: 9}, generation + 1, member),
    ]
    here.end(ANN, committed=True)

    assert [type(refusal) for refusal in refusals] == [
        UnknownMemberError,
        UnknownMemberError,
        FencedInstanceIdError,
        IllegalGenerationError,
        IllegalGenerationError,
    ]
    assert here.offsets() == {PLACE: 1}


def test_a_rebalance_does_not_keep_a_member_from_its_transaction(here: Coordinator) -> None:
    leader = here.join().joined

    assert here.commit_in(ANN, {PLACE: 1}, leader.generation, leader.member_id) == TAKEN


def test_members_of_the_other_kind_are_told_in_classic_words() -> None:
    server = Server()
    server.create("orders", 2)
    member = Consumer(server, "m", "orders")

    assert server.commit_in(ANN, {PLACE: 1}, member.epoch, "m") == TAKEN
    assert server.commit_in(ANN, {PLACE: 1}) == TAKEN
    refusals = [
        server.commit_in(ANN, {PLACE: 1}, member.epoch, "stranger"),
        server.commit_in(ANN, {PLACE: 1}, member.epoch - 1, "m"),
        server.commit_in(ANN, {PLACE: 1}, member.epoch + 1, "m"),
    ]

    assert [type(refusal) for refusal in refusals] == [
        UnknownMemberError,
        IllegalGenerationError,
        IllegalGenerationError,
    ]


def test_a_generation_of_a_group_that_is_not_there_is_refused(here: Coordinator) -> None:
    assert isinstance(here.commit_in(ANN, {PLACE: 1}, 1, "m"), IllegalGenerationError)

    here.commit_in(ANN, {PLACE: 1})

    assert isinstance(here.commit_in(ANN, {PLACE: 1}, 1, "m"), UnknownMemberError)


def test_a_commit_in_a_transaction_shows_that_the_member_is_alive(here: Coordinator) -> None:
    (member,) = here.stable(None)
    for offset in range(4):
        here.wait(SESSION_MS - 1)
        here.commit_in(ANN, {PLACE: offset}, member.generation, member.member_id)

    assert here.state() == "Stable"


def test_a_note_that_is_too_long_costs_only_its_own_offset(here: Coordinator) -> None:
    offsets = (
        OffsetToCommit("orders", 0, 1, -1, "x" * 5_000),
        OffsetToCommit("orders", 1, 2, -1, "note"),
    )
    told = here.commit_in(ANN, {}, offsets=offsets)
    here.end(ANN, committed=True)

    assert isinstance(told, Committed)
    assert [type(error) for error in told.errors] == [OffsetMetadataTooLargeError, type(None)]
    assert here.offsets() == {ELSEWHERE: 2}


def test_what_the_log_would_refuse_is_refused_before(here: Coordinator) -> None:
    fenced = InvalidProducerEpochError(ProducerId(ANN), ProducerEpoch(4), ProducerEpoch(3))
    here.producers.refused = fenced

    assert here.commit_in(ANN, {PLACE: 1}) is fenced

    here.producers.refused = TransactionCoordinatorFencedError("coordinator epoch 3 is over")

    assert here.end(ANN, committed=True) is here.producers.refused
    assert here.log == []


# --- while the transaction's coordinator is asked -------------------------------------------------


def test_offsets_that_come_behind_the_end_of_their_transaction_are_refused(
    here: Coordinator,
) -> None:
    inquiry = here.machine.inquire(ProducerId(ANN))
    assert here.commit_in(ANN, {PLACE: 1}, inquiry=inquiry) == TAKEN

    here.end(ANN, committed=True)

    late = here.commit_in(ANN, {PLACE: 2}, inquiry=inquiry)
    assert isinstance(late, InvalidTxnStateError)
    assert here.stable_offsets() == {PLACE: 1}
    fresh = here.machine.inquire(ProducerId(ANN))
    assert here.commit_in(ANN, {PLACE: 2}, inquiry=fresh) == TAKEN


def test_the_ends_of_others_do_not_matter(here: Coordinator) -> None:
    inquiry = here.machine.inquire(ProducerId(ANN))
    here.end(BOB, committed=False)

    assert here.machine.inquire(ProducerId(ANN)) is inquiry
    assert here.commit_in(ANN, {PLACE: 1}, inquiry=inquiry) == TAKEN


def test_an_inquiry_that_nobody_holds_is_forgotten(here: Coordinator) -> None:
    here.machine.inquire(ProducerId(ANN))

    assert not here.machine._commits.inquiries._open
