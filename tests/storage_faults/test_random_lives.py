"""Thousands of random lives on a disk that forgets and tears; and a few on the real one."""

from pathlib import Path

import pytest

from tests.storage_faults.operations import Trial
from tests.support.soak import count
from waystation.testing.disk import SimulatedDisk

SEEDS_PER_TEST = 100
STEPS = 40


@pytest.mark.parametrize("first", range(0, count(2_000, 40_000), SEEDS_PER_TEST))
def test_what_was_flushed_survives_every_crash(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        run(seed)


def run(seed: int) -> None:
    """One trial; a failure names its seed."""
    disk = SimulatedDisk(seed)

    def crash() -> SimulatedDisk:
        disk.crash()
        return disk

    try:
        Trial(seed, disk, Path("/data"), crash, disk.fail_sync).run(STEPS)
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
