"""What a POST of one message, and of a hundred, costs the node, in CPU time of its process.

CPU time of the process and not the clock: it says how many a core could take, whoever else uses
the machine.  What was answered in a second of the clock stands beside it.  The client is another
process, this one, over plain sockets: each connection asks when it was answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple, cast

import msgspec
from tests.support.figures import cpu_seconds
from tests.support.http_load import post

from benchmarks.gateway.node import create_topic, node
from benchmarks.gateway.rows import Row
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

SINGLE_PER_S, BATCHED_PER_S = 8_000, 150_000
"""What is promised of a core: messages a second, one by one and by the hundred."""

_WARM_UP = 500
_ROUNDS = 3


class _Kind(NamedTuple):
    name: str
    topic: str
    request: bytes
    messages: int
    promised: int | None


def measure(posts: int, connections: int, durability: str, data_dir: str | None) -> list[Row]:
    """A row for each kind of request: the median of some rounds."""
    with node(data_dir) as broker:
        create_topic(broker, "one", 1, durability)
        create_topic(broker, "six", 6, durability)
        kinds = _kinds()
        return [row for kind in kinds for row in _rows(broker, kind, posts, connections)]


def _kinds() -> list[_Kind]:
    one = {"key": "customer-1234567", "value": "v" * 100}
    several = [{"key": f"customer-{number:07d}", "value": "v" * 100} for number in range(100)]
    return [
        _Kind("one message", "one", _post("one", one), 1, SINGLE_PER_S),
        _Kind("100 messages", "one", _posts("one", [one] * 100), 100, BATCHED_PER_S),
        _Kind("100 keys, 6 partitions", "six", _posts("six", several), 100, None),
    ]


def _post(topic: str, message: object) -> bytes:
    return post(f"/v1/topics/{topic}/messages", msgspec.json.encode(message))


def _posts(topic: str, messages: list[dict[str, str]]) -> bytes:
    body = msgspec.json.encode({"messages": messages})
    return post(f"/v1/topics/{topic}/messages/batch", body)


def _rows(broker: BrokerProcess, kind: _Kind, posts: int, connections: int) -> list[Row]:
    count = posts if kind.messages == 1 else max(posts // 20, connections)
    run(posted(broker.http, kind.request, min(count, _WARM_UP), connections))
    rounds = sorted(_round(broker, kind.request, count, connections) for _ in range(_ROUNDS))
    each_s, per_s = rounds[_ROUNDS // 2]
    rate = kind.messages / each_s
    return [
        Row(f"{kind.name}: messages per core-second", rate, "msg/s", at_least=kind.promised),
        Row("  CPU of the node per POST", each_s * 1e6, "µs"),
        Row("  messages per second of the clock", per_s * kind.messages, "msg/s"),
    ]


def _round(
    broker: BrokerProcess, request: bytes, count: int, connections: int
) -> tuple[float, float]:
    """CPU seconds of the node per request, and requests a second."""
    before_s = cpu_seconds(broker.pid)
    took_s = run(posted(broker.http, request, count, connections))
    return (cpu_seconds(broker.pid) - before_s) / count, count / took_s


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
