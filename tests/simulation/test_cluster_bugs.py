"""The simulated clusters catch what they are for: each planted bug makes one of them fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.cluster_bugs import BUGS
from tests.support.soak import SOAKING

_ROOT = Path(__file__).parent.parent.parent
_RUN = [sys.executable, "-m", "tests.simulation.cluster_run"]
_SEEDS = 60
# Those that show at once: the rest when soaking.
_EVERY_DAY = (
    "new leaders commit all they have",
    "logs that part are not cut",
    "anyone may lead",
    "aborted transactions are shown",
)


@pytest.mark.parametrize("bug", BUGS if SOAKING else _EVERY_DAY)
def test_the_simulation_finds(bug: str) -> None:
    first = BUGS[bug].first_seed
    ended = subprocess.run(
        [*_RUN, "--bug", bug, f"{first}-{first + _SEEDS - 1}"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-2_000:]
    assert "found it" in ended.stdout
