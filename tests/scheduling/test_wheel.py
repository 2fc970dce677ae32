"""The next messages to fall due."""

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
    wheel.shed(keep)

    assert wheel.due(Millis(1_000), 100) == [d for d in sorted(set(added)) if d < wheel.edge]
