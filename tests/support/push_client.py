"""Follows pushed messages over real connections: server-sent events, and sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect

from tests.support.soak import count

WITHIN_S = count(30, 120)


class Event(NamedTuple):
    """A server-sent event; ``id`` is the last id that was said before its end."""

    kind: str
    id: str
    data: Any


class EventStream:
    """One stream of server-sent events, read as browsers do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.status, self.headers = 0, dict[str, str]()
        self.last_id, self.retry_ms, self.beats = "", 0, 0
        self._left = b""
        self._ended = False

    async def begin(self) -> Self:
        """Read the header."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(head[0].split()[1])
        lines = (line.partition(":") for line in head[1:] if line)
        self.headers = {name.lower(): value.strip() for name, _, value in lines}
        return self

    async def problem(self) -> Any:
        """The body of an answer that is no stream."""
        return json.loads(await self.reader.readexactly(int(self.headers["content-length"])))

    async def events(self, count: int) -> list[Event]:
        """The next so many."""
        async with asyncio.timeout(WITHIN_S):
            return [await self.next() for _ in range(count)]

    async def next(self) -> Event:
        """The next event; EOFError if the stream ends before."""
        while True:
            block = await self._block()
            kind, data = "message", list[str]()
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                match name:
                    case "":
                        self.beats += 1
                    case "event":
                        kind = value
                    case "data":
                        data.append(value)
                    case "id":
                        self.last_id = value
                    case "retry":
                        self.retry_ms = int(value)
            if data:
                return Event(kind, self.last_id, json.loads("\n".join(data)))

    async def beat(self) -> None:
        """Wait until it is said that all is well."""
        before = self.beats
        async with asyncio.timeout(WITHIN_S):
            waiting = asyncio.ensure_future(self.next())
            while self.beats == before and not waiting.done():
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])

    async def end(self) -> list[Event]:
        """All that comes until the stream ends."""
        found = []
        async with asyncio.timeout(WITHIN_S):
            try:
                while True:
                    found.append(await self.next())
            except EOFError:
                return found

    def close(self) -> None:
        self.writer.transport.abort()

    async def _block(self) -> bytes:
        while b"\n\n" not in self._left:
            if self._ended:
                raise EOFError
            await self._chunk()
        block, _, self._left = self._left.partition(b"\n\n")
        return block

    async def _chunk(self) -> None:
        try:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            content = await self.reader.readexactly(size + 2)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None
        self._left += content[:-2]
        self._ended = size == 0


@asynccontextmanager
async def events(
    address: str, topic: str, *, header: str | None = None, **query: Any
) -> AsyncIterator[EventStream]:
    """Follow a topic; ``header`` is the ``Last-Event-ID``."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    path = f"/v1/topics/{topic}/events"
    if query:
        path += "?" + urlencode({name.rstrip("_"): value for name, value in query.items()})
    head = f"GET {path} HTTP/1.1\r\nhost: {address}\r\n"
    if header is not None:
        head += f"last-event-id: {header}\r\n"
    writer.write(f"{head}\r\n".encode())
    stream = EventStream(reader, writer)
    try:
        async with asyncio.timeout(WITHIN_S):
            await stream.begin()
        yield stream
    finally:
        stream.close()


class PushSocket:
    """A WebSocket of a topic or a queue."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **frame: Any) -> None:
        await self.connection.send(json.dumps(frame))

    async def hear(self) -> Any:
        async with asyncio.timeout(WITHIN_S):
            return json.loads(await self.connection.recv())

    async def frames(self, kind: str, count: int = 1) -> list[Any]:
        """The next frames of a kind; others that come in between are left out."""
        found: list[Any] = []
        while len(found) < count:
            told = await self.hear()
            assert told["type"] != "error" or kind == "error", told
            if told["type"] == kind:
                found.append(told)
        return found


@asynccontextmanager
async def socket(address: str, path: str, **query: Any) -> AsyncIterator[PushSocket]:
    """Open a socket; ``path`` is as ``topics/orders``."""
    url = f"ws://{address}/v1/{path}/socket"
    if query:
        url += "?" + urlencode({name.rstrip("_"): value for name, value in query.items()})
    # Whoever leaves messages unread does not see answers to its pings either.
    async with connect(url, compression=None, max_size=1 << 24, ping_interval=None) as connection:
        yield PushSocket(connection)
