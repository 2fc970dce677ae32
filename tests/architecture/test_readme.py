"""README.md: short, and every command in it works as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

from waystation.testing.process import BrokerProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SCREEN_LINES = 60


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _run(command: list[str], bootstrap: str, given: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    told = given.replace("localhost:9092", bootstrap)
    done = subprocess.run(
        command,
        input=told,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path, "WAYSTATION_BOOTSTRAP": bootstrap},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_fits_one_screen() -> None:
    assert len(README.splitlines()) <= SCREEN_LINES


def test_the_two_minutes_work_as_written(tmp_path: Path) -> None:
    start, ours, kcat = _blocks("sh")
    (python,) = _blocks("python")
    ours = ours.replace("alias waystation=.venv/bin/waystation\n", "")

    assert start.startswith("make run ")
    quick = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", options=quick).start() as broker:
        assert '"value":"two coffees"' in _run(["sh", "-e"], broker.bootstrap, ours)
        assert "one tea" in _run(["sh", "-e"], broker.bootstrap, kcat)
        read = _run([sys.executable, "-"], broker.bootstrap, python)
    assert "b'customer-7' b'two coffees'" in read
