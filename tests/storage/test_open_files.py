"""Few descriptors for many files."""

from pathlib import Path

from waystation.storage.open_files import FileHandle, OpenFiles
from waystation.testing.disk import SimulatedDisk


def handles(count: int, limit: int) -> tuple[OpenFiles, list[FileHandle]]:
    disk = SimulatedDisk()
    open_files = OpenFiles(disk, limit)
    made = [FileHandle(open_files, Path("/"), str(number)) for number in range(count)]
    for handle in made:
        handle.create = True
    return open_files, made


def test_no_more_than_the_limit_are_open() -> None:
    open_files, made = handles(20, limit=5)
    for handle in made:
        handle.file().pwrite(b"x", 0)

    assert sum(handle.is_open for handle in made) <= 5
    assert all(handle.file().pread(1, 0) == b"x" for handle in made)
    assert len(open_files) <= 5


def test_a_file_with_unsynced_writes_stays_open() -> None:
    _, made = handles(20, limit=5)
    made[0].file()
    made[0].pinned = True
    for handle in made[1:]:
        handle.file()

    assert made[0].is_open


def test_whoever_was_asked_for_lately_stays_longer() -> None:
    _, made = handles(6, limit=5)
    for handle in made[:5]:
        handle.file()
    for handle in made[:5]:
        handle.recent = False
    made[0].file()
    made[5].file()

    assert made[0].is_open
    assert not made[1].is_open


def test_a_reader_keeps_a_file_that_was_let_go_of() -> None:
    _, made = handles(2, limit=1)
    held = made[0].file()
    held.pwrite(b"x", 0)
    made[0].release()

    assert held.pread(1, 0) == b"x"
