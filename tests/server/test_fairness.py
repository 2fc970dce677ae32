"""A client that asks little is served soon, however much others ask.

"Soon" is counted in what the server does for others meanwhile, not in time, so that the tests
mean the same on a machine that is busy with something else.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.server.kit import Serving, frame, head, serving
from waystation.server.connection import Request, Respond

FLOODS = 4
PINGS = 100

# The client runs on the same loop and takes several rounds of it for one ping.
TURNS = 20


def answer(request: Request, respond: Respond) -> None:
    respond([head(request)])


class Flood:
    """A client on threads of its own that pipelines as fast as it can."""

    def __init__(self, port: int, stream: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._threads = [
            threading.Thread(target=self._send, args=(stream,)),
            threading.Thread(target=self._receive),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _send(self, stream: bytes) -> None:
        with suppress(OSError):
            while True:
                self._socket.sendall(stream)

    def _receive(self) -> None:
        with suppress(OSError):
            while self._socket.recv(1 << 20):
                pass


@asynccontextmanager
async def flooded(stream: bytes) -> AsyncIterator[Serving]:
    """A server with clients that send more than it can handle."""
    async with serving(answer) as server:
        floods = [Flood(server.port, stream) for _ in range(FLOODS)]
        try:
            while server.count("received_bytes_total") < 8 << 20:
                await asyncio.sleep(0)
            yield server
        finally:
            for one in floods:
                one.end()


async def most_done_meanwhile(server: Serving, counter: str) -> float:
    """How much ``counter`` grew at most between a ping and its reply."""
    pinger = await server.connect()
    most = 0.0
    for number in range(PINGS):
        before = server.count(counter)
        await pinger.ask(b"", number)
        most = max(most, server.count(counter) - before)
    return most


async def test_small_requests_of_others_go_by_in_turns() -> None:
    """A single read of 256 KB would be 2,000 requests, and each of four clients has one."""
    async with flooded(frame(bytes(100)) * 4_000) as server:
        assert await most_done_meanwhile(server, "requests_total") < TURNS * FLOODS * 32


async def test_large_requests_of_others_go_by_in_turns() -> None:
    """uvloop would read up to 32 times 256 KB from each of them."""
    async with flooded(frame(bytes(60_000)) * 100) as server:
        assert await most_done_meanwhile(server, "received_bytes_total") < TURNS * FLOODS * (
            256 << 10
        )
