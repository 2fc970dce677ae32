"""Where clients knock.

A listener binds, lets clients in while limits allow, closes those over which nothing moves, and
when it is drained answers what is in flight before it closes the rest.
"""

import asyncio
import contextlib
import socket
from typing import Final

from waystation.runtime import sockets
from waystation.runtime.clock import Clock
from waystation.server.connection import Connection
from waystation.server.hub import DecodeHeader, Handle, Hub
from waystation.server.settings import ServerSettings
from waystation.server.sweeping import Sweep
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry
from waystation.wire.headers import decode_request_header

_events = get_logger("server")
_SWEEP_EVERY_S: Final = 1.0


class Listener:
    """One bound address and the connections that came in through it."""

    def __init__(
        self,
        settings: ServerSettings,
        handle: Handle,
        clock: Clock,
        registry: Registry,
        *,
        decode_header: DecodeHeader = decode_request_header,
        scribble: bool = False,
    ) -> None:
        """Serve ``handle``; ``scribble`` wipes each request once it was handled, for tests."""
        self._hub = Hub(settings, handle, clock, registry, decode_header, scribble)
        self._sweep = Sweep(self._hub)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._next_sweep: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are open."""
        return tuple(self._hub.connections)

    def adopt(self, settings: ServerSettings) -> None:
        """Obey changed settings from now on, as far as they are live."""
        self._hub.settings = settings

    async def start(self, host: str, port: int) -> int:
        """Bind and serve at once; the port that was bound."""
        bound_port = await self.bind(host, port)
        await self.serve()
        return bound_port

    async def bind(self, host: str, port: int) -> int:
        """Take every address of ``host``, serving nobody yet; the port, a free one for 0."""
        self._sockets = await sockets.bind(
            host, port, self._hub.settings.socket_receive_buffer_bytes
        )
        return int(self._sockets[0].getsockname()[1])

    async def serve(self) -> None:
        """Let clients in at the addresses that were bound."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            server = await loop.create_server(
                lambda: Connection(self._hub, loop),
                sock=sock,
                backlog=self._hub.settings.socket_listen_backlog_size,
            )
            self._servers.append(server)
            host, port, *_ = sock.getsockname()
            _events.info("listener.started", host=host, port=port)
        self._sweep_later()

    async def drain(self, timeout_s: float) -> None:
        """Let nobody in, answer what is in flight for at most ``timeout_s``, close the rest."""
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        if self._next_sweep is not None:
            self._next_sweep.cancel()
        for connection in self.connections:
            connection.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hub.when_empty(), timeout_s)
        for connection in self.connections:
            _events.warning("connection.cut", peer=connection.peer, pending=connection.pending)
            connection.close("the node shuts down")

    def abort(self) -> None:
        """End everything at once, answering nobody: what is left of a process that was killed."""
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        if self._next_sweep is not None:
            self._next_sweep.cancel()
        for connection in self.connections:
            connection.close("the node is gone")

    def sweep(self) -> None:
        """Close idle connections and give unused memory back; runs every second by itself."""
        self._sweep.run()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._next_sweep = loop.call_later(_SWEEP_EVERY_S, self._sweep_and_repeat)

    def _sweep_and_repeat(self) -> None:
        self.sweep()
        self._sweep_later()
