"""A node that serves HTTP, for one measurement."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waystation.testing.process import BrokerProcess

_READY_S = 10.0


@contextmanager
def node(data_dir: str | None = None) -> Iterator[BrokerProcess]:
    """A fresh one until the end of the block."""
    with (
        tempfile.TemporaryDirectory(prefix="gateway-", dir=data_dir) as folder,
        BrokerProcess(Path(folder) / "data", http="127.0.0.1:0").start() as broker,
    ):
        yield broker


def create_topic(broker: BrokerProcess, name: str, partitions: int, durability: str) -> None:
    """By HTTP, so that the gateway is there afterwards; who has just begun is waited for."""
    topic = {"name": name, "partitions": partitions, "config": {"durability": durability}}
    asked = urllib.request.Request(
        f"http://{broker.http}/v1/topics",
        json.dumps(topic).encode(),
        {"content-type": "application/json"},
    )
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                answer.read()
            return
        except urllib.error.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
