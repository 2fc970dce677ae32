"""The queue at a partition's leader: who holds what, until when, and what becomes of it."""

import pytest

from tests.sharing.queues import LOCK_MS, NOW, after, as_tuples, queue, say, take
from waystation.model.errors import InvalidRecordStateError, InvalidRequestError
from waystation.model.offsets import Offset
from waystation.sharing.states import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    REJECT,
    REJECTED,
    RELEASE,
    RENEW,
    Acknowledgement,
    Span,
    StateBatch,
)


def test_consumers_on_one_partition_get_different_messages() -> None:
    shared = queue()

    assert take(shared, "a", 10) == [(0, 10, 1)]
    assert take(shared, "b", 5) == [(10, 15, 1)]
    assert shared.held_by("a") == [(0, 10, 1)]


def test_what_is_accepted_is_gone_and_moves_the_start() -> None:
    shared = queue()
    take(shared, "a", 10)
    say(shared, "a", 3, 10)

    assert shared.start == 0

    say(shared, "a", 0, 3)

    assert (shared.start, shared.end) == (10, 10)
    assert take(shared, "b", 1) == [(10, 11, 1)]


def test_what_is_released_comes_first_and_counts() -> None:
    shared = queue()
    take(shared, "a", 10)
    say(shared, "a", 4, 6, RELEASE)

    assert take(shared, "b", 100, end=50) == [(4, 6, 2), (10, 50, 1)]


def test_a_lock_that_is_over_gives_the_message_to_another() -> None:
    shared = queue()
    take(shared, "a", 2)

    assert shared.next_deadline() == after(LOCK_MS)
    assert take(shared, "b", 1, end=2, now=after(LOCK_MS - 1)) == []
    assert shared.tick(after(LOCK_MS))
    assert take(shared, "b", 1, end=2, now=after(LOCK_MS)) == [(0, 1, 2)]
    with pytest.raises(InvalidRecordStateError, match=r"'a' acknowledges offsets \[0, 1\)"):
        say(shared, "a", 0, 1, now=after(LOCK_MS))


def test_renewing_holds_on_to_some_of_it() -> None:
    shared = queue()
    take(shared, "a", 4)
    say(shared, "a", 1, 2, RENEW, after(LOCK_MS - 1))
    shared.tick(after(LOCK_MS))

    assert shared.held_by("a") == [(1, 2, 1)]
    assert take(shared, "b", 10, end=4, now=after(LOCK_MS)) == [(0, 1, 2), (2, 4, 2)]
    shared.tick(after(2 * LOCK_MS))
    assert shared.counts().available == 4


def test_who_leaves_gives_everything_back() -> None:
    shared = queue()
    take(shared, "a", 4)
    take(shared, "b", 4)
    shared.leave(NOW, "a")

    assert shared.held_by("a") == []
    assert take(shared, "c", 9, end=8) == [(0, 4, 2)]
    assert shared.held_by("b") == [(4, 8, 1)]


def test_an_implicit_consumer_accepts_all_it_holds() -> None:
    shared = queue()
    take(shared, "a", 4)
    take(shared, "b", 4)
    take(shared, "a", 4)
    shared.acknowledge_all(NOW, "a")

    assert (shared.start, shared.end, shared.counts().settled) == (4, 12, 4)
    shared.acknowledge_all(NOW, "nobody")


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT, RENEW, GAP])
def test_nobody_settles_what_another_holds(kind: int) -> None:
    shared = queue()
    take(shared, "a", 4)
    take(shared, "b", 4)
    before = shared.version

    for first, end in [(4, 5), (2, 6), (8, 9), (7, 9), (0, 1_000)]:
        with pytest.raises(InvalidRecordStateError):
            say(shared, "a", first, end, kind)
    assert (shared.version, shared.counts().acquired) == (before, 8)


def test_a_request_is_followed_as_a_whole_or_not_at_all() -> None:
    shared = queue()
    take(shared, "a", 4)
    take(shared, "b", 1)
    good, bad = Acknowledgement(Offset(0), Offset(4), ACCEPT), (Offset(4), Offset(5), ACCEPT)

    with pytest.raises(InvalidRecordStateError):
        shared.acknowledge(NOW, "a", [good, Acknowledgement(*bad)])
    assert shared.held_by("a") == [(0, 4, 1)]


