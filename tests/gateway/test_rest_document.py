"""The page about HTTP: its examples run, and it names every call."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.support.http_client import HttpClient

from waystation.testing.process import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has nobody else's topics."""
    with BrokerProcess(tmp_path_factory.mktemp("page") / "data", http="127.0.0.1:0").start() as one:
        yield one


def examples() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_run(fresh: BrokerProcess) -> None:
    lines = examples()
    assert len(lines) > 15

    for line in lines:
        command = line.replace("127.0.0.1:8090", fresh.http).replace("curl -s", "curl -fsS")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        for told in done.stdout.splitlines():
            json.loads(told)


def test_the_page_names_every_call(fresh: BrokerProcess) -> None:
    with HttpClient(fresh.http) as http:
        paths = http.openapi["paths"]
    named = set(re.findall(r"`(?:[A-Z]+ )?(/[^`?]*)`", PAGE))

    assert {path for path in paths if path.startswith(("/v1/topics", "/v1/groups"))} <= named


def test_beyond_loopback_there_is_only_health_unless_allowed(tmp_path: Path) -> None:
    for options, status in (({}, 404), ({"insecure": "true"}, 200)):
        broker = BrokerProcess(tmp_path / str(status), http="0.0.0.0:0", options=options)
        with broker.start():
            _, _, port = broker.http.rpartition(":")
            connection = HTTPConnection("127.0.0.1", int(port), timeout=20)
            for path, wanted in (("/healthz", 200), ("/v1/topics", status)):
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (wanted, True), path
            connection.close()
