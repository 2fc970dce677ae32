from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import StorageError, WaystationError
from waystation.model.offsets import Offset
from waystation.partition.waiting import CommitWaiters, ReadWaiters


@given(st.lists(st.integers(1, 50)), st.lists(st.integers(1, 60)))
def test_nobody_is_told_before_the_mark_reaches_their_end(
    ends: list[int], marks: list[int]
) -> None:
    waiters, mark = CommitWaiters(), 0
    told: list[int] = []
    for end in ends:
        waiters.add(Offset(end), lambda error, end=end: told.append(end))  # type: ignore[misc]
    for mark in sorted(marks):
        waiters.release(Offset(mark))

        assert all(end <= mark for end in told)

    waiters.release(Offset(max([0, *ends])))

    assert told == ends


def test_a_failure_tells_everyone_once() -> None:
    waiters = CommitWaiters()
    told: list[WaystationError | None] = []
    waiters.add(Offset(1), told.append)
    waiters.add(Offset(2), told.append)
    lost = StorageError("the disk is gone")
    waiters.fail(lost)
    waiters.release(Offset(2))

    assert told == [lost, lost]


def test_readers_hear_of_many_changes_once_per_turn() -> None:
    turns: list[Callable[[], None]] = []
    waiters, told = ReadWaiters(turns.append), []
    reader = lambda: told.append("changed")  # noqa: E731, it must be one object
    waiters.add(reader)
    waiters.changed()
    waiters.changed()

    assert len(turns) == 1

    turns.pop()()

    assert told == ["changed"]

    waiters.remove(reader)
    waiters.changed()

    assert turns == []
