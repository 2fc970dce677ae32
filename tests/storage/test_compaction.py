"""A pass of compaction: what it takes, what it leaves, and what it leaves alone."""

from collections.abc import Callable, Iterator

import pytest

from tests.storage.building import (
    FOLDER,
    NAME,
    NOW,
    ROOT,
    TOPIC_ID,
    append,
    checkpoint,
    flush,
    names_in,
    offsets,
    open_directory,
    overwrite,
    read_all,
    segment_name,
)
from tests.storage.compacting import (
    COMPACT,
    compact,
    dirt_in,
    keyed,
    new_compacted,
    pass_over,
    put,
    rows_in,
    settled,
)
from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import batches
from waystation.storage.cleanable import dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.directory import DataDirectory
from waystation.storage.log import Log
from waystation.storage.retention import retire
from waystation.storage.rewriting import Writing
from waystation.testing.disk import SimulatedDisk

PADDING = b"x" * 150
DAY_MS = 86_400_000


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def opened(disk: SimulatedDisk) -> tuple[DataDirectory, Log]:
    """Nine records of three keys in three segments, and an empty active one."""
    directory, log = new_compacted(disk)
    put(log, [(b"k%d" % (number % 3), PADDING + b"%d" % number) for number in range(9)])
    settled(directory, log)
    assert offsets(log) == [0, 2, 4, 6, 8, 9]
    return directory, log


def reopen(directory: DataDirectory, disk: SimulatedDisk) -> tuple[DataDirectory, Log]:
    directory.unlock()
    directory = open_directory(disk)
    (log,) = directory.open_logs(lambda _: COMPACT)
    return directory, log


def carry_out(compaction: Compaction) -> None:
    exhaust(compaction.steps())


def exhaust(steps: Iterator[Callable[[], None]]) -> None:
    for work in steps:
        work()


LAST = [(6, b"k0", PADDING + b"6"), (7, b"k1", PADDING + b"7"), (8, b"k2", PADDING + b"8")]


def test_the_last_record_of_each_key_is_left(opened: tuple[DataDirectory, Log]) -> None:
    _, log = opened
    compaction = compact(log)

    assert rows_in(log) == LAST
    assert (log.log_start, log.log_end, log.clean_end, compaction.end) == (0, 9, 9, 9)
    assert compaction.finished
    assert log.size_bytes == sum(one.size_bytes for one in log.segments)
    assert compaction.freed_bytes > 0
    assert append(log, keyed((b"k0", b"next"))).base_offset == 9


def test_small_segments_become_one(opened: tuple[DataDirectory, Log]) -> None:
    directory, log = opened
    compact(log)
    assert offsets(log) == [0, 2, 4, 6, 8, 9]  # two of the old ones are too large together
    compact(log)

    assert offsets(log) == [0, 6, 8, 9]
    assert rows_in(log) == LAST
    directory.purge(NOW)
    assert [name for name in names_in(directory.disk, FOLDER) if name.endswith(".log")] == [
        segment_name(0),
        segment_name(6),
        segment_name(8),
        segment_name(9),
    ]


