"""The page about transactions over HTTP: its examples run, and it names every call."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.http_client import HttpClient

from waystation.testing.process import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "http-transactions.md").read_text()


def test_the_examples_run(broker: BrokerProcess) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2

    for block in blocks:
        script = block.replace("127.0.0.1:8090", broker.http).replace("curl -s", "curl -fsS")
        script = script.replace("\ncurl", "\necho\ncurl")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines() if line]
        assert told[-1]["state"] == ("committed" if block is blocks[0] else "aborted")


def test_the_page_names_every_call(broker: BrokerProcess) -> None:
    with HttpClient(broker.http) as http:
        paths = http.openapi["paths"]
    named = set(re.findall(r"`(?:[A-Z]+ )?(/[^`?]*)`", PAGE))

    assert {path for path in paths if path.startswith("/v1/transactions")} <= named
