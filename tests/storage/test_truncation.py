"""A tail that no leader has is cut off, for good."""

import pytest

from tests.storage.building import (
    NOW,
    SMALL,
    append,
    append_values,
    batch_of,
    checkpoint,
    flush,
    names_in,
    new_log,
    offsets,
    open_log,
    values_of,
)
from tests.storage.compacting import compact, keyed, rows_in
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.directory import DataDirectory
from waystation.storage.log import Log
from waystation.storage.truncation import CutPlan
from waystation.testing.disk import SimulatedDisk

VALUES = [b"%d" % number * 100 for number in range(10)]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.mark.parametrize("offset", range(10))
def test_everything_from_the_offset_on_goes(disk: SimulatedDisk, offset: int) -> None:
    log = new_log(disk)[1]
    append_values(log, *VALUES)

    log.truncate_to(Offset(offset))

    assert (log.log_end, log.flushed_end) == (offset, offset)
    assert values_of(log) == VALUES[:offset]
    assert append(log, batch_of(b"new")).base_offset == offset
    assert values_of(log) == [*VALUES[:offset], b"new"]


@pytest.mark.parametrize("seed", range(20))
def test_the_old_tail_never_comes_back(seed: int) -> None:
    disk = SimulatedDisk(seed)
    directory, log = new_log(disk)
    append_values(log, *VALUES)
    flush(log)
    checkpoint(directory)
    log.truncate_to(Offset(4))
    append_values(log, b"other" * 50)
    flush(log)
    disk.crash()

    log = open_log(disk)[1]

    assert values_of(log) == [*VALUES[:4], b"other" * 50]


def test_a_batch_that_holds_the_offset_goes_as_a_whole(disk: SimulatedDisk) -> None:
    log = new_log(disk)[1]
    append(log, batch_of(b"a"))
    append(log, batch_of(b"b", b"c", b"d"))

    log.truncate_to(Offset(2))

    assert log.log_end == 1


