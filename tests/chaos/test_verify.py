"""``waystation verify`` finds what is wrong with a real broker, and nothing in one that only dies.

That its checker finds every kind of fault is proven in ``tests/testing/test_checker.py``.
"""

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import COMMAND
from tests.support.figures import figure
from tests.support.lying_broker import BUGS
from tests.support.soak import SOAKING
from waystation.testing.checker import Kind
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

DYING_S, LYING_S = 120, 1.5
FOUND_AS = {
    "names_no_aborted_transactions": Kind.ABORTED_READ,
    "shows_what_is_open": Kind.ABORTED_READ,
    "aborts_in_one_partition_what_it_commits_in_others": Kind.TORN_TRANSACTION,
}


class Verifying:
    """The command at work."""

    def __init__(self, broker: BrokerProcess, folder: Path, seconds: float, *options: str) -> None:
        history = self._history = folder / "history.jsonl"
        own = [
            "--bootstrap",
            broker.bootstrap,
            "--seconds",
            str(seconds),
            "--history",
            str(history),
        ]
        self._process = subprocess.Popen(
            [*COMMAND, "verify", "--json", *own, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def has_begun(self) -> None:
        """Wait until it is at work."""
        while not self._history.exists():
            assert self._process.poll() is None, "it ended before it began"
            time.sleep(0.05)

    def result(self) -> tuple[int, dict[str, Any]]:
        """The exit code and what it printed."""
        try:
            out, err = self._process.communicate(timeout=120)
        finally:
            self._process.kill()
        assert out, err
        return self._process.returncode, json.loads(out)


def kill_for(broker: BrokerProcess, duration_s: float, chance: random.Random) -> int:
    """Let the broker die again and again; how often."""
    deaths, deadline = 0, time.monotonic() + duration_s
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.2, 1.5))
        broker.kill()
        broker.start()
        deaths += 1
    return deaths


def test_what_a_power_failure_takes_from_memory_is_found(tmp_path: Path) -> None:
    """With ``durability=memory`` an acknowledgement means less, and that is what it finds."""
    options = {"durability": "memory"}
    with BrokerProcess(tmp_path / "data", volatile=True, options=options) as broker:
        verifying = Verifying(broker, tmp_path, 2.5, "--plain", "--keep-topics")
        verifying.has_begun()
        time.sleep(1)
        broker.kill()
        broker.start()
        code, told = verifying.result()

    assert code == 1
    assert Kind.LOST_WRITE in {one["kind"] for one in told["findings"]}


if SOAKING:  # they take too long for every day

    @pytest.mark.parametrize("how", ["--transactions", "--plain"])
    def test_nothing_is_found_in_a_broker_that_dies(tmp_path: Path, how: str) -> None:
        with BrokerProcess(tmp_path / "data", volatile=True) as broker:
            verifying = Verifying(broker, tmp_path, DYING_S, how)
            verifying.has_begun()
            deaths = kill_for(broker, DYING_S, random.Random())
            code, told = verifying.result()
            assert broker.stop() == 0
        figure(
            f"verify {how} through {deaths} deaths: {told | {'findings': len(told['findings'])}}"
        )
        assert (code, told["findings"]) == (0, [])
        assert told["complete"]

    @pytest.mark.parametrize("bug", BUGS)
    def test_a_broker_that_lies_is_found_out(
        tmp_path: Path, bug: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WAYSTATION_BUG", bug)
        with BrokerProcess(tmp_path / "data", module="tests.support.lying_broker") as broker:
            code, told = Verifying(broker, tmp_path, LYING_S, "--aborts", "0.3").result()

        assert code == 1
        assert FOUND_AS[bug] in {one["kind"] for one in told["findings"]}
