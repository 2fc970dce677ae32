"""Webhooks of one node: ``python -m benchmarks.webhooks [--quick]``.

1. How many messages of 100 bytes a second reach a target on the same machine, by how many requests
   are under way and how many messages go together; and how many a core of the node could push.
2. How long after a message was sent its request arrives, while nothing else is to do.

The target is a process of its own that answers 200 and does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, cast

from tests.support.figures import cpu_seconds
from tests.support.http_client import HttpClient

from benchmarks.peers import machine
from benchmarks.peers.places import RESULTS
from benchmarks.report.results import fresh_directory
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

LOADS = ((1, 1, 1), (8, 1, 1), (32, 1, 1), (64, 1, 4), (8, 100, 1))
"""Requests under way, messages in each, partitions."""
_AT_ONCE = 500
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Row(NamedTuple):
    """One figure."""

    name: str
    value: float
    unit: str


class _Target(asyncio.Protocol):
    """Answers every request, and tells of single messages when they came."""

    def __init__(self, told: Connection) -> None:
        self._told = told
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            _, _, behind = self._buffer[:end].lower().partition(b"content-length: ")
            whole = end + 4 + int(behind.split(b"\r\n")[0])
            if len(self._buffer) < whole:
                return
            body, self._buffer = self._buffer[end + 4 : whole], self._buffer[whole:]
            if b'"sent ' in body:
                sent_at = json.loads(body)["value"].removeprefix("sent ")
                self._told.send(time.time() - float(sent_at))
            self._transport.write(_OK)


def _receive(told: Connection) -> None:
    async def receiving() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Target(told), "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    run(receiving())


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    facts = machine.facts(Path(tempfile.gettempdir()))
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    here, there = multiprocessing.Pipe()
    target = multiprocessing.Process(target=_receive, args=(there,), daemon=True)
    target.start()
    url = f"http://127.0.0.1:{here.recv()}/"
    options = {"webhook.allow": "127.0.0.0/8"}
    with tempfile.TemporaryDirectory(prefix="webhooks-", dir=given.data_dir) as folder:
        broker = BrokerProcess(Path(folder) / "data", http="127.0.0.1:0", options=options)
        with broker.start(), HttpClient(broker.http) as http:
            rows = [
                row for load in LOADS for row in _throughput(broker, http, url, given.count, *load)
            ]
            rows += _latency(http, url, here, given.singles)
    target.terminate()
    for row in rows:
        print(f"{row.name:<62} {row.value:12,.1f} {row.unit}")
    if given.out or not given.quick:
        _write(given, facts, rows)
    return 0


def _throughput(
    broker: BrokerProcess,
    http: HttpClient,
    url: str,
    count: int,
    concurrency: int,
    batch: int,
    partitions: int,
) -> list[Row]:
    name = f"load-{concurrency}-{batch}-{partitions}"
    http.post("/v1/topics", {"name": name, "partitions": partitions})
    messages = [{"key": str(n), "value": "v" * 100} for n in range(_AT_ONCE)]
    for _ in range(count // _AT_ONCE):
        http.post(f"/v1/topics/{name}/messages/batch", {"messages": messages})
    began, used = time.perf_counter(), cpu_seconds(broker.pid)
    told = {"concurrency": concurrency, "batch_size": batch, "begin": "earliest"}
    http.post("/v1/webhooks", {"name": name, "topic": name, "url": url, **told})
    while http.get(f"/v1/webhooks/{name}").json["state"]["delivered"] < count:
        time.sleep(0.05)
    seconds, cpu_s = time.perf_counter() - began, cpu_seconds(broker.pid) - used
    http.ask("DELETE", f"/v1/webhooks/{name}")
    what = f"{concurrency} under way, {batch} together, {partitions} partitions"
    return [
        Row(f"{what}: messages", count / seconds, "/s"),
        Row(f"{what}: messages of a core", count / cpu_s, "/s"),
    ]


def _latency(http: HttpClient, url: str, told: Connection, singles: int) -> list[Row]:
    http.post("/v1/topics", {"name": "singles", "partitions": 1})
    http.post("/v1/webhooks", {"name": "singles", "topic": "singles", "url": url})
    took = []
    for _ in range(singles):
        http.post("/v1/topics/singles/messages", {"value": f"sent {time.time()}"})
        took.append(told.recv() * 1_000)
    cuts = statistics.quantiles(took, n=100)
    return [
        Row("one message at a time: POST to arrival, median", cuts[49], "ms"),
        Row("one message at a time: POST to arrival, p99", cuts[98], "ms"),
    ]


def _write(given: argparse.Namespace, facts: dict[str, object], rows: list[Row]) -> None:
    directory = (
        Path(given.out) if given.out else fresh_directory(RESULTS / "webhooks", date.today())
    )
    directory.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": facts,
        "arguments": {name: str(value) for name, value in vars(given).items()},
        "rows": [row._asdict() for row in rows],
    }
    (directory / "webhooks.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {directory}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 messages each, no file")
    parser.add_argument("--count", type=int, help="messages for each load: 50,000")
    parser.add_argument("--singles", type=int, default=200, help="messages one at a time")
    parser.add_argument("--data-dir", help="where the broker keeps its logs")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    if given.count is None:
        given.count = 2_000 if given.quick else 50_000
    return given


if __name__ == "__main__":
    sys.exit(main())
