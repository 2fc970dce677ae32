"""Every example runs as its reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ELSEWHERE = {"webhook_receiver.py"}  # needs a webhook: tests/gateway/test_webhook_document.py
SCRIPTS = sorted(
    {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")} - ELSEWHERE
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_reads_back_what_it_sent(bootstrap: str, name: str) -> None:
    runner = [sys.executable] if name.endswith(".py") else ["sh"]
    done = subprocess.run(
        [*runner, str(EXAMPLES / name)],
        env={**os.environ, "WAYSTATION_BOOTSTRAP": bootstrap},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for number in range(10):
        assert f"order {number}" in done.stdout
