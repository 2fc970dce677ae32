"""Damage by bits, hands and crashes: what is found, what is kept, what is said."""

from pathlib import Path

import pytest

from tests.storage.building import (
    FOLDER,
    ROOT,
    append,
    append_values,
    batch_of,
    checkpoint,
    file_of,
    flush,
    names_in,
    new_log,
    open_log,
    overwrite,
    read_all,
    restart,
    segment_name,
    values_of,
)
from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import HEADER_BYTES, check
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.testing.disk import SimulatedDisk

# Recovery begins with the last index entry: without any it looks at the whole segment.
WITHOUT_INDEX = TopicSettings(segment_bytes=500, index_interval_bytes=1_000)
VALUES = [b"%d" % number * 60 for number in range(10)]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def directory(disk: SimulatedDisk) -> DataDirectory:
    """With a log of ten batches in four segments, flushed, the first six checkpointed."""
    directory, log = new_log(disk)
    append_values(log, *VALUES[:6])
    checkpoint(directory)
    append_values(log, *VALUES[6:])
    flush(log)
    return directory


# --- bits -----------------------------------------------------------------------------------


def test_a_flipped_bit_below_the_recovery_point_is_never_cut(
    disk: SimulatedDisk, directory: DataDirectory
) -> None:
    overwrite(disk, FOLDER / segment_name(0), b"\xff", HEADER_BYTES + 20)

    _, log = restart(directory, disk)

    assert (log.log_start, log.log_end) == (0, 10)
    region = log.read(Offset(0), 1, log.log_end).region
    assert region is not None
    with pytest.raises(CorruptBatchError):
        check(region.read())
    assert ".cut" not in "".join(names_in(disk))


