"""The checker finds what it looks for: each planted bug is one that it must see."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from waystation.model.ids import TopicPartition
from waystation.testing.checker import Kind, Verdict, check
from waystation.testing.history import Diary, Event, Finish, Seen, Span, Value, Written

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
OUT = TopicPartition("invoices", 0)


@dataclass
class Story:
    """A history in the making; time passes with every event."""

    events: list[Event] = field(default_factory=list)
    diaries: dict[str, Diary] = field(default_factory=dict)

    def of(self, process: str) -> Diary:
        if process not in self.diaries:
            self.diaries[process] = Diary(process, self.events.append, lambda: len(self.events))
        return self.diaries[process]

    # --- writers ----------------------------------------------------------------------------

    def write(self, process: str, *places: tuple[TopicPartition, int]) -> None:
        """Values outside of any transaction, acknowledged there."""
        self._send(process, None, places)

    def transact(
        self,
        process: str,
        *places: tuple[TopicPartition, int],
        commit: bool = True,
        told: bool = True,
        spans: tuple[Span, ...] = (),
    ) -> int:
        """A transaction; with ``told=False`` its process never learns how it ended."""
        diary = self.of(process)
        number = diary.begin()
        self._send(process, number, places)
        if spans:
            diary.consuming(number, "billing", spans)
        diary.deciding(number, commit=commit)
        if told:
            diary.ended(number, committed=commit)
        return number

    def _send(
        self, process: str, number: int | None, places: tuple[tuple[TopicPartition, int], ...]
    ) -> None:
        diary = self.of(process)
        values = diary.sending(number, len(places))
        diary.acknowledged(
            Written(*where, offset, value.number)
            for (where, offset), value in zip(places, values, strict=True)
        )

    # --- readers ----------------------------------------------------------------------------

    def read(
        self, process: str, where: TopicPartition, position: int, **rows: int | tuple[int, ...]
    ) -> None:
        """A poll: of which writer which numbers were at which offsets, as ``w1=(number, offset)``
        pairs one after the other."""
        seen = []
        for writer, pairs in rows.items():
            flat = pairs if isinstance(pairs, tuple) else (pairs,)
            seen += [Seen(at, writer, n) for n, at in zip(flat[::2], flat[1::2], strict=True)]
        self.of(process).polled(where, position, sorted(seen))

    def poll(self, process: str, where: TopicPartition, position: int, *seen: Seen) -> None:
        """A poll in exactly this order."""
        self.of(process).polled(where, position, seen)

    def end(self, process: str, **ends: int) -> None:
        """The reader has read both partitions of orders to their ends."""
        for where, end in zip((A, B), (ends["a"], ends["b"]), strict=True):
            self.of(process).finished(where, end, len(self.events))


def honest() -> Story:
    """Two writers, one of whom aborts and one of whom is killed while committing; a plain one.

    ======  ==============================================  =======================
    offset  orders-0                                        orders-1
    ======  ==============================================  =======================
    0       w1:0                                            w1:1
    1       (marker)                                        (marker)
    2       w1:2, aborted                                   w2:0, unknown
    3       (marker)                                        (marker)
    4       w2:1, unknown                                   p:1
    5       (marker)
    6       p:0
    ======  ==============================================  =======================
    """
    story = Story()
    story.transact("w1", (A, 0), (B, 0))
    story.transact("w1", (A, 2), commit=False)
    story.transact("w2", (B, 2), (A, 4), told=False)
    story.write("p", (A, 6), (B, 4))
    for where in (A, B):
        story.of("r").seeking(where, 0)
    story.read("r", A, 5, w1=(0, 0), w2=(1, 4))
    story.read("r", A, 7, p=(0, 6))
    story.read("r", B, 5, w1=(1, 0), w2=(0, 2), p=(1, 4))
    story.end("r", a=7, b=5)
    return story


def kinds(verdict: Verdict) -> set[Kind]:
    return {one.kind for one in verdict.findings}


def test_an_honest_history_passes() -> None:
    verdict = check(honest().events)

    assert verdict.findings == []
    assert verdict.complete
    assert (verdict.writes, verdict.acknowledged, verdict.reads) == (7, 7, 6)
    assert (verdict.committed, verdict.aborted, verdict.unknown) == (1, 1, 1)


def test_what_is_unknown_may_also_be_nowhere() -> None:
    story = Story()
    story.transact("w", (A, 0), (B, 0), told=False)
    story.write("p", (A, 2), (B, 2))
    story.read("r", A, 3, p=(0, 2))
    story.read("r", B, 3, p=(1, 2))
    story.end("r", a=3, b=3)

    assert check(story.events).findings == []


def test_a_reader_may_go_back_when_it_says_so() -> None:
    story = honest()
    story.of("r").seeking(A, 0)
    story.read("r", A, 5, w1=(0, 0), w2=(1, 4))

    assert check(story.events).findings == []


def test_what_nobody_went_past_is_not_judged() -> None:
    story = Story()
    story.write("p", (A, 0), (A, 1))
    story.read("r", A, 1, p=(0, 0))

    verdict = check(story.events)

    assert verdict.findings == []
    assert not verdict.complete


# --- planted bugs -----------------------------------------------------------------------------


def a_plain_write_is_lost() -> Story:
    story = honest()
    story.read("late", A, 7, w1=(0, 0), w2=(1, 4))
    return story


def a_committed_transaction_is_lost() -> Story:
    story = honest()
    story.read("late", A, 5, w2=(1, 4))
    story.of("late2").seeking(A, 0)
    story.read("late2", A, 5, w2=(1, 4))
    return story


def the_end_of_the_log_is_cut() -> Story:
    story = honest()
    story.write("p", (A, 7))
    story.end("r", a=7, b=5)
    return story


def a_lost_write_makes_room_for_another() -> Story:
    story = Story()
    story.write("p", (A, 0))
    story.write("q", (A, 0))
    story.read("r", A, 1, q=(0, 0))
    return story


def nothing_is_shown_up_to_the_end() -> Story:
    story = honest()
    story.of("r2").seeking(A, 0)
    story.of("r2").seeking(B, 0)
    story.end("r2", a=7, b=5)
    return story


def a_committed_value_is_nowhere() -> Story:
    story = Story()
    diary = story.of("w")
    number = diary.begin()
    diary.sending(number, 1)
    diary.deciding(number, commit=True)
    diary.ended(number, committed=True)
    story.end("r", a=1, b=0)
    return story


def an_aborted_value_is_seen() -> Story:
    story = honest()
    story.read("r2", A, 3, w1=(0, 0, 2, 2))
    return story


def a_value_whose_writer_died_before_deciding_is_seen() -> Story:
    story = Story()
    story._send("w", story.of("w").begin(), ((A, 0),))
    story.read("r", A, 1, w=(0, 0))
    return story


def an_open_transaction_is_seen() -> Story:
    story = Story()
    diary = story.of("w")
    number = diary.begin()
    story._send("w", number, ((A, 0),))
    story.read("r", A, 1, w=(0, 0))
    diary.deciding(number, commit=True)
    diary.ended(number, committed=True)
    return story


def a_commit_that_was_refused_is_seen() -> Story:
    story = Story()
    number = story.transact("w", (A, 0), told=False)
    story.of("w").ended(number, committed=False)
    story.read("r", A, 1, w=(0, 0))
    return story


def a_value_is_written_twice() -> Story:
    story = honest()
    story.read("r", A, 8, p=(0, 7))
    return story


def a_value_is_in_two_partitions() -> Story:
    story = honest()
    story.read("r", B, 6, w1=(0, 5))
    return story


def a_value_stands_elsewhere_than_was_said() -> Story:
    story = Story()
    story.write("p", (A, 3))
    story.read("r", A, 5, p=(0, 4))
    return story


def two_values_are_acknowledged_at_one_place() -> Story:
    story = honest()
    story.write("q", (A, 6))
    return story


def two_readers_see_different_values() -> Story:
    story = Story()
    story.of("v").sending(None, 1)
    story.of("w").sending(None, 1)
    story.read("r1", A, 1, v=(0, 0))
    story.read("r2", A, 1, w=(0, 0))
    return story


def a_transaction_is_half_there() -> Story:
    story = honest()
    story.of("r2").seeking(A, 0)
    story.of("r2").seeking(B, 0)
    story.read("r2", A, 1, w1=(0, 0))
    story.read("r2", B, 3, w2=(0, 2))
    return story


def a_transaction_that_nobody_knows_of_is_half_there() -> Story:
    story = Story()
    story.transact("w", (A, 0), (B, 0), told=False)
    story.read("r", A, 1, w=(0, 0))
    story.of("r").seeking(B, 0)
    story.read("r", B, 2)
    return story


def a_half_of_a_transaction_was_cut_off() -> Story:
    story = Story()
    story.transact("w", (A, 0), (B, 0))
    story.read("r", A, 1, w=(0, 0))
    story.end("r", a=1, b=0)
    return story


def a_poll_repeats() -> Story:
    story = honest()
    story.read("r", A, 7, p=(0, 6))
    return story


def a_poll_is_out_of_order() -> Story:
    story = honest()
    story.poll("r2", A, 7, Seen(4, "w2", 1), Seen(0, "w1", 0), Seen(6, "p", 0))
    return story


def a_position_goes_back() -> Story:
    story = honest()
    story.read("r", A, 5)
    return story


def writes_change_places() -> Story:
    story = Story()
    story.write("p", (A, 1), (A, 0))
    story.read("r", A, 2, p=(1, 0, 0, 1))
    return story


def a_value_comes_from_nowhere() -> Story:
    story = honest()
    story.read("r", A, 8, p=(77, 7))
    return story


def a_group_processes_twice() -> Story:
    story = consumed()
    story.transact("s", (OUT, 6), spans=(Span(*A, 4, 7),))
    return story


def a_group_leaves_something_out() -> Story:
    story = honest()
    story.transact("s", (OUT, 0), spans=(Span(*A, 0, 1),))
    story.transact("s", (OUT, 2), spans=(Span(*A, 6, 7),))
    return story


def a_group_begins_late() -> Story:
    story = honest()
    story.transact("s", (OUT, 0), spans=(Span(*A, 4, 7),))
    return story


def offsets_of_an_aborted_transaction_count() -> Story:
    story = honest()
    story.transact("s", (OUT, 0), spans=(Span(*A, 0, 5),), commit=False)
    story.transact("s", (OUT, 2), spans=(Span(*A, 6, 7),))
    return story


def offsets_of_a_transaction_are_forgotten() -> Story:
    """Its process never learnt how it ended, but what it wrote is there."""
    story = honest()
    story.transact("s1", (OUT, 0), spans=(Span(*A, 0, 5),), told=False)
    story.transact("s2", (OUT, 2), spans=(Span(*A, 0, 7),))
    story.read("r", OUT, 3, s1=(0, 0), s2=(0, 2))
    return story


def consumed() -> Story:
    """A group that processed all of orders-0: in a transaction, one that aborted, another."""
    story = honest()
    story.transact("s", (OUT, 0), spans=(Span(*A, 0, 1),))
    story.transact("s", (OUT, 2), spans=(Span(*A, 4, 5),), commit=False)
    story.transact("s", (OUT, 4), spans=(Span(*A, 4, 7),))
    return story


PLANTED: dict[Callable[[], Story], Kind] = {
    a_plain_write_is_lost: Kind.LOST_WRITE,
    a_committed_transaction_is_lost: Kind.LOST_WRITE,
    the_end_of_the_log_is_cut: Kind.LOST_WRITE,
    a_lost_write_makes_room_for_another: Kind.LOST_WRITE,
    nothing_is_shown_up_to_the_end: Kind.LOST_WRITE,
    a_committed_value_is_nowhere: Kind.LOST_WRITE,
    an_aborted_value_is_seen: Kind.ABORTED_READ,
    a_value_whose_writer_died_before_deciding_is_seen: Kind.ABORTED_READ,
    an_open_transaction_is_seen: Kind.ABORTED_READ,
    a_commit_that_was_refused_is_seen: Kind.ABORTED_READ,
    a_value_is_written_twice: Kind.DUPLICATE,
    a_value_is_in_two_partitions: Kind.DUPLICATE,
    a_value_stands_elsewhere_than_was_said: Kind.INCONSISTENT_OFFSET,
    two_values_are_acknowledged_at_one_place: Kind.INCONSISTENT_OFFSET,
    two_readers_see_different_values: Kind.INCONSISTENT_OFFSET,
    a_group_processes_twice: Kind.INCONSISTENT_OFFSET,
    a_group_leaves_something_out: Kind.INCONSISTENT_OFFSET,
    a_group_begins_late: Kind.INCONSISTENT_OFFSET,
    offsets_of_an_aborted_transaction_count: Kind.INCONSISTENT_OFFSET,
    offsets_of_a_transaction_are_forgotten: Kind.INCONSISTENT_OFFSET,
    a_transaction_is_half_there: Kind.TORN_TRANSACTION,
    a_transaction_that_nobody_knows_of_is_half_there: Kind.TORN_TRANSACTION,
    a_half_of_a_transaction_was_cut_off: Kind.TORN_TRANSACTION,
    a_poll_repeats: Kind.NON_MONOTONIC_POLL,
    a_poll_is_out_of_order: Kind.NON_MONOTONIC_POLL,
    a_position_goes_back: Kind.NON_MONOTONIC_POLL,
    writes_change_places: Kind.REORDERED_WRITE,
    a_value_comes_from_nowhere: Kind.PHANTOM,
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_as_what_it_is(planted: Callable[[], Story]) -> None:
    verdict = check(planted().events)

    assert PLANTED[planted] in kinds(verdict), verdict.findings


def test_every_kind_is_proven() -> None:
    assert set(PLANTED.values()) == set(Kind)


def test_a_group_that_processed_everything_once_passes() -> None:
    assert check(consumed().events).findings == []


def test_a_step_that_may_have_been_taken_covers_what_it_would() -> None:
    story = honest()
    story.transact("s1", spans=(Span(*A, 0, 5),), told=False)
    story.transact("s2", (OUT, 2), spans=(Span(*A, 6, 7),))

    assert check(story.events).findings == []


def test_a_finding_names_who_saw_what_and_where() -> None:
    verdict = check(an_aborted_value_is_seen().events)

    assert [str(one) for one in verdict.findings] == [
        "aborted read: r2 saw w1:2 at orders-0@2, of w1's transaction 1, which did not commit"
    ]


def test_one_transaction_is_one_finding() -> None:
    story = Story()
    story.transact("w", *((A, offset) for offset in range(50)))
    story.of("r").seeking(A, 0)
    story.read("r", A, 51)

    assert len(check(story.events).findings) == 1


def test_an_end_that_was_asked_for_before_the_commit_proves_nothing() -> None:
    story = Story()
    story.transact("w", (A, 0))
    story.events.append(Finish(0, "r", *A, 0))

    assert check(story.events).findings == []


def test_one_who_asked_to_commit_and_then_to_abort_may_have_committed() -> None:
    story = Story()
    diary = story.of("w")
    number = story.transact("w", (A, 0), told=False)
    story.read("r", A, 1, w=(0, 0))
    diary.deciding(number, commit=False)

    assert check(story.events).findings == []


def test_what_was_committed_after_the_end_was_asked_for_may_be_unseen() -> None:
    story = Story()
    story.write("p", (A, 0), (B, 0))
    story.read("r", A, 1, p=(0, 0))
    story.read("r", B, 1, p=(1, 0))
    story.end("r", a=1, b=1)
    assert check(story.events).complete

    diary = story.of("w")
    number = diary.begin()
    diary.sending(number, 1)
    diary.deciding(number, commit=True)
    diary.ended(number, committed=True)
    assert check(story.events).findings == []

    story.write("p", (A, 1))
    verdict = check(story.events)
    assert verdict.findings == []
    assert not verdict.complete


def test_values_are_read_from_messages() -> None:
    assert Value.of(b"w1:17") == Value("w1", 17)
    assert Value.of(b"stage-2.1:3 w1:17>1") == Value("stage-2.1", 3)
    assert Value.of(b"hello world") == Value("hello", -1)
    assert Value.of(None) == Value("", -1)
    assert Value.of(b"\xff:x").number == -1
