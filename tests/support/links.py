"""A network of ours between clients, brokers and the store: links that are cut, slow or late.

Every broker is reached through a relay, which tells brokers from clients by the client id of a
connection's first request (``waystation-broker-3``); every broker reaches the store through a
relay of its own.  So each pair of ends has a link that a test may

- ``cut``: nothing arrives any more, and nobody is told, as when a cable is pulled; what was on its
  way arrives when it is mended, as TCP would see to;
- cut in one direction only (``"requests"``: from the source to the target, or ``"answers"``);
- ``slow`` down, to so many bytes a second, or by a delay in each direction;
- ``reset``: connections end at once, new ones are taken.

The relays have a thread and a loop of their own, so that tests need not wait in one.
"""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

from tests.support.servers import free_ports

CLIENTS = "clients"
STORE = "store"
End = int | str
Way = Literal["requests", "answers"]
BOTH: tuple[Way, ...] = ("requests", "answers")

_CHUNK_BYTES = 1 << 16
_QUEUED_MAX = 64
_BROKER = "waystation-broker-"
# Size, api key, version, correlation id, length of the client id.
_FIRST = struct.Struct(">ihhih")
_END = b""


@dataclass
class Link:
    """How things are between two ends; read and changed on the relays' loop only."""

    cut: set[Way] = field(default_factory=set)
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    connections: "set[_Connection]" = field(default_factory=set)
    mended: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_open(self, way: Way) -> None:
        """Wait while it is cut."""
        while way in self.cut:
            self.mended.clear()
            await self.mended.wait()


class Links:
    """All links of a cluster; a context manager runs the relays."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        self._links: dict[tuple[End, End], Link] = {}
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def relay(self, target: End, address: str, source: End | None = None) -> str:
        """Begin to relay to ``address``; where to connect instead.

        Without a ``source`` each connection says whose it is.
        """
        host, port = address.rsplit(":", 1)
        relay = _Relay(self, target, (host, int(port)), source)
        listening = free_ports(1)[0]

        async def serve() -> None:
            server = await asyncio.start_server(relay.accept, "127.0.0.1", listening)
            self._servers.append(server)

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(10)
        return f"127.0.0.1:{listening}"

    # --- what a test does to it -----------------------------------------------------------------

    def cut(self, source: End, target: End, ways: Iterable[Way] = BOTH) -> None:
        """Let nothing pass any more, in both ways or one."""

        def change() -> None:
            self.link(source, target).cut |= set(ways)

        self._do(change)

    def isolate(self, broker: int, brokers: Iterable[int], *others: End) -> None:
        """Cut a broker off from other brokers, and from clients or the store if they are named."""
        for other in brokers:
            if other != broker:
                self.cut(broker, other)
                self.cut(other, broker)
        for end in others:
            if end == STORE:
                self.cut(broker, STORE)
            else:
                self.cut(end, broker)

    def slow(
        self, source: End, target: End, *, delay_s: float = 0.0, bytes_per_s: float = 0.0
    ) -> None:
        """Let everything arrive late, or not faster than so many bytes a second; 0 is at once."""

        def change() -> None:
            link = self.link(source, target)
            link.delay_s, link.bytes_per_s = delay_s, bytes_per_s

        self._do(change)

    def reset(self, source: End, target: End) -> None:
        """End the connections between two ends."""

        def change() -> None:
            for connection in list(self.link(source, target).connections):
                connection.abort()

        self._do(change)

    def mend(self, source: End | None = None, target: End | None = None) -> None:
        """Let everything pass as ever: between two ends, or everywhere."""

        def change() -> None:
            for ends, link in self._links.items():
                if source is None or ends == (source, target):
                    link.cut.clear()
                    link.delay_s = link.bytes_per_s = 0.0
                    link.mended.set()

        self._do(change)

    # --- behind the scenes ----------------------------------------------------------------------

    def link(self, source: End, target: End) -> Link:
        """How things are between two ends; on the relays' loop."""
        return self._links.setdefault((source, target), Link())

    def _do(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            try:
                change()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10), "the relays hang"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for link in self._links.values():
            for connection in list(link.connections):
                connection.abort()


class _Relay:
    """Takes connections to one target."""

    def __init__(
        self, links: Links, target: End, address: tuple[str, int], source: End | None
    ) -> None:
        self._links, self._target, self._address = links, target, address
        self._source = source

    async def accept(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Pass on what comes, once it is known from whom."""
        try:
            source, first = await self._who(client)
            link = self._links.link(source, self._target)
            await link.until_open("requests")
            server, requests = await asyncio.open_connection(*self._address)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            answers.transport.abort()
            return
        connection = _Connection(link, client, requests, server, answers)
        with suppress(asyncio.CancelledError):
            await connection.run(first)

    async def _who(self, client: asyncio.StreamReader) -> tuple[End, bytes]:
        """The source, and what had to be read to learn it."""
        if self._source is not None:
            return self._source, _END
        first = await client.readexactly(_FIRST.size)
        *_, length = _FIRST.unpack(first)
        name = await client.readexactly(length) if 0 < length < _CHUNK_BYTES else b""
        number = name.decode("utf-8", "replace").removeprefix(_BROKER)
        known = int(number) if number != name.decode("utf-8", "replace") else CLIENTS
        return known, first + name


class _Connection:
    """Two ends that talk, and what is on the way between them."""

    def __init__(
        self,
        link: Link,
        client: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
    ) -> None:
        self._link = link
        self._client, self._requests = client, requests
        self._server, self._answers = server, answers
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, first: bytes) -> None:
        """Until one end is through."""
        ways: list[tuple[Way, asyncio.StreamReader, asyncio.StreamWriter, bytes]] = [
            ("requests", self._client, self._requests, first),
            ("answers", self._server, self._answers, b""),
        ]
        for way, source, sink, begun in ways:
            queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_MAX)
            self._tasks.append(asyncio.ensure_future(self._take(source, queue, begun)))
            self._tasks.append(asyncio.ensure_future(self._give(way, queue, sink)))
        self._link.connections.add(self)
        givers = self._tasks[1::2]
        try:
            await asyncio.wait(givers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abort()

    def abort(self) -> None:
        """End it; both ends see that."""
        self._link.connections.discard(self)
        for task in self._tasks:
            task.cancel()
        for writer in (self._requests, self._answers):
            writer.transport.abort()

    async def _take(
        self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]], begun: bytes
    ) -> None:
        loop = asyncio.get_running_loop()
        chunk = begun
        while True:
            if chunk:
                await queue.put((loop.time() + self._link.delay_s, chunk))
            try:
                chunk = await source.read(_CHUNK_BYTES)
            except OSError:
                chunk = _END
            if not chunk:
                await queue.put((loop.time() + self._link.delay_s, _END))
                return

    async def _give(
        self, way: Way, queue: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, chunk = await queue.get()
            if (wait_s := due_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._link.until_open(way)
            if not chunk:
                return
            if self._link.bytes_per_s:
                await asyncio.sleep(len(chunk) / self._link.bytes_per_s)
                await self._link.until_open(way)
            try:
                sink.write(chunk)
                await sink.drain()
            except OSError:
                return
