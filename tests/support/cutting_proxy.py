"""A TCP proxy of ours that cuts connections, and loses requests or answers on the way."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes on to ``target`` until it is told otherwise."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._connections: set[asyncio.Task[None]] = set()
        self._holding = False
        self._losing = ""
        self._at_least_bytes = 0
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.endpoint = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        connections = list(self._connections)
        self.cut()
        await asyncio.gather(*connections, return_exceptions=True)

    def cut(self) -> None:
        """End all connections at once; new ones are taken."""
        for connection in self._connections:
            connection.cancel()

    def lose(self, what: str, at_least_bytes: int = 1) -> None:
        """Cut the connection that next sends so many bytes: before they are passed on
        (``request``), or when their answer comes (``answer``).
        """
        self._losing, self._at_least_bytes = what, at_least_bytes

    def hold(self) -> None:
        """Cut, and take no new connections until ``resume``."""
        self._holding = True
        self.cut()

    def resume(self) -> None:
        """Take connections again."""
        self._holding = False

    async def _accept(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        requests = None
        try:
            if self._holding:
                return
            server, requests = await asyncio.open_connection(*self._target)
            await self._pass_both_ways(client, requests, server, answers)
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            self._connections.discard(task)
            for writer in (answers, requests):
                if writer is not None:
                    writer.transport.abort()

    async def _pass_both_ways(
        self,
        client: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
    ) -> None:
        doomed = asyncio.Event()
        ways = {
            asyncio.ensure_future(self._pass_requests(client, requests, doomed)),
            asyncio.ensure_future(self._pass_answers(server, answers, doomed)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await way

    async def _pass_requests(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        while chunk := await source.read(1 << 20):
            if self._losing and len(chunk) >= self._at_least_bytes:
                losing, self._losing = self._losing, ""
                self.lost += 1
                if losing == "request":
                    return
                doomed.set()
            sink.write(chunk)
            await sink.drain()

    async def _pass_answers(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        while chunk := await source.read(1 << 20):
            if doomed.is_set():
                return
            sink.write(chunk)
            await sink.drain()