@pytest.mark.parametrize(
    "said",
    [[(0, 2, 1), (1, 3, 1)], [(2, 3, 1), (0, 1, 1)], [(2, 2, 1)], [(3, 2, 1)], [(0, 1, 5)]],
)
def test_what_contradicts_itself_is_refused(said: list[tuple[int, int, int]]) -> None:
    shared = queue()
    take(shared, "a", 4)

    with pytest.raises(InvalidRequestError):
        shared.acknowledge(
            NOW,
            "a",
            [Acknowledgement(Offset(first), Offset(end), kind) for first, end, kind in said],
        )


def test_what_was_accepted_cannot_be_accepted_again() -> None:
    shared = queue()
    take(shared, "a", 4)
    say(shared, "a", 0, 2)

    with pytest.raises(InvalidRecordStateError):
        say(shared, "a", 0, 2)
    with pytest.raises(InvalidRecordStateError):
        say(shared, "a", 1, 3)


def test_only_so_many_messages_are_out() -> None:
    shared = queue(locks=5)

    assert take(shared, "a", 3) == [(0, 3, 1)]
    assert take(shared, "b", 3) == [(3, 5, 1)]
    assert shared.next_offset(NOW) is None
    say(shared, "a", 0, 1)
    assert take(shared, "b", 3) == [(5, 6, 1)]


def test_a_queue_that_falls_into_too_many_ranges_waits_for_its_oldest() -> None:
    shared = queue(ranges=100)
    for number in range(60):
        take(shared, f"m{number}", 1)
        take(shared, "b", 1)
        shared.acknowledge_all(NOW, "b")

    assert shared.end < 110
    assert shared.next_offset(NOW) is None
    shared.leave(NOW, "m0")
    assert shared.next_offset(NOW) == 0


def test_many_messages_of_equal_state_are_one_range() -> None:
    shared = queue(locks=100_000)
    take(shared, "slow", 1)
    for _ in range(1_000):
        take(shared, "a", 50)
        shared.acknowledge_all(NOW, "a")
    shared.leave(NOW, "slow")
    change = shared.take_change()

    assert change is not None
    assert change.batches == ((0, 1, AVAILABLE, 1), (1, 50_001, ACKNOWLEDGED, 0))
    assert change.settled == 50_000


def test_batches_are_given_whole_unless_a_limit_is_meant_exactly() -> None:
    shared = queue(locks=25)
    ends = [Offset(10), Offset(20), Offset(30)]

    assert as_tuples(
        shared.acquire(NOW, "a", 3, Offset(0), Offset(30), batch_ends=ends)
    ) == [(0, 10, 1)]  # fmt: skip
    assert take(shared, "b", 3) == [(10, 13, 1)]
    # The rest of a batch may go beyond what may be out; then nothing more does.
    got = shared.acquire(NOW, "c", 20, Offset(13), Offset(50), batch_ends=[*ends, Offset(50)])
    assert as_tuples(got) == [(13, 30, 1)]
    assert shared.next_offset(NOW) is None


def test_what_holds_nothing_to_deliver_is_passed_over() -> None:
    shared = queue()
    skipped = [Span(Offset(0), Offset(2)), Span(Offset(4), Offset(5)), Span(Offset(8), Offset(12))]
    got = shared.acquire(NOW, "a", 3, Offset(0), Offset(10), skipped=skipped)

    assert as_tuples(got) == [(2, 4, 1), (5, 6, 1)]
    assert shared.start == 2
    got = shared.acquire(NOW, "a", 9, Offset(6), Offset(10), skipped=skipped)
    assert as_tuples(got) == [(6, 8, 1)]
    assert shared.end == 10
    shared.acknowledge_all(NOW, "a")
    assert (shared.start, shared.end) == (10, 10)


def test_a_stretch_without_messages_moves_the_queue_on() -> None:
    shared = queue()
    everything = [Span(Offset(0), Offset(50))]

    assert shared.acquire(NOW, "a", 9, Offset(0), Offset(50), skipped=everything) == []
    assert (shared.start, shared.end) == (50, 50)
    change = shared.take_change()
    assert change is not None
    assert change.start == 50


def test_gaps_that_a_consumer_finds_are_settled() -> None:
    shared = queue()
    take(shared, "a", 2)
    say(shared, "a", 0, 1, GAP)

    assert shared.start == 1


