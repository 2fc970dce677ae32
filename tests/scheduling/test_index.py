"""What is pending, on disk: sums over files, whatever is merged, left behind or lost."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.scheduling import index as index_module
from waystation.scheduling import runs
from waystation.scheduling.errors import DamagedIndexError
from waystation.scheduling.index import FIRST, Index
from waystation.scheduling.runs import Cursor, Run, RunWriter, merged, summed
from waystation.scheduling.wheel import Due
from waystation.storage.schedule_files import ScheduleFiles
from waystation.testing.disk import SimulatedDisk

FOLDER = Path("/p/schedule")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(runs, "_PAGE_BYTES", 16 + 16 * 3)
    monkeypatch.setattr(index_module, "_MERGE_RUNS", 2)


def folder() -> ScheduleFiles:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER.parent)
    return ScheduleFiles(disk, FOLDER)


def written(index: Index) -> None:
    index.freeze()
    for steps in (index.write(), index.raise_starts(), index.sweep(), index.merge()):
        for step in steps:
            step()


def everything(index: Index, want: int = 2) -> list[Due]:
    found: list[Due] = []
    position: Due | None = FIRST
    while position is not None:
        some, position = index.read(position, want, go_on=True)
        found += some
    return found


def run_of(files: ScheduleFiles, number: int, entries: list[tuple[int, int]]) -> Run:
    writer = RunWriter(number, files.create(f"{number}.run"))
    writer.add(sorted(entries))
    run = writer.finish()
    assert run is not None
    return run


changes = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "write"]), st.integers(0, 12), st.integers(0, 6)),
    max_size=60,
)


@given(changes)
@settings(deadline=None, max_examples=60)
def test_the_index_holds_what_was_added_and_not_taken_back(
    given_changes: list[tuple[str, int, int]],
) -> None:
    index, model = Index(folder()), set[Due]()
    for change, due, offset in given_changes:
        match change:
            case "add" if (due, offset) not in model:
                index.add([(due, offset)])
                model.add((due, offset))
            case "remove" if (due, offset) in model:
                index.remove([(due, offset)])
                model.discard((due, offset))
            case "write":
                written(index)

        assert index.pending == len(model)
    assert everything(index) == sorted(model)
    assert index.count() == len(model)
    assert [one for one in sorted(model) if not index.holds(one)] == []
    assert not index.holds((13, 0))


def test_reading_goes_on_where_it_ended_whatever_is_written_meanwhile() -> None:
    index = Index(folder())
    index.add([(due, due) for due in range(20)])
    written(index)
    first, rest = index.read(FIRST, 5, go_on=True)
    assert rest is not None
    index.remove([(rest[0], rest[0])])
    index.add([(rest[0], 99)])
    written(index)
    found, _ = index.read(rest, 100, go_on=True)

    assert [*first, *found] == sorted(
        {(due, due) for due in range(20)} - {(rest[0], rest[0])} | {(rest[0], 99)}
    )


def test_files_of_the_past_are_removed() -> None:
    files = folder()
    index = Index(files)
    index.add([(due, due) for due in range(10)])
    written(index)
    index.remove([(due, due) for due in range(10)])
    written(index)
    written(index)

    assert index.runs == []
    assert files.names() == []


def test_what_is_added_before_what_was_left_behind_counts() -> None:
    index = Index(folder())
    index.add([(due, due) for due in range(10)])
    index.remove([(due, due) for due in range(5)])
    written(index)
    index.add([(2, 77), (3, 3)])
    written(index)
    written(index)

    assert everything(index) == [(2, 77), (3, 3), *((due, due) for due in range(5, 10))]


def test_a_table_that_cannot_be_written_is_not_lost() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FOLDER.parent)
    index = Index(ScheduleFiles(disk, FOLDER))
    index.add([(1, 1), (2, 2)])
    index.freeze()
    index.add([(3, 3)])
    disk.fail_sync()
    steps = index.write()
    step = next(steps)

    with pytest.raises(OSError, match="planted"):
        step()
    steps.close()

    assert everything(index) == [(1, 1), (2, 2), (3, 3)]
    written(index)
    assert everything(index) == [(1, 1), (2, 2), (3, 3)]


def test_files_that_no_checkpoint_names_are_removed_at_the_start() -> None:
    files = folder()
    index = Index(files)
    index.add([(1, 1)])
    written(index)
    named = index.named()
    index.add([(2, 2)])
    index.freeze()
    for step in index.write():
        step()

    again = Index(files, named, 1)

    assert everything(again) == [(1, 1)]
    assert len(files.names()) == 1


@pytest.mark.parametrize("at", [0, 5, 20, 100, 200])
def test_a_damaged_file_is_noticed(at: int) -> None:
    files = folder()
    run = run_of(files, 1, [(due, due << 1) for due in range(10)])
    file = files.open("1.run")
    file.pwrite(bytes([file.pread(1, at)[0] ^ 1]), at)

    with pytest.raises(DamagedIndexError, match="file 1 "):  # noqa: PT012, whoever reads it first
        opened = Run.opened(1, file, run.entries)
        list(merged([Cursor(opened, runs.BEGINNING)]))


def test_everything_about_one_record_at_one_time_comes_together() -> None:
    """The addition ends a page of one file, and what takes it back is in another."""
    files = folder()
    one = run_of(files, 1, [(1, 2), (1, 4), (2, 2), (3, 2), (4, 2)])
    other = run_of(files, 2, [(2, 3), (5, 2)])

    parts = [part for part, _ in merged([Cursor(run, runs.BEGINNING) for run in (one, other)])]

    assert [entry for part in parts for entry in part] == [(1, 2), (1, 4), (3, 2), (4, 2), (5, 2)]


def test_sums_keep_what_has_no_counterpart_here() -> None:
    assert summed([(1, 2), (1, 2), (1, 3), (2, 5)]) == [(1, 2), (2, 5)]
    assert summed([(1, 2), (1, 3), (1, 3)]) == [(1, 3)]


def test_a_count_that_goes_on_while_things_change_is_right_in_the_end() -> None:
    index = Index(folder())
    index.add([(due, due) for due in range(0, 10_000, 2)])
    index.remove([(7, 7), (9, 9)])  # never were there
    assert index.pending == 4_998

    for number, _ in enumerate(index.counting()):
        index.add([(number, 50_000 + number), (9_000 + number, 60_000 + number)])
        index.remove([(2 * number, 2 * number)])

    assert index.pending == index.count()
