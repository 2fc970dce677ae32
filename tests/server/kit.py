"""A server to talk to, a client that talks frames, and files to send."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.regions import FileRegion
from waystation.server.connection import Request, Respond
from waystation.server.listener import Listener
from waystation.server.settings import ServerSettings
from waystation.telemetry.metrics import Registry

METADATA = 3
WAIT_S = 20.0


class Serving:
    """A listener that was started, and what it counted."""

    def __init__(self, listener: Listener, port: int, registry: Registry) -> None:
        self.listener = listener
        self.port = port
        self._registry = registry

    def count(self, name: str) -> float:
        families = {family.name: family for family in self._registry.snapshot()}
        return families[f"waystation_{name}"].samples[0].value

    async def connect(self, **options: Any) -> "Client":
        return await Client.connect(self.port, **options)


@asynccontextmanager
async def serving(
    handle: Callable[[Request, Respond], None],
    *,
    clock: Clock | None = None,
    host: str = "127.0.0.1",
    **settings: int,
) -> AsyncIterator[Serving]:
    """Serve ``handle`` on a free port; requests are wiped once they were handled."""
    registry = Registry()
    listener = Listener(
        ServerSettings(**settings), handle, clock or SystemClock(), registry, scribble=True
    )
    port = await listener.start(host, 0)
    try:
        yield Serving(listener, port, registry)
    finally:
        await listener.drain(0)


def frame(body: bytes, correlation_id: int = 1, api_key: int = METADATA, version: int = 4) -> bytes:
    """One request with a client id, its length in front."""
    head = struct.pack(">hhih", api_key, version, correlation_id, 4) + b"test"
    return struct.pack(">i", len(head) + len(body)) + head + body


class Client:
    """Frames over a plain socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", limit: int = 1 << 16) -> "Client":
        return cls(*await asyncio.open_connection(host, port, limit=limit))

    async def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await asyncio.wait_for(self.writer.drain(), WAIT_S)

    async def ask(self, body: bytes, correlation_id: int = 1) -> bytes:
        await self.send(frame(body, correlation_id))
        answered, reply = await self.reply()
        assert answered == correlation_id
        return reply

    async def reply(self) -> tuple[int, bytes]:
        """The next reply: its correlation id and the rest."""
        (size,) = struct.unpack(">i", await self._read(4))
        content = await self._read(size)
        return struct.unpack_from(">i", content)[0], content[4:]

    async def is_cut(self) -> bool:
        """Wait until the server has closed the connection; whatever it still sends is read."""
        try:
            while await asyncio.wait_for(self.reader.read(1 << 16), WAIT_S):
                pass
        except ConnectionError:
            pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def _read(self, nbytes: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(nbytes), WAIT_S)


def echo(request: Request, respond: Respond) -> None:
    """Answer with the body."""
    respond([head(request), bytes(request.body)])


def head(request: Request) -> bytes:
    return struct.pack(">i", request.correlation_id)


class Held:
    """Keeps every request unanswered until the test answers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[Request, Respond]] = []

    def __call__(self, request: Request, respond: Respond) -> None:
        self.requests.append((request, respond))

    async def arrived(self, count: int) -> None:
        await until(lambda: len(self.requests) >= count)

    def answer(self, number: int, content: bytes = b"") -> None:
        request, respond = self.requests[number]
        respond([head(request), content])


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until ``true`` says so."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not true():
        assert asyncio.get_running_loop().time() < deadline, "it never became true"
        await asyncio.sleep(0.001)


async def settled() -> None:
    """Let everything happen that can happen without anyone doing more."""
    for _ in range(20):
        await asyncio.sleep(0.001)


class DiskFile:
    """A file on disk that counts how it is read."""

    def __init__(self, path: Path, *, has_descriptor: bool = True) -> None:
        self._file = path.open("rb")
        self._has_descriptor = has_descriptor
        self.bytes_read = 0

    def fileno(self) -> int | None:
        return self._file.fileno() if self._has_descriptor else None

    def pread(self, nbytes: int, position: int) -> bytes:
        content = os.pread(self._file.fileno(), nbytes, position)
        self.bytes_read += len(content)
        return content

    def region(self, position: int, nbytes: int) -> FileRegion:
        return FileRegion(self, position, nbytes)
