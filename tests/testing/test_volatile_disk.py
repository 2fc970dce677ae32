"""Whatever was synced is in the real files; nothing else is."""

from pathlib import Path

import pytest

from waystation.testing.disk import VolatileDisk


@pytest.fixture
def disk() -> VolatileDisk:
    return VolatileDisk()


def test_writes_reach_the_real_file_when_they_are_synced(
    disk: VolatileDisk, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    file = disk.open(path)
    file.pwrite(b"hello, world", 3)

    assert file.pread(100, 0) == b"befhello, world"
    assert path.read_bytes() == b"before"

    file.datasync()

    assert path.read_bytes() == b"befhello, world"


def test_writes_of_any_size_and_place_read_back(disk: VolatileDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "file", create=True)
    content = bytes(range(256)) * 64
    file.pwrite(content, 5_000)

    assert file.size() == 5_000 + len(content)
    assert file.pread(100_000, 0) == bytes(5_000) + content
    assert file.pread(10, 4_998) == b"\0\0" + content[:8]


def test_a_cut_file_stays_cut(disk: VolatileDisk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    file = disk.open(path)
    file.truncate(100)
    file.pwrite(b"y", 9_000)
    file.datasync()

    assert path.read_bytes() == b"x" * 100 + bytes(8_900) + b"y"


def test_a_new_file_appears_when_its_directory_is_synced(
    disk: VolatileDisk, tmp_path: Path
) -> None:
    path = tmp_path / "new"
    file = disk.open(path, create=True)
    file.pwrite(b"synced", 0)
    file.datasync()
    file.pwrite(b"unsynced", 6)

    assert not path.exists()
    assert [entry.name for entry in disk.entries(tmp_path)] == ["new"]

    disk.sync_directory(tmp_path)

    assert path.read_bytes() == b"synced"
    assert file.pread(100, 0) == b"syncedunsynced"


def test_a_new_directory_appears_with_its_parents_sync(disk: VolatileDisk, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    disk.make_directory(inner)
    disk.replace(inner / "file", b"content")

    assert not inner.exists()
    assert disk.read(inner / "file") == b"content"

    disk.sync_directory(tmp_path)

    assert (inner / "file").read_bytes() == b"content"


def test_renames_and_removals_wait_for_the_directory(disk: VolatileDisk, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"1")
    (tmp_path / "gone").write_bytes(b"2")
    disk.rename(tmp_path / "old", tmp_path / "new")
    disk.unlink(tmp_path / "gone")

    assert [entry.name for entry in disk.entries(tmp_path)] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gone", "old"]

    disk.sync_directory(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_directory_goes_with_all_that_was_only_here(disk: VolatileDisk, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    disk.make_directory(inner)
    disk.open(inner / "file", create=True)
    disk.rename(inner, tmp_path / "inner-delete")
    disk.remove_tree(tmp_path / "inner-delete")

    assert disk.entries(tmp_path) == []