def test_a_message_is_given_up_after_its_last_delivery() -> None:
    shared = queue(max_deliveries=3)
    for deliveries in (1, 2, 3):
        assert take(shared, "a", 1, end=1) == [(0, 1, deliveries)]
        say(shared, "a", 0, 1, RELEASE)

    assert (shared.start, shared.end) == (1, 1)
    assert shared.dead_letters(10) == []


def test_locks_that_run_out_count_as_deliveries() -> None:
    shared = queue(max_deliveries=2)
    take(shared, "a", 1)
    shared.tick(after(LOCK_MS))
    take(shared, "a", 1, now=after(LOCK_MS))
    shared.tick(after(2 * LOCK_MS))

    assert shared.start == 1


def test_dead_letters_keep_their_place_until_they_are_moved() -> None:
    shared = queue(max_deliveries=1, dead_letter_topic="orders.dead")
    take(shared, "a", 3)
    say(shared, "a", 0, 1, REJECT)
    say(shared, "a", 1, 2, RELEASE)
    say(shared, "a", 2, 3)

    assert shared.dead_letters(10) == [(0, 1, 1, True), (1, 2, 1, False)]
    assert shared.dead_letters(1) == [(0, 1, 1, True)]
    assert shared.start == 0
    assert take(shared, "b", 9, end=3) == []
    change = shared.take_change()
    assert change is not None
    assert change.batches == (
        (0, 1, REJECTED, 1),
        (1, 2, ARCHIVING, 1),
        (2, 3, ACKNOWLEDGED, 0),
    )
    shared.moved(Offset(0), Offset(2))
    assert shared.start == 3


def test_a_failed_message_waits_longer_each_time() -> None:
    shared = queue(retry_backoff_ms=100, retry_backoff_max_ms=250, max_deliveries=10)
    now = NOW
    for pause_ms in (100, 200, 250, 250):
        take(shared, "a", 1, end=1, now=now)
        say(shared, "a", 0, 1, RELEASE, now)

        assert take(shared, "b", 1, end=1, now=after(now - NOW + pause_ms - 1)) == []
        assert shared.next_deadline() == now + pause_ms
        now = after(now - NOW + pause_ms)
        assert shared.tick(now)


def test_a_waiting_message_does_not_keep_others_waiting() -> None:
    shared = queue(retry_backoff_ms=1_000)
    take(shared, "a", 2)
    say(shared, "a", 0, 1, RELEASE)

    assert take(shared, "b", 2, end=4) == [(2, 4, 1)]


def test_retention_takes_what_nobody_settled() -> None:
    shared = queue()
    take(shared, "a", 10)
    say(shared, "a", 6, 7, RELEASE)
    shared.log_begins_at(Offset(8))

    assert shared.start == 8
    say(shared, "a", 0, 8)  # neither right nor wrong: it is gone
    say(shared, "a", 5, 9)
    assert shared.held_by("a") == [(9, 10, 1)]
    shared.log_begins_at(Offset(50))
    assert (shared.start, shared.end) == (50, 50)
    assert take(shared, "b", 1) == [(50, 51, 1)]
    assert shared.counts()[2:] == (0, 0, 1, 0, 0)


def test_a_change_says_what_is_over_and_not_what_is_under_way() -> None:
    shared = queue()
    take(shared, "a", 4)
    say(shared, "a", 0, 1, RELEASE)
    take(shared, "b", 1)
    say(shared, "a", 2, 3)
    change = shared.take_change()

    assert change is not None
    assert change == (0, 1, ((0, 1, AVAILABLE, 1), (2, 3, ACKNOWLEDGED, 0)))


def test_one_change_at_a_time_and_lost_ones_again() -> None:
    shared = queue()
    take(shared, "a", 4)
    say(shared, "a", 0, 1)
    asked = shared.version
    first = shared.take_change()
    say(shared, "a", 2, 3)

    assert first is not None
    assert shared.take_change() is None
    shared.change_lost()
    again = shared.take_change()
    assert again == (1, 1, ((2, 3, ACKNOWLEDGED, 0),))
    assert shared.stored < asked
    shared.change_written()
    assert shared.stored == shared.version > asked
    assert shared.take_change() is None


