"""Queues that choose: one message per key at a time, priorities, and no starvation."""

from random import Random

import pytest

from tests.sharing.queues import LOCK_MS, NOW, after, as_tuples, ordered, say
from waystation.model.offsets import Millis, Offset
from waystation.sharing.ordered_partition import OrderedPartition, Shown, priority_of
from waystation.sharing.states import (
    ACKNOWLEDGED,
    AVAILABLE,
    REJECT,
    RELEASE,
    StateBatch,
)


def show(queue: OrderedPartition, *messages: tuple[bytes | None, int] | None) -> None:
    """Show messages from where the queue wants them; ``None`` is an offset without one."""
    first = queue.admits_from()
    assert first is not None
    shown = [
        Shown(Offset(first + number), *message)
        for number, message in enumerate(messages)
        if message is not None
    ]
    queue.admit(Offset(first + len(messages)), shown)


def choose(queue: OrderedPartition, member: str, limit: int, now: Millis = NOW) -> list[int]:
    """The offsets that a consumer gets."""
    return [o for one in queue.choose(now, member, limit) for o in range(one.first, one.end)]


A, B, NO_KEY = (b"a", 0), (b"b", 0), (None, 0)


def test_one_message_per_key_is_out_at_a_time() -> None:
    queue = ordered(share_order="key")
    show(queue, A, A, B, NO_KEY, NO_KEY, A)

    assert choose(queue, "x", 10) == [0, 2, 3, 4]
    assert choose(queue, "y", 10) == []
    say(queue, "x", 0, 1)
    assert choose(queue, "y", 10) == [1]
    say(queue, "y", 1, 2)
    assert choose(queue, "x", 10) == [5]


def test_a_key_waits_for_its_oldest_message_to_be_settled() -> None:
    queue = ordered(share_order="key", max_deliveries=2)
    show(queue, A, A, B)
    choose(queue, "x", 1)
    say(queue, "x", 0, 1, RELEASE)

    assert choose(queue, "y", 10) == [0, 2]
    queue.tick(after(LOCK_MS))  # the second and last delivery came to nothing
    assert choose(queue, "y", 1, after(LOCK_MS)) == [1]


def test_a_key_waits_while_its_oldest_message_has_to() -> None:
    queue = ordered(share_order="key", retry_backoff_ms=100)
    show(queue, A, A, B)
    choose(queue, "x", 1)
    say(queue, "x", 0, 1, RELEASE)

    assert choose(queue, "y", 10) == [2], "others are served"
    assert choose(queue, "y", 10, after(99)) == []
    assert choose(queue, "y", 10, after(100)) == [0]


def test_a_dead_letter_does_not_block_its_key() -> None:
    queue = ordered(share_order="key", dead_letter_topic="dead")
    show(queue, A, A)
    choose(queue, "x", 1)
    say(queue, "x", 0, 1, REJECT)

    assert choose(queue, "x", 1) == [1]
    assert queue.dead_letters(9) == [(0, 1, 1, True)]


def test_a_blocked_key_costs_others_nothing_within_the_window() -> None:
    queue = ordered(share_order="key", share_priority_window=10)
    show(queue, A, *[A] * 5, *[B] * 3)
    choose(queue, "slow", 1)
    served = []
    for number in range(20):
        while queue.admits_from() is not None:
            show(queue, (b"other %d" % number, 0))
        served += choose(queue, "quick", 10)
        queue.acknowledge_all(NOW, "quick")

    assert len(served) > 20
    assert queue.start == 0


def test_the_window_bounds_what_is_remembered() -> None:
    queue = ordered(share_order="key", share_priority_window=4)
    show(queue, A, A, A, A)

    assert queue.admits_from() is None
    choose(queue, "x", 1)
    queue.acknowledge_all(NOW, "x")
    assert queue.admits_from() == 4


def test_the_highest_priority_goes_first_and_the_oldest_among_equals() -> None:
    queue = ordered(share_priority=True)
    show(queue, (None, 0), (None, 9), (None, 5), (None, 9))

    assert [choose(queue, "x", 1) for _ in range(5)] == [[1], [3], [2], [0], []]


