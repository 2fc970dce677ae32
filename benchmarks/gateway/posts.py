"""What a POST of one message, and of a hundred, costs the node, in CPU time of its process.

    python -m benchmarks.gateway.posts [--posts N] [--connections N] [--durability memory|flush]

CPU time of the process and not the clock: it says how many a core could take, whoever else uses
the machine.  The client is another process.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import cast

import msgspec

from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds that all threads of a process have been running."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class _Poster(asyncio.Protocol):
    """Sends one request after the other, each when the one before was answered."""

    def __init__(self, request: bytes, count: int) -> None:
        self._request, self._left = request, count
        self._begun = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        data = self._begun + data
        header, found, body = data.partition(b"\r\n\r\n")
        if not found or len(body) < int(header.partition(b"content-length: ")[2].split()[0]):
            self._begun = data
            return
        self._begun = b""
        if not data.startswith(b"HTTP/1.1 20"):
            self.done.set_exception(RuntimeError(data.decode()))
            return
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._transport.close()
            self.done.set_result(None)


def post(path: str, body: object) -> bytes:
    """A request as it goes over the wire."""
    told = msgspec.json.encode(body)
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(told)}\r\n\r\n"
    ).encode() + told


async def posted(address: str, request: bytes, count: int, connections: int) -> float:
    """Seconds until ``count`` requests were answered."""
    host, _, port = address.rpartition(":")
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    each = max(count // connections, 1)
    posters = [
        (await loop.create_connection(lambda: _Poster(request, each), host, int(port)))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(one.done for one in posters))
    return time.perf_counter() - began


def main() -> None:
    """Print a row for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posts", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--durability", default="memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data", http="127.0.0.1:0")
        with broker.start():
            _measure(broker, options.posts, options.connections, options.durability)


def _measure(broker: BrokerProcess, posts: int, connections: int, durability: str) -> None:
    topic = {"name": "t", "partitions": 1, "config": {"durability": durability}}
    run(posted(broker.http, post("/v1/topics", topic), 1, 1))
    message = {"key": "customer-1234567", "value": "v" * 100}
    hundred = {"messages": [message] * 100}
    rows = (
        ("one message", post("/v1/topics/t/messages", message), posts, 1),
        ("100 messages", post("/v1/topics/t/messages/batch", hundred), posts // 50, 100),
    )
    for name, request, count, each in rows:
        run(posted(broker.http, request, min(count, 500), connections))
        before = cpu_s(broker.pid)
        took_s = run(posted(broker.http, request, count, connections))
        used_s = cpu_s(broker.pid) - before
        print(
            f"{name}: {used_s / count * 1e6:.0f} µs of CPU per POST, "
            f"{count * each / used_s:,.0f} messages per core-second, {count * each / took_s:,.0f}/s"
        )


if __name__ == "__main__":
    main()
