"""The real disk keeps what the port promises."""

import errno
import os
from pathlib import Path

import pytest

from waystation.storage import disk as disk_module
from waystation.storage.disk import RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_what_is_written_is_read_back(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b"world"), 10)
    file.start_writeback(0, 15)
    file.datasync()

    assert file.pread(100, 0) == b"hello\0\0\0\0\0world"
    assert file.size() == 15
    file.truncate(5)
    assert disk.read(tmp_path / "file") == b"hello"


def test_a_file_that_is_not_there_is_made_only_when_told(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "file")


def test_an_unlinked_file_stays_readable_while_it_is_held(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)
    file.pwrite(b"x", 0)
    disk.unlink(tmp_path / "file")
    disk.unlink(tmp_path / "file")

    assert file.pread(1, 0) == b"x"


def test_a_forgotten_file_is_closed(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)
    descriptor = file.fileno()
    assert descriptor is not None
    del file

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_after_a_failed_sync_every_later_one_fails(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a lost page once; asking again would be told that all is well."""
    file = disk.open(tmp_path / "file", create=True)
    attempts = []

    def fail(descriptor: int) -> None:
        attempts.append(descriptor)
        raise OSError(errno.ENOSPC, "lost")

    monkeypatch.setattr(disk_module, "_datasync", fail)
    with pytest.raises(OSError, match="lost") as lost:
        file.datasync()
    assert lost.value.errno == errno.EIO, "taken for a disk that is merely full"
    monkeypatch.undo()
    with pytest.raises(OSError, match="earlier sync"):
        file.datasync()
    assert len(attempts) == 1


def test_entries_come_sorted_with_their_sizes(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "b" / "c")
    (tmp_path / "a").write_bytes(b"123")

    assert disk.entries(tmp_path) == [("a", False, 3), ("b", True, 0)]


def test_a_replaced_file_has_the_new_content_and_no_leftovers(
    disk: RealDisk, tmp_path: Path
) -> None:
    disk.replace(tmp_path / "file", b"one")
    disk.replace(tmp_path / "file", b"two")

    assert disk.read(tmp_path / "file") == b"two"
    assert [entry.name for entry in disk.entries(tmp_path)] == ["file"]


def test_space_is_known(disk: RealDisk, tmp_path: Path) -> None:
    assert 0 < disk.free_bytes(tmp_path) <= disk.total_bytes(tmp_path)