def test_it_is_the_same_after_a_restart(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    directory, log = opened
    compact(log)
    before = read_all(log)
    disk.crash()
    directory, log = reopen(directory, disk)

    assert read_all(log) == before
    assert (log.clean_end, log.damage) == (9, [])
    assert disk.read(ROOT / "cleaner-offset-checkpoint") == b"0\n1\norders 0 9\n"


def test_the_indexes_are_those_of_the_new_segments(opened: tuple[DataDirectory, Log]) -> None:
    _, log = opened
    compact(log)
    compact(log)
    for offset in range(9):
        found = log.read(Offset(offset), 1, log.log_end)
        assert found.region is not None
        ((_, header),) = batches(found.region.read())

        assert header.next_offset > offset
        assert header.next_offset == found.next_offset or header.base_offset > offset
    assert log.find_by_time(Millis(NOW)) == (6, NOW)
    assert log.max_timestamp() == (6, NOW)


def test_readers_of_the_old_segments_read_on(opened: tuple[DataDirectory, Log]) -> None:
    directory, log = opened
    regions = [log.read(Offset(at), 1 << 20, log.log_end).region for at in (0, 3, 6)]
    before = [one.read() for one in regions if one is not None]
    compact(log)
    directory.purge(Millis(NOW + 1))

    assert [one.read() for one in regions if one is not None] == before


def test_a_log_that_is_clean_is_left_alone(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    _, log = opened
    while compact(log).freed_bytes:
        pass
    before = list(log.segments)
    compact(log)

    assert dirt_in(log).dirty_bytes == 0
    assert log.segments[-3:] == before[-3:]
    assert rows_in(log) == LAST


def test_a_map_that_is_full_takes_several_passes(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    rows = [(b"k%d" % (number % 20), PADDING + b"%d" % number) for number in range(60)]
    put(log, rows)
    settled(directory, log)
    ends = []
    while dirt_in(log).dirty_bytes:
        ends.append(compact(log, map_bytes=24 * 8).end)

    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert rows_in(log) == [(at, *rows[at]) for at in range(40, 60)]


def test_the_end_of_a_full_map_may_lie_within_a_batch(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    append(log, keyed(*((b"k%d" % number, b"old") for number in range(10))))
    append(log, keyed(*((b"k%d" % number, b"new") for number in range(10))))
    settled(directory, log)

    assert compact(log, map_bytes=24 * 8).end == 6
    assert len(rows_in(log)) == 20
    while dirt_in(log).dirty_bytes:
        compact(log, map_bytes=24 * 8)
    assert rows_in(log) == [(10 + n, b"k%d" % n, b"new") for n in range(10)]


# --- tombstones -----------------------------------------------------------------------------


def test_a_tombstone_goes_when_its_time_has_come(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    put(log, [(b"a", b"1"), (b"b", b"2"), (b"a", None)])
    settled(directory, log)

    assert compact(log, NOW).horizon == NOW + DAY_MS
    assert rows_in(log) == [(1, b"b", b"2"), (2, b"a", None)]
    assert compact(log, NOW + DAY_MS - 1).horizon == NOW + DAY_MS
    assert rows_in(log) == [(1, b"b", b"2"), (2, b"a", None)]
    assert compact(log, NOW + DAY_MS).horizon is None
    assert rows_in(log) == [(1, b"b", b"2")]
    assert log.log_end == 3


# --- producers ------------------------------------------------------------------------------


def test_the_last_sequence_of_a_producer_survives_all_its_records(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    sent = [keyed((b"a", b"%d" % n), producer=7, sequence=n) for n in range(3)]
    for batch in sent:
        append(log, batch)
    put(log, [(b"a", b"other")])
    settled(directory, log)
    compact(log)
    headers = [header for _, header in batches(read_all(log))]

    assert [(one.base_offset, one.records_count) for one in headers] == [(2, 0), (3, 1)]
    assert (headers[0].producer_id, headers[0].base_sequence) == (7, 2)
    # Without the snapshots, from the log alone:
    for name in names_in(disk):
        if name.endswith(".snapshot"):
            disk.unlink(FOLDER / name)
    _, log = reopen(directory, disk)
    assert append(log, sent[2]).duplicate
    assert append(log, keyed((b"a", b"next"), producer=7, sequence=3)).base_offset == 4


# --- what is left alone ---------------------------------------------------------------------


def test_the_active_segment_is_left_alone(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    put(log, [(b"a", b"1"), (b"a", b"2")])
    flush(log)
    checkpoint(directory)
    compact(log)

    assert [value for _, _, value in rows_in(log)] == [b"1", b"2"]


@pytest.mark.parametrize(("mark", "end"), [(0, 0), (1, 0), (2, 2), (5, 4), (6, 6), (9, 9)])
def test_nothing_at_or_past_the_high_watermark_is_cleanable(
    opened: tuple[DataDirectory, Log], mark: int, end: int
) -> None:
    assert dirt_of(opened[1], Offset(mark), NOW).end == end


def test_nothing_past_the_recovery_point_is_cleanable(disk: SimulatedDisk) -> None:
    directory, log = new_compacted(disk)
    put(log, [(b"a", PADDING)] * 4)
    checkpoint(directory)
    put(log, [(b"a", PADDING)] * 4)
    flush(log)

    assert log.recovery_point == 4
    assert dirt_in(log).end == 4


def test_what_is_younger_than_the_lag_is_not_cleanable(disk: SimulatedDisk) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact",), segment_bytes=500, min_compaction_lag_ms=1_000
    )
    directory, log = new_compacted(disk, settings)
    put(log, [(b"a", PADDING)] * 2, NOW - 2_000)
    put(log, [(b"a", PADDING)] * 2, NOW - 500)
    put(log, [(b"a", PADDING)] * 2, NOW - 2_000)
    settled(directory, log)

    assert dirt_in(log, NOW).end == 2
    assert dirt_in(log, NOW + 500).end == 6


def test_what_is_older_than_the_greatest_lag_is_overdue(disk: SimulatedDisk) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact",), segment_bytes=500, max_compaction_lag_ms=1_000
    )
    directory, log = new_compacted(disk, settings)
    put(log, [(b"a", PADDING)], NOW)
    flush(log)
    checkpoint(directory)
    log.active.created_at = NOW

    assert not log.maybe_roll(Millis(NOW + 999))
    assert log.maybe_roll(Millis(NOW + 1_000)), "the active segment cannot be compacted"
    checkpoint(directory)
    assert not dirt_in(log, NOW + 1_000).overdue
    assert dirt_in(log, NOW + 1_001).overdue
    compact(log, NOW + 1_001)
    assert not dirt_in(log, NOW + 9_999).overdue


def test_how_dirty_a_log_is(opened: tuple[DataDirectory, Log]) -> None:
    directory, log = opened
    assert dirt_in(log).ratio == 1
    compact(log)
    clean_bytes = log.size_bytes
    assert dirt_in(log).ratio == 0
    put(log, [(b"k0", b"")])
    settled(directory, log)
    added_bytes = log.size_bytes - clean_bytes

    assert dirt_in(log).ratio == added_bytes / log.size_bytes


def test_a_damaged_log_is_left_as_it_is(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    directory, log = opened
    before = read_all(log)
    overwrite(disk, FOLDER / segment_name(4), b"!", 100)
    damaged = read_all(log)
    assert damaged != before
    compaction = pass_over(log)

    with pytest.raises(CorruptBatchError):
        carry_out(compaction)
    compaction.abandon()

    assert read_all(log) == damaged
    assert log.clean_end == 0
    assert not [name for name in names_in(disk) if name.endswith((".cleaned", ".swap"))]
    assert directory.offline is None


# --- meanwhile ------------------------------------------------------------------------------


@pytest.mark.parametrize("after", range(12))
def test_retention_may_take_segments_in_the_middle_of_a_pass(
    disk: SimulatedDisk, after: int
) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact", "delete"),
        segment_bytes=500,
        retention_ms=1_000,
        file_delete_delay_ms=0,
    )
    directory, log = new_compacted(disk, settings)
    put(log, [(b"a", PADDING)] * 2, NOW - 5_000)
    put(log, [(b"b", PADDING), (b"c", PADDING)] * 2, NOW)
    settled(directory, log)
    done = 0
    for done, work in enumerate(pass_over(log).steps()):
        work()
        if done == after:
            retire(log, NOW, log.flushed_end)
            directory.plan_log_starts()()
            directory.drop_retired(log, NOW)
    if done < after:
        retire(log, NOW, log.flushed_end)
    directory.plan_log_starts()()
    directory.drop_retired(log, NOW)
    directory.purge(NOW)

    assert log.log_start in (2, 4)  # what is left without records may go as well
    assert [key for _, key, _ in rows_in(log)][-2:] == [b"b", b"c"]
    files = [name for name in names_in(disk) if not name.endswith((".snapshot", "checkpoint"))]
    kept = {
        segment_name(at, end) for at in offsets(log) for end in (".log", ".index", ".timeindex")
    }
    assert set(files) <= kept | {"partition.metadata"}


@pytest.mark.parametrize("after", range(12))
def test_a_log_may_be_deleted_in_the_middle_of_a_pass(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk, after: int
) -> None:
    directory, log = opened
    for done, work in enumerate(pass_over(log).steps()):
        work()
        if done == after:
            directory.delete_log(log)
            again = directory.create_log(NAME, TOPIC_ID, COMPACT)

    if not directory.holds(log):
        names = names_in(disk)
        assert [name for name in names if name.endswith(".log")] == [segment_name(0)]
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert again.clean_end == 0


@pytest.mark.parametrize("after", range(12))
def test_a_log_may_begin_elsewhere_in_the_middle_of_a_pass(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk, after: int
) -> None:
    directory, log = opened
    for done, work in enumerate(pass_over(log).steps()):
        work()
        if done == after:
            log.start_at(Offset(50))
            put(log, [(b"new", b"1")])
            flush(log)
    cut = log.log_start == 50
    disk.crash()
    _, log = reopen(directory, disk)

    assert rows_in(log) == ([(50, b"new", b"1")] if cut else LAST)
    assert log.clean_end == (0 if cut else 9)


def test_a_full_disk_puts_it_off(opened: tuple[DataDirectory, Log], disk: SimulatedDisk) -> None:
    directory, log = opened
    before = read_all(log)
    disk.space_bytes = 100
    compaction = pass_over(log)

    with pytest.raises(OSError, match="are needed"):
        carry_out(compaction)
    compaction.abandon()

    assert read_all(log) == before
    assert directory.offline is None
    disk.space_bytes = None
    assert compact(log).finished
    assert rows_in(log) == LAST


def test_space_that_runs_out_meanwhile_is_given_back(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, log = opened
    before = read_all(log)
    directory.reserve.nbytes = 0
    compaction = pass_over(log)
    steps = compaction.steps()
    for _ in range(3):
        next(steps)()
    monkeypatch.setattr(Writing, "_check_space", lambda _: None)
    disk.space_bytes = 50
    with pytest.raises(OSError, match="No space"):
        exhaust(steps)
    compaction.abandon()

    assert disk.space_bytes == 50
    assert not [name for name in names_in(disk) if name.endswith((".cleaned", ".swap"))]
    assert rows_in(log)[-3:] == LAST
    assert len(read_all(log)) <= len(before)


# --- gaps -----------------------------------------------------------------------------------


def test_a_tail_is_cut_where_compaction_left_a_gap(opened: tuple[DataDirectory, Log]) -> None:
    _, log = opened
    compact(log)
    log.truncate_to(Offset(3))

    assert (log.log_end, log.clean_end) == (3, 3)
    assert log.read(Offset(2), 1, log.log_end) == (None, 2)
    assert append(log, keyed((b"a", b"1"))).base_offset == 3
    assert rows_in(log) == [(3, b"a", b"1")]


def test_gaps_are_no_damage_when_nothing_vouches_for_them(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    """Without checkpoints and snapshots everything is verified again."""
    directory, log = opened
    compact(log)
    compact(log)
    before = read_all(log)
    for name in names_in(disk):
        if name.endswith((".snapshot", ".index")):
            disk.unlink(FOLDER / name)
    for name in names_in(disk, ROOT):
        if name.endswith("-checkpoint"):
            disk.unlink(ROOT / name)
    _, log = reopen(directory, disk)

    assert read_all(log) == before
    assert (log.damage, log.log_end, log.clean_end) == ([], 9, 0)


def test_a_topic_that_is_compacted_no_more_keeps_its_gaps(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    directory, log = opened
    compact(log)
    before = read_all(log)
    for name in names_in(disk):
        if name.endswith(".snapshot"):
            disk.unlink(FOLDER / name)
    disk.unlink(ROOT / "recovery-point-offset-checkpoint")
    directory.unlock()
    directory = open_directory(disk)
    (log,) = directory.open_logs(lambda _: TopicSettings())

    assert read_all(log) == before
    assert log.damage == []


def test_retention_does_not_touch_a_log_that_is_only_compacted(disk: SimulatedDisk) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact",), segment_bytes=500, retention_ms=1, retention_bytes=1
    )
    directory, log = new_compacted(disk, settings)
    put(log, [(b"a", PADDING)] * 4, NOW - 5_000)
    settled(directory, log)

    assert retire(log, NOW, log.log_end) == 0


def test_headers_without_records_do_not_keep_a_log_from_expiring(disk: SimulatedDisk) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact", "delete"), segment_bytes=500, retention_ms=1_000
    )
    directory, log = new_compacted(disk, settings)
    put(log, [(b"a", PADDING)] * 4, NOW - 500)
    settled(directory, log)
    compact(log)
    assert log.segments[0].max_timestamp == -1

    assert retire(log, Millis(NOW + 600), log.log_end) > 0
    assert log.log_start == 4


def test_a_log_made_anew_under_the_same_name_was_never_compacted(
    opened: tuple[DataDirectory, Log], disk: SimulatedDisk
) -> None:
    directory, log = opened
    compact(log)
    directory.delete_log(log)
    directory.create_log(NAME, TOPIC_ID, COMPACT)
    disk.crash()
    _, log = reopen(directory, disk)

    assert log.clean_end == 0
