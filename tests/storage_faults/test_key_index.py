"""The key index finds what a scan finds, whatever becomes of the log, the disk and the index."""

from pathlib import Path

import pytest

from tests.storage_faults.indexed import IndexedLives
from tests.support.soak import count
from waystation.testing.disk import SimulatedDisk

SEEDS = count(20, 3_000)
PER_TEST = 10


def life(seed: int) -> IndexedLives:
    disk = SimulatedDisk(seed)

    def crash() -> SimulatedDisk:
        disk.crash()
        return disk

    return IndexedLives(seed, disk, Path("/data"), crash)


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_the_index_finds_what_a_scan_of_the_log_finds(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        try:
            life(seed).run(80)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
