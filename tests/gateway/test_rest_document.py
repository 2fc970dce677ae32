"""The pages about HTTP: their examples run, and every call is named and has one."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.http_client import HttpClient

from waystation.filters.lexing import EXPRESSION_CHARACTERS
from waystation.testing.process import BrokerProcess

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("http.md", "http-queues.md")
"""Those that run here."""
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has nobody else's topics."""
    with BrokerProcess(tmp_path_factory.mktemp("page") / "data", http="127.0.0.1:0").start() as one:
        yield one


@pytest.fixture(scope="module")
def openapi(fresh: BrokerProcess) -> dict[str, Any]:
    with HttpClient(fresh.http) as http:
        return http.openapi


def examples(page: str) -> str:
    """All that a page shows in a shell, as one script."""
    text = (DOCS / page).read_text()
    return "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(fresh: BrokerProcess, page: str) -> None:
    script = examples(page)
    assert script.count("curl") > 15
    commands = script.replace("127.0.0.1:8090", fresh.http).replace("curl -s", "curl -w '\\n' -fSs")

    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail"],
        input=f"set -x\n{commands}",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    for told in done.stdout.splitlines():
        if told.startswith(("{", "[")):
            json.loads(told)


def test_the_pages_name_every_call(openapi: dict[str, Any]) -> None:
    text = (DOCS / "http.md").read_text()
    named = set(re.findall(r"`(?:[A-Z]+ )?(/[^`?]*)`", text))
    every = {path for path in openapi["paths"] if path.startswith("/v1/")}

    assert {path for path in every if not path.startswith("/v1/webhooks")} - named == set()


def test_every_call_has_an_example_that_runs(openapi: dict[str, Any]) -> None:
    shown = {call for page in _run() for line in _commands(page) for call in _calls(line)}
    wanted = {
        (method.upper(), path)
        for path, operations in openapi["paths"].items()
        for method in operations
        if method in METHODS and not path.endswith("/socket")  # curl does not speak WebSocket
    }

    missing = {call for call in wanted if not any(_is_of(one, call) for one in shown)}
    assert missing == set()


def test_every_call_has_its_counterpart_in_python(openapi: dict[str, Any]) -> None:
    guide = (DOCS / "guides" / "python-client.md").read_text()
    listed = set(re.findall(r"`([A-Z]+) (/[^`]*)`", guide))

    missing = {
        (method.upper(), path)
        for path, operations in openapi["paths"].items()
        for method in operations
        if method in METHODS and path.startswith(("/v1/", "/send", "/receive"))
    } - listed
    assert missing == set()


def test_conditions_may_be_as_long_as_the_description_says(openapi: dict[str, Any]) -> None:
    bodies = [one.get("properties", {}) for one in openapi["components"]["schemas"].values()]
    told = re.findall(r'"maxLength": (\d+)', json.dumps([one.get("where") for one in bodies]))
    asked = [
        one["schema"]["anyOf"][0]["maxLength"]
        for operations in openapi["paths"].values()
        for operation in operations.values()
        for one in operation.get("parameters", ())
        if one["name"] == "where"
    ]

    assert len(told) >= 3
    assert len(asked) >= 4
    assert {*map(int, told), *asked} == {EXPRESSION_CHARACTERS}


def _run() -> list[str]:
    """The pages whose examples run, here or in another test of a page."""
    tests = "".join(one.read_text() for one in Path(__file__).parent.glob("test_*document*.py"))
    return [one.name for one in DOCS.glob("*.md") if f'"{one.name}"' in tests]


def _commands(page: str) -> list[list[str]]:
    """The words of every curl in the examples, those within others too."""
    script = re.sub(r"\\\n", " ", examples(page))
    found = []
    for part in re.findall(r"curl [^\n]*", script):
        for one in re.split(r"(?<!^)(?=curl )", part):
            cut = re.split(r" \| (?=[a-z])|\)$|; do|\) ", one)[0]
            try:
                found.append(shlex.split(cut))
            except ValueError:
                found.append(cut.replace("'", "").replace('"', "").split())
    return found


def _calls(words: list[str]) -> Iterator[tuple[str, str]]:
    method = words[words.index("-X") + 1] if "-X" in words else None
    if method is None:
        options = " ".join(word for word in words if word.startswith("-"))
        sends = re.search(r"--json|--data|(?<!-)-d\b|-T\b", options) is not None
        method = "POST" if sends and not re.search(r"-\w*G", options) else "GET"
    for word in words:
        if word.startswith("http://127.0.0.1:8090"):
            yield method, urlsplit(word).path


def _is_of(shown: tuple[str, str], call: tuple[str, str]) -> bool:
    parts, wanted = shown[1].split("/"), call[1].split("/")
    return (
        shown[0] == call[0]
        and len(parts) == len(wanted)
        and all(
            one == other or (other.startswith("{") and one)
            for one, other in zip(parts, wanted, strict=True)
        )
    )


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
