"""The page about push: its examples run as they are written, and its tables are true."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from waystation.client.admin import Admin
from waystation.client.queue import Queue
from waystation.gateway.bodies import Limits
from waystation.gateway.push import EventsParams
from waystation.gateway.sockets_frames import QUEUE_FRAMES, TOPIC_FRAMES
from waystation.testing.process import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "push.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker where everything is as the page expects it: new."""
    data_dir = tmp_path_factory.mktemp("push-page") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0").start() as broker:
        yield broker


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_examples_run_and_print_what_is_shown(fresh: BrokerProcess, tmp_path: Path) -> None:
    script = "".join(blocks("sh")).replace("curl -s", "curl -fsS")
    told = subprocess.run(
        ["sh", "-e"],
        input=script.replace("127.0.0.1:8090", fresh.http),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert told.returncode == 0, told.stderr

    pushed = [json.loads(one) for one in re.findall(r"^data: (.*)$", told.stdout, re.MULTILINE)]
    assert [one["value"] for one in pushed] == [
        {"item": "coffee", "total": 3}, "next", "next", "last", "last"
    ]  # fmt: skip
    (shown,) = re.findall(r"^```\n(retry.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    printed = re.search(r"retry: .*?^data: .*?$", told.stdout, re.MULTILINE | re.DOTALL)
    assert printed is not None
    assert _without_what_changes(shown.strip()) == _without_what_changes(printed[0])


async def test_the_worker_works(fresh: BrokerProcess) -> None:
    async with Admin(fresh.bootstrap) as admin:
        await admin.create_queue("jobs")
    (worker,) = blocks("python")
    async with Queue("jobs", fresh.bootstrap) as queue:
        for number in range(12):
            await queue.send(f"job {number}")
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-u",
            "-c",
            worker.replace("127.0.0.1:8090", fresh.http),
            stdout=asyncio.subprocess.PIPE,
        )
        assert running.stdout is not None
        async with asyncio.timeout(60):
            done = [(await running.stdout.readline()).decode().strip() for _ in range(12)]
        running.kill()
        await running.wait()
        assert sorted(done) == sorted(f"doing job {number}" for number in range(12))


def test_the_page_names_every_parameter_and_every_message() -> None:
    names = {
        name if name != "begin" else "from"
        for name in EventsParams.__struct_fields__
        if name != "topic"
    }
    assert names <= set(re.findall(r"`(\w+)`", PAGE))
    for frames in (TOPIC_FRAMES, QUEUE_FRAMES):
        for one in (*get_args(frames.client), *get_args(frames.server)):
            assert f"`{one.__struct_config__.tag}`" in PAGE, one


def test_the_limits_are_those_of_the_code() -> None:
    assert f"{Limits().streams:,}, then 503" in PAGE
    assert f"{Limits().frame_bytes >> 20} MiB, in at most" in PAGE
    assert f"pings every {Limits().ping_s:.0f} seconds" in PAGE


def _without_what_changes(text: str) -> str:
    text = re.sub(r"id: [\w-]{8}", "id: ", text)
    return re.sub(r'"timestamp_ms":\d+', "", text)