def test_nothing_vouches_for_a_part_of_a_batch_that_went(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append(log, batch_of(b"a"))
    append(log, batch_of(b"b", b"c", b"d"))
    flush(log)
    checkpoint(directory)
    log.truncate_to(Offset(3))

    assert (log.log_end, log.recovery_point) == (1, 1)


def test_producers_and_epochs_of_the_tail_are_forgotten(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append(log, batch_of(b"a", producer=9, sequence=0), epoch=1)
    checkpoint(directory)
    append(log, batch_of(b"b", producer=9, sequence=1), epoch=2)
    append(log, batch_of(b"c", producer=8, sequence=0), epoch=2)

    log.truncate_to(Offset(1))

    assert log.epochs.latest == 1
    assert [(one.producer_id, one.last_sequence) for one in log.producers.active()] == [(9, 0)]


def test_a_log_can_begin_anew_at_any_offset(disk: SimulatedDisk) -> None:
    log = new_log(disk)[1]
    append_values(log, *VALUES)
    log.start_at(Offset(5_000))

    assert (log.log_start, log.log_end, offsets(log)) == (5_000, 5_000, [5_000])
    append_values(log, b"new")
    flush(log)
    disk.crash()

    log = open_log(disk, SMALL)[1]
    assert (log.log_start, log.log_end) == (5_000, 5_001)
    assert values_of(log) == [b"new"]


def test_a_checkpoint_begun_before_the_cut_vouches_for_nothing(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, *VALUES)
    write = next(directory.checkpoint_steps({}))
    log.truncate_to(Offset(4))
    write()

    assert log.recovery_point <= 4
    append_values(log, b"other")
    flush(log)
    disk.crash()
    assert values_of(open_log(disk)[1]) == [*VALUES[:4], b"other"]


def test_the_newest_record_is_known_after_a_crash_and_a_cut() -> None:
    """An index entry of a batch that the crash took is dropped, and no other."""
    disk = SimulatedDisk()
    directory, log = new_log(disk, TopicSettings(index_interval_bytes=100))
    for later_ms in (100, 0, 200):
        append(log, batch_of(b"x" * 200, timestamp=NOW + later_ms))
    checkpoint(directory)
    size_bytes = log.active.size_bytes
    append(log, batch_of(b"x" * 200, timestamp=NOW + 300))
    log.active.save_indexes()
    log.active.file().truncate(size_bytes)
    directory.unlock()
    _, log = open_log(disk, TopicSettings(index_interval_bytes=100))
    log.truncate_to(Offset(2))

    assert log.max_timestamp() == (0, NOW + 100)
    assert log.find_by_time(Millis(NOW + 50)) == (0, NOW + 100)


def many_producers(disk: SimulatedDisk) -> tuple[DataDirectory, Log]:
    """Several segments, with snapshots on the way; each producer writes a few times."""
    directory, log = new_log(disk, SMALL)
    for number in range(40):
        batch = batch_of(b"%d" % number * 50, producer=number % 7, sequence=number // 7)
        append(log, batch)
        if number % 13 == 12:
            flush(log)
            checkpoint(directory)
    flush(log)
    return directory, log


def known_to(log: Log) -> list[tuple[int, int]]:
    return sorted((one.producer_id, one.last_sequence) for one in log.producers.active())


@pytest.mark.parametrize("offset", [1, 12, 13, 14, 26, 33, 39])
def test_a_cut_that_was_planned_ends_as_one_that_was_not(offset: int) -> None:
    planned, at_once = many_producers(SimulatedDisk())[1], many_producers(SimulatedDisk())[1]
    plan = CutPlan(planned, Offset(offset))
    plan.work()
    assert plan.producers is not None
    planned.truncate_to(Offset(offset), plan)
    at_once.truncate_to(Offset(offset))

    assert planned.producers is plan.producers, "it was of no use"
    assert known_to(planned) == known_to(at_once)
    assert values_of(planned) == values_of(at_once)


def test_a_plan_for_what_the_log_was_before_is_not_followed(disk: SimulatedDisk) -> None:
    log = many_producers(disk)[1]
    plan = CutPlan(log, Offset(20))
    plan.work()
    append(log, batch_of(b"new", producer=9, sequence=0))
    assert not plan.suits(log)
    log.truncate_to(Offset(30))
    log.truncate_to(Offset(20), plan)

    assert log.producers is not plan.producers
    assert log.log_end == 20


def test_a_plan_that_could_not_be_worked_out_is_done_without(disk: SimulatedDisk) -> None:
    log = many_producers(disk)[1]
    plan = CutPlan(log, Offset(20))
    for one in names_in(disk, log.path):
        if one.endswith(".snapshot"):
            disk.unlink(log.path / one)
    log.snapshots.clear()
    plan.work()
    log.truncate_to(Offset(20), plan)

    assert plan.producers is None
    assert log.log_end == 20


def test_what_is_cut_off_is_removed_later(disk: SimulatedDisk) -> None:
    directory, log = many_producers(disk)
    log.truncate_to(Offset(3))
    assert any(one.endswith(".deleted") for one in names_in(disk, log.path))

    directory.purge(NOW)
    assert not any(one.endswith(".deleted") for one in names_in(disk, log.path))
    assert known_to(log) == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_what_tears_behind_a_cut_in_a_gap_of_compaction_is_cut_too(seed: int) -> None:
    """Of the segment nothing is left, and what is vouched for begins behind its first offset."""
    disk = SimulatedDisk(seed)
    settings = TopicSettings(cleanup_policy=("compact",), segment_bytes=1 << 20)
    directory, log = new_log(disk, settings)
    for key in (b"a", b"a", b"a", b"b", b"a"):
        append(log, keyed((key, b"old")))
    log.roll()
    flush(log)
    checkpoint(directory)
    compact(log)
    assert rows_in(log) == [(3, b"b", b"old"), (4, b"a", b"old")]
    log.truncate_to(Offset(3))
    tail = [(number, b"%d" % number, b"%d" % number * 900) for number in range(3, 8)]
    for _, key, value in tail:
        append(log, keyed((key, value)))
    disk.crash()

    log = open_log(disk, settings)[1]

    assert 3 <= log.log_end <= 8
    assert rows_in(log) == tail[: log.log_end - 3]
    assert append(log, keyed((b"new", b""))).base_offset == log.log_end - 1
