"""Entries in memory and on disk are one index."""

from bisect import bisect_right
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.storage.index_file import IndexFile
from waystation.storage.open_files import FileHandle, OpenFiles
from waystation.testing.disk import SimulatedDisk

ENTRY = Struct(">ii")
PATH = Path("/index")
FLOOR = (0, -1)
ENTRIES = [(3 * n + 1, 10 * n) for n in range(1_500)]


def handle_on(disk: SimulatedDisk) -> FileHandle:
    handle = FileHandle(OpenFiles(disk, 10), PATH.parent, PATH.name)
    handle.create = True
    return handle


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def index_of(disk: SimulatedDisk, count: int) -> IndexFile:
    index = IndexFile(handle_on(disk), ENTRY, 0)
    for entry in ENTRIES[:count]:
        index.append(*entry)
    return index


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1_500])
def test_entries_are_found_in_memory_and_on_disk_alike(disk: SimulatedDisk, count: int) -> None:
    index = index_of(disk, count)
    limits = [-1, 0, 1, 2, 766, 1_535, 1_536, 1_540, 5_000]
    found = [index.last_up_to(0, limit) for limit in limits]

    expected = [
        bisect_right(ENTRIES[:count], limit, key=lambda entry: entry[0]) for limit in limits
    ]
    assert found == [ENTRIES[n - 1] if n else None for n in expected]

    index.save()

    assert [index.last_up_to(0, limit) for limit in limits] == found
    assert len(index) == count


@given(st.integers(0, 1_500), st.integers(-5, 16_000))
def test_the_last_entry_up_to_a_position_is_found(count: int, limit: int) -> None:
    index = index_of(SimulatedDisk(), count)

    found = index.last_up_to(1, limit)

    at_most = [entry for entry in ENTRIES[:count] if entry[1] <= limit]
    assert found == (at_most[-1] if at_most else None)


def test_a_full_page_leaves_memory(disk: SimulatedDisk) -> None:
    index_of(disk, 1_100)

    assert disk.open(PATH).size() == 1_024 * ENTRY.size


def test_a_full_disk_keeps_entries_in_memory(disk: SimulatedDisk) -> None:
    disk.space_bytes = 100
    index = index_of(disk, 600)

    assert index.last_up_to(0, 1_000_000) == ENTRIES[599]

    disk.space_bytes = None
    index.save()

    assert disk.read(PATH) == b"".join(ENTRY.pack(*entry) for entry in ENTRIES[:600])


@pytest.mark.parametrize("count", [3, 700])
def test_only_leading_entries_below_a_limit_are_kept(disk: SimulatedDisk, count: int) -> None:
    index = index_of(disk, count)

    index.keep_below(0, 5, FLOOR)

    assert len(index) == 2
    assert index.last_up_to(0, 100) == ENTRIES[1]


def test_what_a_crash_left_behind_the_last_entry_is_dropped(disk: SimulatedDisk) -> None:
    index_of(disk, 3).save()
    file = disk.open(PATH)
    file.pwrite(bytes(ENTRY.size) + ENTRY.pack(*ENTRIES[3]), 3 * ENTRY.size)
    handle = FileHandle(OpenFiles(disk, 10), PATH.parent, PATH.name)
    index = IndexFile(handle, ENTRY, 5)

    index.keep_below(0, 1_000, FLOOR)

    assert len(index) == 3
    assert disk.open(PATH).size() == 3 * ENTRY.size


def test_zeros_are_no_first_entry(disk: SimulatedDisk) -> None:
    """A length may reach the disk without its bytes."""
    disk.open(PATH, create=True).truncate(2 * ENTRY.size)
    index = IndexFile(FileHandle(OpenFiles(disk, 10), PATH.parent, PATH.name), ENTRY, 2)

    index.keep_below(0, 1_000, FLOOR)

    assert len(index) == 0
