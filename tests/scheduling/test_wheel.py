"""The next messages to fall due."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.offsets import Millis
from waystation.scheduling.wheel import Due, TimingWheel

END = (1 << 62, 0)
dues = st.lists(st.tuples(st.integers(-40, 200), st.integers(0, 5)), max_size=40)


@given(dues, dues, st.integers(0, 220), st.integers(1, 50))
def test_what_is_due_comes_by_time_and_offset(
    added: list[Due], gone: list[Due], now: int, limit: int
) -> None:
    wheel = TimingWheel(END)
    for due in added:
        wheel.add(due)
    for due in gone:
        wheel.discard(due)
    left = sorted(set(added) - set(gone))

    assert wheel.due(Millis(now), limit) == [one for one in left if one[0] <= now][:limit]
    assert wheel.due(Millis(now), limit) == [one for one in left if one[0] <= now][:limit]
    assert wheel.first() == (left[0] if left else None)
    assert wheel.count == len(left)


def test_a_clock_that_steps_back_makes_nothing_due() -> None:
    wheel = TimingWheel(END)
    wheel.add((100, 1))

    assert wheel.due(Millis(100), 9) == [(100, 1)]
    assert wheel.due(Millis(99), 9) == []


def test_a_slot_that_went_and_came_is_there_once() -> None:
    wheel = TimingWheel(END)
    wheel.add((100, 1))
    wheel.discard((100, 1))
    wheel.add((101, 2))

    assert wheel.due(Millis(200), 9) == [(101, 2)]


@given(dues, st.integers(1, 20))
def test_what_is_shed_lies_at_or_behind_the_edge(added: list[Due], keep: int) -> None:
    wheel = TimingWheel(END)
    for due in added:
        wheel.add(due)
    wheel.shed(keep, 1_000)

    assert wheel.due(Millis(1_000), 100) == [d for d in sorted(set(added)) if d < wheel.edge]


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 9))), st.integers(1, 9))
def test_shedding_bit_by_bit_lets_the_same_go(added: list[Due], most: int) -> None:
    at_once, slowly = TimingWheel(END), TimingWheel(END)
    for due in added:
        at_once.add(due)
        slowly.add(due)
    at_once.shed(5, 1_000)
    for _ in range(len(added)):
        before, largest = slowly.count, 16 * 10
        slowly.shed(5, most)
        assert before - slowly.count < most + largest

    assert slowly.edge == at_once.edge
    assert slowly.due(Millis(6_000), 9_999) == at_once.due(Millis(6_000), 9_999)


def test_one_step_of_shedding_costs_little_however_much_there_is() -> None:
    wheel = TimingWheel(END)
    for number in range(10_000):
        wheel.add((number * 16, number))

    wheel.shed(1_000, 200)

    assert wheel.count == 9_800


def test_slots_that_come_and_go_are_not_remembered() -> None:
    wheel = TimingWheel(END)
    for number in range(50_000):
        wheel.add((1_000_000 + number * 16, 0))
        wheel.discard((1_000_000 + number * 16, 0))

    assert len(wheel._numbers) + len(wheel._backwards) < 50_000


def test_what_is_held_is_nothing_to_the_garbage_collector() -> None:
    wheel = TimingWheel(END)
    for number in range(1_000):
        wheel.add((number * 4, number))

    assert not any(gc.is_tracked(slot) for slot in wheel._slots.values())
