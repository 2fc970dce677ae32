"""The server alone: how fast frames come in and replies go out, on both loops.

The server runs in a process of its own and answers without doing anything; the client is this
process, with blocking sockets, precomputed requests and replies that it only counts.  Rates
depend on what else the machine does; the server's own CPU time per request or per MB hardly.

Run: python benchmarks/server/echo.py [seconds per figure]
"""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from waystation.runtime.clock import SystemClock
from waystation.runtime.regions import FileRegion
from waystation.server.connection import Request, Respond
from waystation.server.listener import Listener
from waystation.server.settings import ServerSettings
from waystation.telemetry.metrics import Registry

ECHO, SWALLOW, FILE = 18, 0, 3
VERSIONS = {ECHO: 0, SWALLOW: 3, FILE: 4}
FILE_BYTES = 1 << 20
LOOPS = {"stdlib": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class OpenFile:
    """A file by its descriptor."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def fileno(self) -> int | None:
        return self._file.fileno()

    def pread(self, nbytes: int, position: int) -> bytes:
        return os.pread(self._file.fileno(), nbytes, position)


async def serve(path: Path) -> None:
    file = OpenFile(path)

    def handle(request: Request, respond: Respond) -> None:
        head = struct.pack(">i", request.correlation_id)
        if request.api_key == ECHO:
            respond([head, bytes(request.body)])
        elif request.api_key == SWALLOW:
            respond([head])
        else:
            respond([head, FileRegion(file, 0, FILE_BYTES)])

    listener = Listener(ServerSettings(), handle, SystemClock(), Registry())
    port = await listener.start("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.Event().wait()


def request(api_key: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, VERSIONS[api_key], 7, 5) + b"bench"
    return struct.pack(">i", len(head) + len(body)) + head + body


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket, nbytes: int, into: bytearray) -> None:
    while nbytes:
        nbytes -= sock.recv_into(into, min(nbytes, len(into)))


def pipelined(port: int, frame: bytes, reply_bytes: int, depth: int, seconds: float) -> float:
    """Requests per second of one connection that keeps ``depth`` in flight."""
    sock, into = connect(port), bytearray(1 << 20)
    block, done = frame * max(1, depth // 2), 0
    per_block = max(1, depth // 2)
    sock.sendall(block)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        sock.sendall(block)
        receive(sock, reply_bytes * per_block, into)
        done += per_block
    took = time.perf_counter() - start
    receive(sock, reply_bytes * per_block, into)
    sock.close()
    return done / took


def many(port: int, frame: bytes, reply_bytes: int, clients: int, seconds: float) -> float:
    """Requests per second of many connections with one in flight each."""
    socks, into, done = [connect(port) for _ in range(clients)], bytearray(1 << 20), 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for sock in socks:
            sock.sendall(frame)
        for sock in socks:
            receive(sock, reply_bytes, into)
        done += clients
    took = time.perf_counter() - start
    for sock in socks:
        sock.close()
    return done / took


def round_trip_us(port: int, frame: bytes, reply_bytes: int, seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of one request in flight."""
    sock, into, took = connect(port), bytearray(1 << 16), []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        sock.sendall(frame)
        receive(sock, reply_bytes, into)
        took.append(time.perf_counter() - start)
    sock.close()
    took.sort()
    return took[len(took) // 2] * 1e6, took[len(took) * 99 // 100] * 1e6


def upload(port: int, frame: bytes, seconds: float) -> float:
    """GB/s of large requests on one connection; replies are read beside."""
    sock, into, sent = connect(port), bytearray(1 << 16), 0

    def replies() -> None:
        while sock.recv_into(into):
            pass

    reader = threading.Thread(target=replies)
    reader.start()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        sock.sendall(frame)
        sent += len(frame)
    took = time.perf_counter() - start
    sock.shutdown(socket.SHUT_RDWR)
    reader.join()
    return sent / took / 1e9


def download(port: int, seconds: float) -> float:
    """GB/s of large replies that leave by sendfile."""
    return pipelined(port, request(FILE, b""), 8 + FILE_BYTES, 4, seconds) * FILE_BYTES / 1e9


class Server:
    """The server's process, and how much CPU time it has used."""

    def __init__(self, loop: str, path: Path) -> None:
        command = [sys.executable, __file__, "--serve", loop, str(path)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def cpu_s(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def per_request(self, run: Callable[[], float], seconds: float) -> str:
        before = self.cpu_s()
        rate = run()
        cpu_us = (self.cpu_s() - before) / seconds / rate * 1e6
        return f"{rate / 1e3:.0f}k/s {cpu_us:4.1f} us"

    def per_megabyte(self, run: Callable[[], float], seconds: float) -> str:
        before = self.cpu_s()
        rate = run()
        cpu_ms = (self.cpu_s() - before) / seconds / rate
        return f"{rate:.2f} GB/s {cpu_ms:.2f} ms"


def measure(name: str, path: Path, seconds: float) -> list[str]:
    server = Server(name, path)
    port, small, small_reply = server.port, request(ECHO, bytes(100)), 4 + 4 + 100
    p50, p99 = round_trip_us(port, small, small_reply, seconds)
    requests = partial(server.per_request, seconds=seconds)
    megabytes = partial(server.per_megabyte, seconds=seconds)
    figures = [
        requests(lambda: pipelined(port, small, small_reply, 200, seconds)),
        requests(lambda: many(port, small, small_reply, 64, seconds)),
        f"{p50:.0f} us",
        f"{p99:.0f} us",
        megabytes(lambda: upload(port, request(SWALLOW, bytes(16 << 10)), seconds)),
        megabytes(lambda: upload(port, request(SWALLOW, bytes(64 << 10)), seconds)),
        megabytes(lambda: upload(port, request(SWALLOW, bytes(1 << 20)), seconds)),
        megabytes(lambda: download(port, seconds)),
    ]
    server.process.terminate()
    server.process.wait()
    return figures


def main(seconds: float) -> None:
    rows = (
        "100 B, one connection, 200 in flight",
        "100 B, 64 connections, one in flight each",
        "100 B, one in flight, p50",
        "100 B, one in flight, p99",
        "16 KB in",
        "64 KB in",
        "1 MB in",
        "1 MB out by sendfile",
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "megabyte"
        path.write_bytes(os.urandom(FILE_BYTES))
        columns = {name: measure(name, path, seconds) for name in LOOPS}
    print(f"{'':44}" + "".join(f"{name:>22}" for name in columns))
    for number, row in enumerate(rows):
        print(f"{row:44}" + "".join(f"{column[number]:>22}" for column in columns.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        with asyncio.Runner(loop_factory=LOOPS[sys.argv[2]]) as runner:
            runner.run(serve(Path(sys.argv[3])))
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
