"""How long a coordinator takes to load, and how much memory an offset takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.figures import figure
from tests.support.soak import SOAKING, count

ROOT = Path(__file__).parents[2]
OFFSETS, PARTITIONS = 100, count(3, 50)
BYTES_PER_OFFSET_MAX = 250


def run(mode: str, path: Path, groups: int) -> dict[str, float]:
    """A child process, so that what was written before is not counted as memory."""
    command = [sys.executable, "-m", "tests.broker.load_groups", mode, str(path)]
    numbers = [str(number) for number in (groups, OFFSETS, PARTITIONS)]
    done = subprocess.run(
        [*command, *numbers], cwd=ROOT, capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(900)
def test_groups_with_a_hundred_offsets_each_load_within_seconds(tmp_path: Path) -> None:
    groups = count(100, 10_000)
    run("write", tmp_path / "data", groups)
    found = run("load", tmp_path / "data", groups)

    assert found["seconds"] < 10

    if SOAKING:
        empty = run("load", tmp_path / "empty", 0)
        offset_bytes = (found["grown_mb"] - empty["grown_mb"]) * 1e6 / (groups * OFFSETS)
        figure(
            f"{groups} groups with {OFFSETS} offsets each: loaded in {found['seconds']:.1f} s "
            f"({found['cpu_seconds']:.1f} s of CPU), {offset_bytes:.0f} bytes of memory per "
            f"offset, the loop was held up for {found['stall_ms']:.0f} ms at most"
        )

        assert offset_bytes < BYTES_PER_OFFSET_MAX
