"""The page about idempotency keys: its examples run, and do what it says."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from waystation.testing.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "idempotency.md"


@pytest.mark.timeout(120)
def test_the_examples_run_and_repeat_nothing(tmp_path: Path) -> None:
    script = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    with BrokerProcess(tmp_path / "data", http="127.0.0.1:0").start() as broker:
        here = script.replace("127.0.0.1:8090", broker.http)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail"],
            input=here.replace("curl -s", "curl -fsS -w '\\n'"),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    places = [one for one in told if "replayed" in one]
    assert [one["replayed"] for one in places] == [False, True, True]
    assert len({(one["partition"], one["offset"]) for one in places}) == 1
    assert [one["sent"] for one in told if "sent" in one] == [2, 2, 2]
