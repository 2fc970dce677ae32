"""HTTP requests at a steady rate, over connections that are kept.

Request *i* is due at ``begin + i / rate``, and its latency counts from then, whoever was late: a
node that stands still is charged for all that were due meanwhile.  With fewer free connections than
requests under way the others wait here, and their time counts too.
"""

import asyncio
from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

Made = Callable[[int], bytes]
"""Makes the request of a number, as it goes over the wire."""
Answered = Callable[[int, bytes], None]
"""Hears of the answer to it, whole."""


def post(path: str, body: bytes) -> bytes:
    """A request with a JSON body."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


def get(path: str) -> bytes:
    """A request without one."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


class Latencies(NamedTuple):
    """How long answers took, in milliseconds from when the requests were due."""

    count: int
    p50: float
    p99: float
    p999: float
    most: float

    @classmethod
    def of(cls, seconds: "array[float]") -> "Latencies":
        """Of at least one."""
        ranked = sorted(seconds)
        parts = (ranked[min(int(len(ranked) * part), len(ranked) - 1)] for part in _PARTS)
        return cls(len(ranked), *(one * 1e3 for one in parts), ranked[-1] * 1e3)

    def __str__(self) -> str:
        """As it stands in a report."""
        return (
            f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, p99.9 {self.p999:.1f} ms, "
            f"at most {self.most:.1f} ms"
        )


_PARTS = (0.5, 0.99, 0.999)


class Load:
    """Requests at a rate; ``refused`` are answers that were not 2xx, ``broken`` is a lost node."""

    def __init__(
        self, address: str, made: Made, answered: Answered | None = None, *, connections: int = 64
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._made, self._answered = made, answered
        self._connections = connections
        self._free: list[_Connection] = []
        self._backlog: deque[tuple[int, float]] = deque()
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        self._left = 0
        self._closed = False
        self.seconds = array("d")
        self.refused: list[bytes] = []
        self.broken = False

    async def run(self, rate: float, count: int, *, first: int = 0) -> None:
        """``count`` requests, numbered from ``first``; returns once all are answered, or broken."""
        while len(self._free) < self._connections:
            await self._loop.create_connection(lambda: _Connection(self), self._host, self._port)
        begin, sent = self._loop.time(), 0
        self._left = count
        self._done.clear()
        while sent < count and not self.broken:
            due = min(int((self._loop.time() - begin) * rate) + 1, count)
            for number in range(sent, due):
                self._begin(first + number, begin + number / rate)
            sent = due
            if sent < count:
                await asyncio.sleep(max(begin + sent / rate - self._loop.time(), 0))
        if not self.broken:
            await self._done.wait()

    def close(self) -> None:
        """Let go of all connections."""
        self._closed = True
        free, self._free = self._free, []
        for one in free:
            one.close()

    @property
    def latencies(self) -> Latencies:
        """Of all that were answered."""
        return Latencies.of(self.seconds)

    # --- what connections tell ------------------------------------------------------------------

    def opened(self, connection: "_Connection") -> None:
        """One more is ready."""
        self._free.append(connection)

    def took(self, connection: "_Connection", number: int, due: float, answer: bytes) -> None:
        """An answer is whole."""
        self.seconds.append(self._loop.time() - due)
        if not answer.startswith(b"HTTP/1.1 2"):
            self.refused.append(answer)
        elif self._answered is not None:
            self._answered(number, answer)
        self._left -= 1
        if not self._left:
            self._done.set()
        if self._backlog:
            connection.ask(*self._backlog.popleft(), self._made)
        else:
            self._free.append(connection)

    def lost(self) -> None:
        """A connection is gone; what became of a request that was under way nobody knows."""
        if not self._closed:
            self.broken = True
            self._done.set()

    def _begin(self, number: int, due: float) -> None:
        if self._free:
            self._free.pop().ask(number, due, self._made)
        else:
            self._backlog.append((number, due))


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._number, self._due = -1, 0.0
        self._gathered, self._whole = b"", 0

    def ask(self, number: int, due: float, made: Made) -> None:
        self._number, self._due = number, due
        self._transport.write(made(number))

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._load.opened(self)

    def data_received(self, data: bytes) -> None:
        self._gathered += data
        if not self._whole:
            header, found, _ = self._gathered.partition(b"\r\n\r\n")
            if not found:
                return
            length = int(header.lower().partition(b"content-length: ")[2].split()[0])
            self._whole = len(header) + 4 + length
        if len(self._gathered) >= self._whole:
            answer, self._gathered, self._whole = self._gathered, b"", 0
            number, self._number = self._number, -1
            self._load.took(self, number, self._due, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost()
