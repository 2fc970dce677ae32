"""The page about webhooks: its commands and programs run, its table is complete."""

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.http_client import HttpClient
from tests.support.webhook_calls import LOOPBACK, make_topic, send
from tests.support.webhook_receiver import Receiver

from waystation.gateway.webhook_bodies import NewWebhook
from waystation.testing.process import BrokerProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "webhooks.md").read_text()
Verified = Callable[[str, Mapping[str, str], bytes], bool]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell(script: str, broker: BrokerProcess) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WAYSTATION_BOOTSTRAP": broker.bootstrap,
        "WAYSTATION_HTTP_ADDRESS": broker.http,
    }
    return subprocess.run(
        ["sh", "-e"], input=script, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Receiver]:
    """All commands of the page, run in turn; what they printed, and what was received."""
    data_dir = tmp_path_factory.mktemp("page") / "data"
    broker = BrokerProcess(data_dir, http="127.0.0.1:0", options=LOOPBACK)
    with Receiver() as receiver, broker.start():
        at = receiver.url.removeprefix("http://").removesuffix("/hook")
        script = "".join(blocks("sh")).replace("curl -s", "curl -fsS -w '\\n'")
        script = script.replace("127.0.0.1:9000", at).replace("127.0.0.1:8090", broker.http)
        done = shell(script, broker)
        assert done.returncode == 0, done.stderr
        program = blocks("python")[0].replace("node-1:8090,node-2:8090", broker.http)
        wrapped = textwrap.indent(program.replace("https://example.com/hooks", receiver.url), "  ")
        space: dict[str, Any] = {}
        exec(f"async def main():\n{wrapped}", space)
        asyncio.run(space["main"]())
        receiver.until(lambda: any("waystation-offset" in hook.headers for hook in receiver.hooks))
    return done.stdout, receiver


def test_the_commands_run(told: tuple[str, Receiver]) -> None:
    out, receiver = told
    (message,) = [hook for hook in receiver.hooks if hook.json.get("offset") == 0][:1]

    (shape,) = blocks("json")
    shown = json.loads(shape)
    assert list(message.json) == list(shown)
    assert {name: message.json[name] for name in ("topic", "value", "headers")} == {
        name: shown[name] for name in ("topic", "value", "headers")
    }
    named = set(re.findall(r"`((?:webhook|waystation)-[a-z]+)`", PAGE))
    sent = {
        name
        for hook in receiver.hooks
        for name in hook.headers
        if name.startswith(("webhook-", "waystation-"))
    }
    assert sent == named
    assert len(out.splitlines()) > 20


def test_the_program_of_the_page_verifies_and_refuses(told: tuple[str, Receiver]) -> None:
    out, receiver = told
    secret = next(line for line in out.splitlines() if line.startswith("whsec_"))
    space: dict[str, Any] = {}
    exec(blocks("python")[1], space)
    verified: Verified = space["verified"]
    hook = next(one for one in receiver.hooks if one.headers["waystation-webhook"] == "billing")

    assert verified(secret, hook.headers, hook.body)
    assert not verified(secret, hook.headers, hook.body + b" ")
    assert not verified(secret, {**hook.headers, "webhook-id": "another"}, hook.body)
    old = str(int(hook.headers["webhook-timestamp"]) - 600)
    assert not verified(secret, {**hook.headers, "webhook-timestamp": old}, hook.body)


def test_the_page_names_every_field() -> None:
    table = PAGE.partition("## What a webhook can be told")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", table))

    assert set(NewWebhook.__struct_fields__) <= named


def test_the_example_receives_what_is_signed(tmp_path: Path) -> None:
    example = [sys.executable, str(ROOT / "examples" / "webhook_receiver.py"), "0", "2"]
    broker = BrokerProcess(tmp_path / "data", http="127.0.0.1:0", options=LOOPBACK)
    with broker.start(), HttpClient(broker.http) as http:
        make_topic(http, "orders")
        with subprocess.Popen(
            example, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as receiving:
            assert receiving.stdout is not None
            url = receiving.stdout.readline().split()[-1]
            made = http.post("/v1/webhooks", {"name": "shop", "topic": "orders", "url": url})
            assert receiving.stdin is not None
            print(made.json["secret"], file=receiving.stdin, flush=True)
            send(http, "orders", "tea", "milk")
            received = [json.loads(line)["value"] for line in receiving.stdout]

    assert sorted(received) == ["milk", "tea"]
