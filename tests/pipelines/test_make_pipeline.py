"""``make pipeline``: its audit finds what is wrong, and the whole of it ends well."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.pipeline_audit import differences

from tests.support.soak import SOAKING

WANTED: dict[bytes | None, list[Any]] = {b"anna": [{"order": 1}, {"order": 2}], None: ["x"]}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (WANTED, (0, 0, 0)),
        ({b"anna": [{"order": 1}], None: ["x"]}, (1, 0, 0)),
        ({b"anna": [{"order": 1}, {"order": 2}]}, (1, 0, 0)),
        ({b"anna": [{"order": 1}, {"order": 2}], None: ["x", "x"]}, (0, 1, 0)),
        ({b"anna": [{"order": 2}, {"order": 1}], None: ["x"]}, (0, 0, 1)),
        ({b"ben": [{"order": 1}], b"anna": [{"order": 2}], None: ["x"]}, (1, 1, 0)),
        ({}, (3, 0, 0)),
    ],
)
def test_the_audit_tells_what_is_missing_extra_and_out_of_order(
    found: dict[bytes | None, list[Any]], wrong: tuple[int, int, int]
) -> None:
    assert tuple(differences(WANTED, found).values()) == wrong


def check_the_whole_of_it(tmp_path: Path) -> None:
    """Twice: the second run goes on where the first one ended."""
    tool = Path(__file__).parents[2] / "tools" / "pipeline.py"
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, str(tool), "--out", str(tmp_path), "--records", "20000"],
            capture_output=True,
            text=True,
            timeout=1_200,
            check=False,
        )

        assert ended.returncode == 0, ended.stdout + ended.stderr
        told = [line for line in ended.stdout.splitlines() if line.startswith("orders-")]
        assert len(told) == 3
        assert all("0 missing, 0 extra, 0 keys out of order" in line for line in told)


if SOAKING:  # each job is tested every day, and starts a Java machine of its own here
    test_the_whole_of_it_ends_well = pytest.mark.heavy(100)(
        pytest.mark.timeout(2_500)(check_the_whole_of_it)
    )