def test_priorities_never_reorder_the_messages_of_one_key() -> None:
    queue = ordered(share_priority=True)
    show(queue, (b"k", 0), (b"k", 9), (None, 5), (b"k", 9))

    assert [choose(queue, "x", 1) for _ in range(4)] == [[2], [0], [1], [3]]


def test_what_comes_back_takes_its_place_in_its_key() -> None:
    queue = ordered(share_priority=True)
    show(queue, (b"k", 0), (b"k", 0), (b"k", 0))
    choose(queue, "x", 1)
    say(queue, "x", 0, 1, RELEASE)

    assert choose(queue, "y", 2) == [0, 1]


@pytest.mark.parametrize("patience", [1, 3, 20])
def test_the_oldest_is_passed_by_a_bounded_number_of_others(patience: int) -> None:
    queue = ordered(share_priority=True, share_priority_patience=patience)
    random, passed, waiting = Random(patience), 0, list[int]()
    show(queue, *[(None, 0)] * 3)
    for _ in range(400):
        show(queue, *[(b"%d" % random.randrange(9), random.randrange(1, 10))] * 2)
        waiting = list(queue._candidates)  # what may go
        oldest = min(waiting)
        (chosen,) = choose(queue, "x", 1)
        queue.acknowledge_all(NOW, "x")
        passed = 0 if chosen == oldest else passed + 1

        assert passed <= patience
    assert queue.start > 3


def test_offsets_without_a_message_are_passed_over() -> None:
    queue = ordered(share_order="key")
    show(queue, None, A, None, None, B, None)

    assert queue.start == 1
    assert choose(queue, "x", 9) == [1, 4]
    queue.acknowledge_all(NOW, "x")
    assert (queue.start, queue.end) == (6, 6)


def test_the_next_leader_keeps_the_order() -> None:
    queue = ordered(start=2, share_order="key", retry_backoff_ms=100)
    queue.load(
        NOW,
        [
            StateBatch(Offset(2), Offset(3), ACKNOWLEDGED, 0),
            StateBatch(Offset(4), Offset(5), AVAILABLE, 1),
            StateBatch(Offset(6), Offset(8), ACKNOWLEDGED, 0),
        ],
    )

    assert queue.admits_from() == 3
    assert choose(queue, "x", 9) == []
    show(queue, None, A, A, A, B, B)  # 3 to 8; 6 and 7 are settled
    assert choose(queue, "x", 9) == [8], "a must wait for 4, which has to wait itself"
    assert as_tuples(queue.choose(after(100), "y", 9)) == [(4, 5, 2)]
    say(queue, "y", 4, 5, now=after(100))
    assert choose(queue, "y", 9, after(100)) == [5]


def test_a_state_of_many_ranges_is_shown_all_the_same() -> None:
    queue = ordered(ranges=100, share_order="key", share_priority_window=1_000)
    settled = [StateBatch(Offset(o), Offset(o + 1), ACKNOWLEDGED, 0) for o in range(1, 400, 2)]
    queue.load(NOW, settled)
    show(queue, *[(b"%d" % number, 0) for number in range(400)])

    assert queue.admits_from() is None
    assert len(choose(queue, "x", 1_000)) == 200
    queue.acknowledge_all(NOW, "x")
    assert queue.admits_from() == 400


def test_retention_takes_messages_out_of_their_lines() -> None:
    queue = ordered(share_order="key")
    show(queue, A, A, A, B, NO_KEY)
    choose(queue, "x", 1)
    queue.log_begins_at(Offset(2))

    assert choose(queue, "y", 9) == [2, 3, 4]
    queue.acknowledge_all(NOW, "y")
    assert queue.candidates == 0
    queue.log_begins_at(Offset(50))
    assert queue.admits_from() == 50


@pytest.mark.parametrize(
    ("value", "meant"), [(b"7", 7), (b"0", 0), (None, 0), (b"10", 0), (b"x", 0), (b"", 0)]
)
def test_a_priority_is_one_digit(value: bytes | None, meant: int) -> None:
    assert priority_of(value) == meant