def test_a_flipped_bit_in_the_tail_cuts_it_there_and_keeps_it_aside(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a", b"b", b"c")
    size = log.size_bytes
    overwrite(disk, FOLDER / segment_name(0), b"\xff", size // 3 + HEADER_BYTES + 2)
    damaged = file_of(disk, segment_name(0))

    _, log = restart(directory, disk)

    assert values_of(log) == [b"a"]
    assert file_of(disk, segment_name(1, ".cut")) == damaged[size // 3 :]


def test_a_header_broken_below_the_recovery_point_is_passed_over(
    disk: SimulatedDisk,
) -> None:
    """The rest of its segment cannot be followed, but stays; the log goes on behind it."""
    directory, log = new_log(disk, WITHOUT_INDEX)
    append_values(log, b"a", b"b", b"c")
    checkpoint(directory)
    size = log.size_bytes
    overwrite(disk, FOLDER / segment_name(0), bytes(HEADER_BYTES), size // 3)
    damaged = file_of(disk, segment_name(0))

    directory, log = restart(directory, disk)

    assert log.log_end == 3
    assert len(log.damage) == 1
    assert segment_name(0) in log.damage[0]
    assert file_of(disk, segment_name(0)) == damaged
    assert append(log, batch_of(b"d")).base_offset == 3
    region = log.read(Offset(0), 1 << 20, log.log_end).region
    assert region is not None
    assert region.read() == damaged
    last = log.read(Offset(3), 1 << 20, log.log_end).region
    assert last is not None
    assert check(last.read()).base_offset == 3


def test_segments_behind_damage_below_the_recovery_point_stay(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk, WITHOUT_INDEX)
    append_values(log, b"a" * 100, b"b" * 100)
    checkpoint(directory)
    append_values(log, b"c" * 50, b"d" * 400, b"e")
    flush(log)
    overwrite(disk, FOLDER / segment_name(0), bytes(30), 0)

    _, log = restart(directory, disk)

    assert log.log_end == 5
    assert log.damage
    found = log.read(Offset(3), 1 << 20, log.log_end).region
    assert found is not None
    assert check(found.read()).base_offset == 3


def test_a_base_offset_torn_off_its_batch_ends_the_log(disk: SimulatedDisk) -> None:
    """The checksum does not cover it: a page of zeros before the rest would go unnoticed."""
    directory, log = new_log(disk)
    append_values(log, b"a", b"b", b"c")
    overwrite(disk, FOLDER / segment_name(0), bytes(8), log.size_bytes // 3)

    _, log = restart(directory, disk)

    assert values_of(log) == [b"a"]


def test_a_length_without_its_bytes_is_cut_and_not_worth_keeping(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    size = log.size_bytes
    disk.open(FOLDER / segment_name(0)).truncate(size + 10_000)

    _, log = restart(directory, disk)

    assert values_of(log) == [b"a"]
    assert len(file_of(disk, segment_name(0))) == size
    assert ".cut" not in "".join(names_in(disk))


def test_at_most_eight_cuttings_are_kept(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    for _ in range(12):
        append_values(log, b"whole")
        size = log.size_bytes
        overwrite(disk, FOLDER / names_in(disk)[0], b"", 0)
        log.active.file().pwrite(b"torn", log.active.size_bytes)
        directory, log = restart(directory, disk)
        assert log.size_bytes == size

    assert len([name for name in names_in(disk) if name.endswith(".cut")]) == 8
    assert values_of(log) == [b"whole"] * 12


# --- hands ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_indexes_are_made_anew(
    disk: SimulatedDisk, directory: DataDirectory, suffix: str, clean: bool
) -> None:
    log = next(iter(directory.logs.values()))
    expected = lookups(log)
    if clean:
        directory.close({})
    for name in names_in(disk):
        if name.endswith(suffix):
            disk.unlink(FOLDER / name)

    _, log = restart(directory, disk)

    assert lookups(log) == expected
    assert segment_name(0, suffix) in names_in(disk)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_of_nonsense_are_made_anew(
    disk: SimulatedDisk, directory: DataDirectory, suffix: str
) -> None:
    log = next(iter(directory.logs.values()))
    expected = lookups(log)
    for name in names_in(disk):
        if name.endswith(suffix):
            overwrite(disk, FOLDER / name, b"\x7f" * 24, 0)

    _, log = restart(directory, disk)

    assert lookups(log) == expected


def lookups(log: Log) -> list[object]:
    """What reads by offset and by time find."""
    by_offset = [log.read(Offset(offset), 1, log.log_end) for offset in range(log.log_end)]
    regions = [found.region.read() for found in by_offset if found.region is not None]
    return [*regions, log.find_by_time(Millis(0)), log.max_timestamp()]


def test_a_foreign_file_is_left_alone(disk: SimulatedDisk, directory: DataDirectory) -> None:
    disk.replace(FOLDER / "notes.txt", b"mine")
    disk.replace(FOLDER / "12.log", b"mine too")
    disk.make_directory(ROOT / "lost+found")

    _, log = restart(directory, disk)

    assert values_of(log) == VALUES
    assert file_of(disk, "notes.txt") == b"mine"
    assert file_of(disk, "12.log") == b"mine too"
    assert "lost+found" in names_in(disk, ROOT)


@pytest.mark.parametrize(
    "file",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "orders-0/leader-epoch-checkpoint",
    ],
)
@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"0\n1\ngarbage\n"])
def test_a_damaged_checkpoint_costs_a_scan_and_no_record(
    disk: SimulatedDisk, directory: DataDirectory, file: str, content: bytes
) -> None:
    disk.replace(ROOT / file, content)

    _, log = restart(directory, disk)

    assert values_of(log) == VALUES
    assert log.epochs.latest == 0


def test_without_snapshots_producers_are_read_from_the_log(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    for number in range(4):
        append(log, batch_of(b"x" * 200, producer=9, sequence=number))
    checkpoint(directory)
    append(log, batch_of(b"x", producer=9, sequence=4))
    for name in names_in(disk):
        if name.endswith(".snapshot"):
            overwrite(disk, FOLDER / name, b"\xff", 3)

    _, log = restart(directory, disk)

    for number in range(5):
        values = b"x" if number == 4 else b"x" * 200
        assert append(log, batch_of(values, producer=9, sequence=number)).duplicate


def test_a_log_shorter_than_its_recovery_point_says_so_and_goes_on_there(
    disk: SimulatedDisk,
) -> None:
    """Someone cut the file: offsets that were given out are not given out again."""
    directory, log = new_log(disk)
    append_values(log, b"a", b"b", b"c")
    checkpoint(directory)
    disk.open(FOLDER / segment_name(0)).truncate(log.size_bytes // 3)

    _, log = restart(directory, disk)

    assert "ends before the recovery point 3" in log.damage[0]
    assert log.log_end == 3
    assert append(log, batch_of(b"d")).base_offset == 3
    found = log.read(Offset(1), 1 << 20, log.log_end).region
    assert found is not None
    assert check(found.read()).base_offset == 3


def test_a_lost_segment_in_the_middle_leaves_the_others_readable(tmp_path: Path) -> None:
    disk = RealDisk()
    directory, log = new_log(disk, path=tmp_path)
    append_values(log, b"a" * 400, b"b" * 400, b"c" * 400)
    directory.close({})
    directory.unlock()
    (tmp_path / "orders-0" / segment_name(1)).unlink()

    log = open_log(disk, path=tmp_path)[1]

    assert (log.log_start, log.log_end) == (0, 3)
    assert len(read_all(log)) == 2 * log.active.size_bytes
