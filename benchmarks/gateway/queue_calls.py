"""What it costs to receive from a queue over HTTP and to acknowledge, by call and by socket.

Each caller receives up to some messages, acknowledges them, and begins again; a socket acknowledges
each message by a frame of its own.  CPU time is the node's, so that it counts whoever else uses the
machine; latencies are of the clock.  What comes twice, or never, fails the load.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, cast

import msgspec
from tests.support.figures import cpu_seconds
from tests.support.http_load import post

from benchmarks.gateway.node import node
from benchmarks.gateway.rows import Row
from benchmarks.loads.librdkafka import LoadError
from benchmarks.push.waystation import frame
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

PAIRS_PER_S, PAIR_MS = 2_000, 5.0
"""Promised: pairs of calls per core-second with 16 callers, and how long one takes alone."""

_PARTITIONS: Final = 4
_SENT_AT_ONCE: Final = 1_000
_WITHIN_S: Final = 300
_CREDIT: Final = 100
_queues = count()


class _Case(NamedTuple):
    callers: int
    limit: int
    is_socket: bool = False

    @property
    def name(self) -> str:
        """As it stands in the table."""
        callers = "1 caller" if self.callers == 1 else f"{self.callers} callers"
        if self.is_socket:
            return f"a queue by {self.callers} sockets, acknowledged one by one"
        return f"a queue by {callers}, max {self.limit}"


_CASES: Final = [
    *(_Case(callers, limit) for limit in (1, 10, 100) for callers in (1, 16, 64)),
    _Case(16, 1, is_socket=True),
]


def measure(pairs: int, data_dir: str | None) -> list[Row]:
    """Some rows for each case."""
    with node(data_dir) as broker:
        _measured(broker, _Case(16, 1), 300)
        return [row for case in _CASES for row in _rows(broker, case, pairs)]


def _rows(broker: BrokerProcess, case: _Case, pairs: int) -> list[Row]:
    pairs = max(pairs // (4 if case.callers == 1 or case.limit == 100 else 1), case.callers)
    messages = pairs * case.limit
    cpu_s, took_s, pair_ms = _measured(broker, case, messages)
    is_promised = (case.callers, case.limit) == (16, 1) and not case.is_socket
    rows = [
        Row(
            f"{case.name}: messages per core-second",
            messages / cpu_s,
            "msg/s",
            at_least=PAIRS_PER_S if is_promised else None,
        ),
        Row("  CPU of the node per message", cpu_s / messages * 1e6, "µs"),
        Row("  messages per second of the clock", messages / took_s, "msg/s"),
    ]
    if pair_ms:
        alone = (case.callers, case.limit) == (1, 1)
        half, most = pair_ms[len(pair_ms) // 2], pair_ms[int(len(pair_ms) * 0.99)]
        rows += [
            Row("  receive and ack, p50", half, "ms", below=PAIR_MS if alone else None),
            Row("  receive and ack, p99", most, "ms"),
        ]
    return rows


def _measured(
    broker: BrokerProcess, case: _Case, messages: int
) -> tuple[float, float, list[float]]:
    """CPU seconds of the node, seconds of the clock, and how long pairs took, sorted."""
    queue = f"calls-{next(_queues)}"
    _call(broker, "/v1/queues", {"name": queue, "partitions": _PARTITIONS})
    for first in range(0, messages, _SENT_AT_ONCE):
        some = range(first, min(first + _SENT_AT_ONCE, messages))
        _call(
            broker,
            f"/v1/queues/{queue}/messages/batch",
            {"messages": [{"key": str(one % 97), "value": f"{one:0100d}"} for one in some]},
        )
    _call(broker, f"/v1/queues/{queue}/receive", {"max": 1, "lease_ms": 100})  # the group is there
    before_s, began = cpu_seconds(broker.pid), time.perf_counter()
    done = run(_taken(broker.http, queue, case, messages))
    took_s = time.perf_counter() - began
    return cpu_seconds(broker.pid) - before_s, took_s, sorted(done.pair_ms)


async def _taken(address: str, queue: str, case: _Case, messages: int) -> _Done:
    host, _, port = address.rpartition(":")
    loop, done = asyncio.get_running_loop(), _Done(messages)
    made: Callable[[], _Consumer] = (
        partial(_SocketConsumer, done, queue)
        if case.is_socket
        else partial(_Caller, done, queue, case.limit)
    )
    opened = [await loop.create_connection(made, host, int(port)) for _ in range(case.callers)]
    try:
        async with asyncio.timeout(_WITHIN_S):
            await done.all
    except TimeoutError:
        raise LoadError(f"{done.missing} messages never came: {case.name}") from None
    for transport, _ in opened:
        transport.abort()
    return done


class _Done:
    """What all consumers have acknowledged."""

    def __init__(self, messages: int) -> None:
        self._numbers = set(range(messages))
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pair_ms: list[float] = []

    @property
    def missing(self) -> int:
        """How many are not."""
        return len(self._numbers)

    def acknowledged(self, numbers: list[int]) -> None:
        """These were; never before."""
        try:
            for one in numbers:
                self._numbers.remove(one)
        except KeyError:
            self.failed(f"message {one} came again after it was acknowledged")
        if not self._numbers and not self.all.done():
            self.all.set_result(None)

    def failed(self, why: str) -> None:
        """The load is worth nothing."""
        if not self.all.done():
            self.all.set_exception(LoadError(why))


class _Consumer(asyncio.Protocol, ABC):
    """One connection to the node."""

    def __init__(self, done: _Done) -> None:
        self.done = done
        self._begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.begin()

    def data_received(self, data: bytes) -> None:
        self._begun = self.take(self._begun + data)

    @abstractmethod
    def begin(self) -> None:
        """Say the first thing."""

    @abstractmethod
    def take(self, data: bytes) -> bytes:
        """Follow what came; what of it is not whole yet."""


class _Message(msgspec.Struct):
    value: str
    receipt: str = ""
    id: str = ""


class _Received(msgspec.Struct):
    messages: list[_Message]


_received: Final = msgspec.json.Decoder(_Received).decode
_pushed: Final = msgspec.json.Decoder(_Message).decode


class _Caller(_Consumer):
    """Receives and acknowledges, in turn."""

    def __init__(self, done: _Done, queue: str, limit: int) -> None:
        super().__init__(done)
        wanted = msgspec.json.encode({"max": limit, "wait_ms": 1_000})
        self._receive = post(f"/v1/queues/{queue}/receive", wanted)
        self._ack = partial(post, f"/v1/queues/{queue}/ack")
        self._held: list[_Message] = []
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.perf_counter()
        self.transport.write(self._receive)

    def take(self, data: bytes) -> bytes:
        header, found, body = data.partition(b"\r\n\r\n")
        if not found or len(body) < int(header.partition(b"content-length: ")[2].split()[0]):
            return data
        if not header.startswith(b"HTTP/1.1 200"):
            self.done.failed(data.decode())
        elif self._held:
            self.done.pair_ms.append((time.perf_counter() - self._began) * 1e3)
            self.done.acknowledged([int(one.value) for one in self._held])
            self._held = []
            self.begin()
        elif held := _received(body).messages:
            self._held = held
            receipts = {"receipts": [one.receipt for one in held]}
            self.transport.write(self._ack(msgspec.json.encode(receipts)))
        else:
            self.begin()
        return b""


class _SocketConsumer(_Consumer):
    """Is pushed messages, and acknowledges each by itself."""

    def __init__(self, done: _Done, queue: str) -> None:
        super().__init__(done)
        self._path = f"/v1/queues/{queue}/socket?credit={_CREDIT}"
        self._is_open = False
        self._came = 0

    def begin(self) -> None:
        key = b64encode(os.urandom(16)).decode()
        self.transport.write(
            f"GET {self._path} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
            "upgrade: websocket\r\nsec-websocket-version: 13\r\n"
            f"sec-websocket-key: {key}\r\n\r\n".encode()
        )

    def take(self, data: bytes) -> bytes:
        if not self._is_open:
            header, found, behind = data.partition(b"\r\n\r\n")
            if not found:
                return data
            if not header.startswith(b"HTTP/1.1 101"):
                self.done.failed(data.decode())
            self._is_open, data = True, behind
        said: list[bytes] = []
        while (end := _frame_end(data)) <= len(data):
            text, data = data[data.index(b"{") : end], data[end:]
            if text.startswith(b'{"type":"message"'):
                message = _pushed(text)
                said.append(frame({"type": "ack", "ids": [message.id], "ref": int(message.value)}))
                self._came += 1
                if self._came % (_CREDIT // 2) == 0:
                    said.append(frame({"type": "credit", "messages": _CREDIT // 2}))
            elif text.startswith(b'{"type":"settled"'):
                self.done.acknowledged([int(json.loads(text)["ref"])])
            elif not text.startswith(b'{"type":"ready"'):
                self.done.failed(text.decode())
        if said:
            self.transport.write(b"".join(said))
        return data


def _frame_end(data: bytes) -> int:
    """Where the first frame ends; past the data if it is not whole."""
    if len(data) < 4:
        return 4
    if data[1] < 126:
        return 2 + data[1]
    return 4 + int.from_bytes(data[2:4], "big")


def _call(broker: BrokerProcess, path: str, body: Any) -> None:
    asked = urllib.request.Request(
        f"http://{broker.http}{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        answer.read()
