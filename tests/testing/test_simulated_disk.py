"""What a crash takes, and what it may not take."""

from pathlib import Path

import pytest

from waystation.testing.disk import PowerLossError, SimulatedDisk

ROOT = Path("/")
FILE = Path("/file")
CONTENT = bytes(range(1, 251)) * 12


@pytest.mark.parametrize("seed", range(20))
def test_synced_bytes_and_names_survive(seed: int) -> None:
    disk = SimulatedDisk(seed)
    file = disk.open(FILE, create=True)
    file.pwrite(CONTENT, 0)
    file.datasync()
    disk.sync_directory(ROOT)
    disk.crash()

    assert disk.read(FILE) == CONTENT


def test_unsynced_bytes_stay_go_or_stay_in_part() -> None:
    outcomes = set()
    for seed in range(60):
        disk = SimulatedDisk(seed)
        file = disk.open(FILE, create=True)
        disk.sync_directory(ROOT)
        file.pwrite(CONTENT, 0)
        disk.crash()
        found = disk.read(FILE)
        outcomes.add("all" if found == CONTENT else "none" if not any(found) else "part")
        for at, byte in enumerate(found):
            assert byte in (0, CONTENT[at]), "a byte nobody wrote"

    assert outcomes == {"all", "none", "part"}


def test_unsynced_names_stay_or_go() -> None:
    outcomes = set()
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.open(FILE, create=True).datasync()
        disk.crash()
        outcomes.add(len(disk.entries(ROOT)))

    assert outcomes == {0, 1}


def test_a_rename_happens_or_does_not() -> None:
    outcomes = set()
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.replace(FILE, b"old")
        disk.replace(FILE, b"new", durable=False)
        disk.crash()
        outcomes.add(disk.read(FILE) == b"old")

    assert outcomes == {True, False}


def test_the_same_seed_gives_the_same_crash() -> None:
    def after_crash(seed: int) -> bytes:
        disk = SimulatedDisk(seed)
        file = disk.open(FILE, create=True)
        disk.sync_directory(ROOT)
        file.pwrite(CONTENT, 0)
        disk.crash()
        return disk.read(FILE)

    assert [after_crash(seed) for seed in range(9)] == [after_crash(seed) for seed in range(9)]


def test_a_failed_sync_loses_its_pages_for_good() -> None:
    disk = SimulatedDisk()
    file = disk.open(FILE, create=True)
    disk.sync_directory(ROOT)
    file.pwrite(CONTENT, 0)
    disk.fail_sync()
    with pytest.raises(OSError, match="planted"):
        file.datasync()
    disk.open(FILE).datasync()
    disk.crash()

    assert not any(disk.read(FILE))


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimulatedDisk()
    disk.space_bytes = 100
    file = disk.open(FILE, create=True)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(CONTENT, 0)

    assert disk.read(FILE) == CONTENT[:100]
    file.truncate(0)
    file.pwrite(CONTENT[:100], 0)
    assert disk.free_bytes(ROOT) == 0


@pytest.mark.parametrize("after", range(4))
def test_power_is_lost_before_the_change_it_was_told(after: int) -> None:
    disk = SimulatedDisk()
    disk.lose_power(after)
    for number in range(after):
        disk.open(Path(f"/{number}"), create=True)

    with pytest.raises(PowerLossError):
        disk.open(Path("/one-more"), create=True)
    disk.crash()
    disk.open(FILE, create=True)


def test_files_of_before_a_crash_may_not_be_used_after_it() -> None:
    disk = SimulatedDisk()
    file = disk.open(FILE, create=True)
    disk.crash()

    with pytest.raises(AssertionError):
        file.pread(1, 0)
