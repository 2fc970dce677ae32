"""The page about the inbox: its examples run, one after the other, as they are written."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from waystation.testing.process import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "inbox.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = "".join(blocks).replace("curl -s", "curl -fsS -w '\\n'")
    with BrokerProcess(tmp_path / "data", http="127.0.0.1:0").start() as broker:
        told = subprocess.run(
            ["sh", "-e"],
            input=script.replace("127.0.0.1:8090", broker.http),
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr

    sent, got, again, rest, by_body, nothing = map(json.loads, told.stdout.splitlines())
    (shape,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (shown,), (first,) = json.loads(shape)["messages"], got["messages"]
    changing = ("message_id", "timestamp")
    assert list(shown) == list(first)
    assert all(shown[name] == first[name] for name in shown if name not in changing)
    assert first["message_id"] == sent["message_id"]
    assert [one["message_id"] for one in rest["messages"]] == [again["message_id"]]
    assert (by_body, nothing) == (rest, {"messages": []})
