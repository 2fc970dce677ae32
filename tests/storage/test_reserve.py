"""The reserve: there while there is room, given up once, made again before appends go on."""

import errno
from pathlib import Path

import pytest

from waystation.storage.disk import Buffer, DiskFile, RealDisk, RealFile
from waystation.storage.reserve import FILE, Reserve

RESERVE_BYTES = 100_000
PLENTY_BYTES = 10 << 20


class SmallFile(RealFile):
    """A file on a disk that is full when its owner says so."""

    __slots__ = ("disk",)

    def pwrite(self, data: Buffer, position: int) -> None:
        if self.disk.lies:
            super().pwrite(data[:1], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pwrite(data, position)


class SmallDisk(RealDisk):
    """A real disk with as much room as it claims, unless it lies."""

    __slots__ = ("lies", "room_bytes")

    def __init__(self) -> None:
        self.room_bytes = PLENTY_BYTES
        self.lies = False

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        file = SmallFile(path, create=create)
        file.disk = self
        return file

    def free_bytes(self, path: Path) -> int:
        return self.room_bytes


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()


@pytest.fixture
def reserve(disk: SmallDisk, tmp_path: Path) -> Reserve:
    made = Reserve(disk, tmp_path, RESERVE_BYTES)
    made.keep()
    return made


def test_reserve_takes_its_size_on_disk(reserve: Reserve, tmp_path: Path) -> None:
    assert (tmp_path / FILE).stat().st_blocks * 512 >= RESERVE_BYTES
    assert not reserve.spent


def test_spending_frees_the_space_once_and_stops_appends(reserve: Reserve, tmp_path: Path) -> None:
    assert reserve.spend()
    assert reserve.spent
    assert not (tmp_path / FILE).exists()
    assert not reserve.spend(), "it was spent twice"


def test_appends_wait_until_the_reserve_is_there_again(disk: SmallDisk, reserve: Reserve) -> None:
    reserve.spend()
    disk.room_bytes = RESERVE_BYTES
    reserve.keep()

    assert reserve.spent

    disk.room_bytes = PLENTY_BYTES
    reserve.keep()

    assert not reserve.spent


def test_a_reserve_that_does_not_fit_leaves_nothing_behind(
    disk: SmallDisk, reserve: Reserve, tmp_path: Path
) -> None:
    reserve.spend()
    disk.lies = True
    reserve.keep()

    assert reserve.spent
    assert not (tmp_path / FILE).exists()


def test_an_earlier_life_s_reserve_is_used(disk: SmallDisk, tmp_path: Path) -> None:
    Reserve(disk, tmp_path, RESERVE_BYTES).keep()
    later = Reserve(disk, tmp_path, RESERVE_BYTES)
    later.find()

    assert later.spend()


def test_no_reserve_is_kept_if_none_is_wanted(disk: SmallDisk, tmp_path: Path) -> None:
    without = Reserve(disk, tmp_path, 0)
    without.find()
    without.keep()

    assert not (tmp_path / FILE).exists()
    assert not without.spend()
    assert not without.spent, "nothing would ever take it back"
