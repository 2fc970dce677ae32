"""Deadlines: the earliest is known, each falls due once, whatever was moved or cancelled."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.deadlines import Deadlines
from waystation.model.offsets import Millis

NAMES = st.sampled_from("abcde")
MOMENTS = st.integers(0, 50).map(Millis)


def test_the_soonest_falls_due_first_and_once() -> None:
    deadlines = Deadlines()
    deadlines.set("late", Millis(9))
    deadlines.set("soon", Millis(3))
    deadlines.set("sooner", Millis(2))

    assert deadlines.earliest() == 2
    assert deadlines.due(Millis(5)) == ["sooner", "soon"]
    assert deadlines.due(Millis(5)) == []
    assert deadlines.earliest() == 9


def test_a_deadline_that_was_moved_counts_where_it_is_now() -> None:
    deadlines = Deadlines()
    deadlines.set("a", Millis(3))
    deadlines.set("a", Millis(8))

    assert deadlines.due(Millis(5)) == []
    assert deadlines.earliest() == 8

    deadlines.set("a", Millis(6))

    assert deadlines.due(Millis(6)) == ["a"]
    assert deadlines.earliest() is None


def test_moving_a_deadline_on_does_not_let_the_queue_grow() -> None:
    deadlines = Deadlines()
    for beat in range(10_000):
        deadlines.set("a", Millis(beat))

    assert len(deadlines._queue) == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), NAMES, MOMENTS | st.none()),
            st.tuples(st.just("cancel"), NAMES),
            st.tuples(st.just("due"), MOMENTS),
        )
    )
)
def test_deadlines_agree_with_a_plain_table(steps: list[tuple[str, ...]]) -> None:
    deadlines, table = Deadlines(), dict[str, int]()
    for step in steps:
        match step:
            case ("set", name, at):
                deadlines.set(name, at)  # type: ignore[arg-type]
                table.pop(name, None)
                if at is not None:
                    table[name] = at  # type: ignore[assignment]
            case ("cancel", name):
                deadlines.cancel(name)
                table.pop(name, None)
            case ("due", now):
                due = [name for name, at in table.items() if at <= now]  # type: ignore[operator]
                assert sorted(deadlines.due(now)) == sorted(due)  # type: ignore[arg-type]
                for name in due:
                    del table[name]
        assert deadlines.earliest() == min(table.values(), default=None)
        assert all(name in deadlines for name in table)
