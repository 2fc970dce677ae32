"""Thousands of random lives on a disk that forgets and tears; and a few on the real one."""

from pathlib import Path

import pytest

from tests.storage_faults.lives import simulated
from tests.storage_faults.operations import Trial
from tests.support.soak import count
from waystation.storage.disk import RealDisk
from waystation.testing.disk import VolatileDisk

SEEDS_PER_TEST = 100
STEPS = 40


@pytest.mark.parametrize("first", range(0, count(2_000, 40_000), SEEDS_PER_TEST))
def test_what_was_flushed_survives_every_crash(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulated(Trial, seed, STEPS)


@pytest.mark.parametrize("seed", range(count(25, 500)))
def test_what_was_synced_survives_on_the_real_disk(seed: int, tmp_path: Path) -> None:
    """Each life has a disk whose unsynced writes end with it."""

    def crash() -> VolatileDisk:
        trial.directory.unlock()
        return VolatileDisk()

    trial = Trial(seed, VolatileDisk(), tmp_path / "data", crash)
    trial.run(STEPS)

    assert trial.lives > 1


@pytest.mark.parametrize("seed", range(count(25, 500)))
def test_a_killed_process_loses_nothing_it_wrote(seed: int, tmp_path: Path) -> None:
    """The page cache outlives the process: whatever was appended is there."""

    def kill() -> RealDisk:
        trial.flushed_end = trial.log.log_end
        trial.directory.unlock()
        return RealDisk()

    trial = Trial(seed, RealDisk(), tmp_path / "data", kill)
    trial.run(STEPS)

    assert trial.lives > 1
