"""A disk that fills up, refuses to read, or loses what it was given."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.building import (
    FOLDER,
    NAME,
    ROOT,
    SMALL,
    TOPIC_ID,
    append_values,
    checkpoint,
    flush,
    new_log,
    open_directory,
    open_log,
    read_all,
    restart,
    segment_name,
    values_of,
)
from waystation.model.errors import StorageError
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.disk import RealDisk
from waystation.testing.disk import SimulatedDisk

ONE_SEGMENT = TopicSettings()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


# --- full -----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 50, 100, 169])
def test_a_full_disk_refuses_a_batch_and_harms_no_other(disk: SimulatedDisk, left: int) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    disk.space_bytes = left

    with pytest.raises(StorageError) as refused:
        append_values(log, b"x" * 100)

    assert str(ROOT) in str(refused.value)
    assert "is full" in str(refused.value)
    assert directory.offline is None
    assert values_of(log) == [b"a"]

    disk.space_bytes = None
    append_values(log, b"b")
    flush(log)
    disk.crash()

    assert values_of(open_log(disk)[1]) == [b"a", b"b"]


def test_a_full_disk_refuses_to_roll_and_the_log_goes_on_later(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a" * 400)
    disk.space_bytes = 5
    for _ in range(3):
        with pytest.raises(StorageError, match="is full"):
            append_values(log, b"b" * 400)
    disk.space_bytes = None

    append_values(log, b"c" * 400)

    assert directory.offline is None
    assert values_of(log) == [b"a" * 400, b"c" * 400]


def test_a_full_disk_puts_checkpoints_off(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a", b"b")
    disk.space_bytes = 5
    checkpoint(directory)

    assert directory.offline is None
    assert log.recovery_point == 0

    disk.space_bytes = None
    checkpoint(directory)

    assert log.recovery_point == 2
    disk.crash()
    assert values_of(open_log(disk)[1]) == [b"a", b"b"]


def test_a_full_disk_does_not_keep_a_log_from_opening(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    log.active.file().pwrite(b"torn" * 100, log.active.size_bytes)
    disk.space_bytes = 10

    _, log = restart(directory, disk)

    assert values_of(log) == [b"a"]


def test_closing_on_a_full_disk_is_no_clean_end(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    flush(log)
    disk.space_bytes = 10
    directory.close({})
    disk.space_bytes = None
    disk.crash()

    assert values_of(open_log(disk)[1]) == [b"a"]


def test_a_file_that_may_not_grow_is_cut_back_on_the_real_disk(tmp_path: Path) -> None:
    directory, log = new_log(RealDisk(), ONE_SEGMENT, tmp_path)
    append_values(log, b"a" * 5_000)
    before = read_all(log)

    with files_of_at_most(10_000), pytest.raises(StorageError, match=r"is full \(\d+ bytes free"):
        append_values(log, b"b" * 8_000)

    assert (tmp_path / "orders-0" / segment_name(0)).read_bytes() == before
    assert directory.offline is None
    append_values(log, b"c")
    assert values_of(log) == [b"a" * 5_000, b"c"]


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- failing --------------------------------------------------------------------------------


def test_a_read_error_takes_its_directory_offline_and_no_other(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a", b"b")
    other_directory, other = new_log(disk, path=Path("/other"))
    append_values(other, b"fine")
    disk.fail_reads(FOLDER / segment_name(0))

    with pytest.raises(StorageError, match="cannot read"):
        log.find_by_time(Millis(0))

    assert directory.offline is not None
    with pytest.raises(StorageError, match="is offline"):
        append_values(log, b"c")
    with pytest.raises(StorageError, match="is offline"):
        log.read(Offset(0), 1, log.log_end)
    assert other_directory.offline is None
    assert values_of(other) == [b"fine"]


def test_a_process_without_descriptors_refuses_and_goes_on_later(tmp_path: Path) -> None:
    disk = RealDisk()
    directory, log = new_log(disk, path=tmp_path)
    append_values(log, b"a")
    flush(log)
    log.active.release()

    with descriptors_of_at_most(3):
        with pytest.raises(StorageError, match="too many open files"):
            append_values(log, b"b")
        with pytest.raises(StorageError, match="too many open files"):
            log.read(Offset(0), 1, log.log_end)
        checkpoint(directory)

    assert directory.offline is None
    append_values(log, b"c")
    checkpoint(directory)
    assert values_of(log) == [b"a", b"c"]
    assert log.recovery_point == 2


@contextmanager
def descriptors_of_at_most(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_sync_that_fails_in_a_checkpoint_takes_the_directory_offline(
    disk: SimulatedDisk,
) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    disk.fail_sync()

    checkpoint(directory)

    assert directory.offline is not None
    assert log.recovery_point == 0
    syncs = disk.syncs
    checkpoint(directory)
    directory.close({})
    assert disk.syncs == syncs, "an offline directory was synced again"


@pytest.mark.parametrize("after", range(8))
def test_whichever_sync_of_a_clean_close_fails_nothing_flushed_is_lost(
    disk: SimulatedDisk, after: int
) -> None:
    directory, log = new_log(disk)
    append_values(log, *[b"a" * 300] * 3)
    flush(log)
    append_values(log, b"unflushed")
    disk.fail_sync(after)
    directory.close({})
    disk.crash()

    assert values_of(open_log(disk)[1])[:3] == [b"a" * 300] * 3


def test_a_directory_that_cannot_be_listed_opens_no_logs(disk: SimulatedDisk) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    directory.unlock()
    disk.fail_reads(FOLDER / segment_name(0))
    directory = open_directory(disk)

    assert directory.open_logs(lambda _: SMALL) == []
    assert directory.offline is not None


def test_an_unwritable_directory_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")

    with pytest.raises(StorageError, match=r"cannot use .*Remedy"):
        open_directory(RealDisk(), tmp_path / "file" / "data")


def test_a_log_cannot_be_made_on_a_full_disk(disk: SimulatedDisk) -> None:
    directory = open_directory(disk)
    disk.space_bytes = 0

    with pytest.raises(StorageError, match="No space left"):
        directory.create_log(NAME, TOPIC_ID, SMALL)
    disk.space_bytes = None
    assert directory.create_log(NAME, TOPIC_ID, SMALL).log_end == 0