def test_the_next_leader_goes_on_where_the_last_one_stored() -> None:
    heir = queue(start=10, max_deliveries=5)
    heir.load(
        NOW,
        [
            StateBatch(Offset(20), Offset(25), ACKNOWLEDGED, 1),
            StateBatch(Offset(12), Offset(14), AVAILABLE, 2),
            StateBatch(Offset(8), Offset(11), ARCHIVED, 1),
            StateBatch(Offset(25), Offset(26), ARCHIVING, 5),
        ],
    )

    assert (heir.start, heir.end) == (11, 26)
    assert heir.dead_letters(9) == [(25, 26, 5, False)]
    got = take(heir, "a", 100, end=30)
    assert got == [(11, 12, 1), (12, 14, 3), (14, 20, 1), (26, 30, 1)]


def test_what_had_to_wait_waits_once_more_under_the_next_leader() -> None:
    heir = queue(retry_backoff_ms=100)
    heir.load(NOW, [StateBatch(Offset(0), Offset(1), AVAILABLE, 2)])

    assert take(heir, "a", 1, end=1) == []
    assert take(heir, "a", 1, end=1, now=after(200)) == [(0, 1, 3)]


def test_a_flood_of_dead_letters_is_stopped() -> None:
    shared = queue(
        max_deliveries=1,
        dead_letter_topic="dead",
        dead_letter_breaker_part=0.5,
        dead_letter_breaker_least=3,
        dead_letter_breaker_pause_ms=1_000,
    )
    take(shared, "a", 10)
    for offset in range(4):
        say(shared, "a", offset, offset + 1, REJECT)

    assert shared.breaker_state(NOW) == "open"
    assert shared.dead_letters(10) == [(0, 2, 1, True)]
    assert shared.next_offset(NOW) is None
    say(shared, "a", 4, 10, RELEASE)
    assert shared.dead_letters(10) == [(0, 2, 1, True)], "given up while the breaker is open"
    later = after(1_000)
    assert shared.tick(later)
    assert take(shared, "b", 10, now=later) == [(2, 3, 2)], "one probe"
    assert take(shared, "c", 10, now=later) == []
    say(shared, "b", 2, 3, now=later)
    assert shared.breaker_state(later) == "closed"
    assert len(take(shared, "c", 10, end=10, now=later)) > 0


def test_a_probe_that_fails_opens_the_breaker_again() -> None:
    shared = queue(
        max_deliveries=1, dead_letter_breaker_part=0.1, dead_letter_breaker_least=1
    )  # fmt: skip
    take(shared, "a", 1, end=1)
    say(shared, "a", 0, 1, REJECT)
    later = after(30_000)
    take(shared, "a", 1, end=1, now=later)
    say(shared, "a", 0, 1, REJECT, later)

    assert shared.breaker_state(later) == "open"
    assert shared.next_deadline() == later + 30_000
    assert shared.start == 0


def test_nothing_is_delivered_before_it_is_stored_where_the_queue_begins() -> None:
    shared = queue(start=700)
    shared.begin()

    assert shared.next_offset(NOW) is None
    assert shared.acquire(NOW, "a", 5, Offset(700), Offset(800)) == []
    assert shared.take_change() == (700, 0, ())
    shared.change_written()
    assert take(shared, "a", 5) == [(700, 705, 1)]


# --- receipts -----------------------------------------------------------------------------------


def test_what_is_released_for_later_waits_so_long_and_counts_once() -> None:
    shared = queue()
    take(shared, "a", 1)
    shared.acknowledge(NOW, "a", [Acknowledgement(Offset(0), Offset(1), RELEASE, 5_000)])

    assert take(shared, "b", 1, end=1, now=after(4_999)) == []
    assert take(shared, "b", 1, end=1, now=after(5_000)) == [(0, 1, 2)]


def test_a_lock_is_renewed_for_as_long_as_was_said() -> None:
    shared = queue()
    take(shared, "a", 2)
    shared.acknowledge(NOW, "a", [Acknowledgement(Offset(0), Offset(1), RENEW, 10 * LOCK_MS)])
    shared.acknowledge(NOW, "a", [Acknowledgement(Offset(1), Offset(2), RENEW, 100)])

    assert take(shared, "b", 2, end=2, now=after(100)) == [(1, 2, 2)]
    assert shared.held_by("a") == [(0, 1, 1)]
    assert take(shared, "b", 2, end=2, now=after(10 * LOCK_MS)) == [(0, 1, 2), (1, 2, 3)]
