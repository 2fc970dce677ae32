"""``make demo`` shows every face of the broker and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy(90), pytest.mark.timeout(400)]

DEMO = Path(__file__).parents[2] / "tools" / "demo.py"


def test_the_tour_runs_to_its_end() -> None:
    ended = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=380, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert "That was the tour" in ended.stdout
    assert '"key":"customer-1"' in ended.stdout
    assert "\nstill open?\n" in ended.stdout, "what was scheduled has not come"
    assert '"to_user":"user456","message":"Hello!"' in ended.stdout
    assert '"value":"thank you"' in ended.stdout, "the transaction was not committed"
    assert 'data: {"partition":' in ended.stdout, "no event came"
    assert '"value":"{\\"order\\": 9, \\"amount\\": 63}","headers":[]' in ended.stdout, "not pushed"
    assert '"replayed":false}' in ended.stdout, "what was sent once was stored before"
    assert '"replayed":true}' in ended.stdout, "what was sent twice was stored twice"
    assert '{"ready":true' in ended.stdout
    assert "waystation_api_seconds" in ended.stdout
    assert "broker-2: killed" in ended.stderr
    assert ended.stderr.count("healthy") == 2
