"""What the connections of one listener share: limits, memory, counters and the next flush."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from waystation.runtime.clock import Clock
from waystation.server.complaints import Complaints
from waystation.server.inbox import shared_buffer
from waystation.server.memory import RequestMemory
from waystation.server.settings import ServerSettings
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry
from waystation.wire.headers import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from waystation.server.connection import Connection, Request, Respond

DecodeHeader = Callable[[memoryview], RequestHeader]
Handle = Callable[["Request", "Respond"], None]

_events = get_logger("server")


class Traffic:
    """The counters of one listener."""

    __slots__ = (
        "accepted",
        "bytes_in",
        "bytes_out",
        "failed",
        "malformed",
        "open",
        "refused",
        "requests",
        "sendfile_bytes",
    )

    def __init__(self, registry: Registry) -> None:
        self.open = registry.gauge("waystation_connections", "Connections that are open.")
        self.accepted = registry.counter(
            "waystation_connections_accepted_total", "Connections that were let in."
        )
        self.refused = registry.counter(
            "waystation_connections_refused_total", "Connections closed because of a limit."
        )
        self.requests = registry.counter("waystation_requests_total", "Requests that were read.")
        self.malformed = registry.counter(
            "waystation_requests_malformed_total", "Frames that were no request."
        )
        self.failed = registry.counter(
            "waystation_requests_failed_total", "Requests whose handler failed."
        )
        self.bytes_in = registry.counter(
            "waystation_received_bytes_total", "Bytes read from clients."
        )
        self.bytes_out = registry.counter(
            "waystation_sent_bytes_total", "Bytes written to clients, by whatever way."
        )
        self.sendfile_bytes = registry.counter(
            "waystation_sent_by_sendfile_bytes_total",
            "Bytes that went from file to socket without entering this process.",
        )


class Hub:
    """Made by the listener; every connection holds it."""

    __slots__ = (
        "_empty",
        "_per_host",
        "_unflushed",
        "buffer",
        "clock",
        "complain",
        "connections",
        "decode_header",
        "handle",
        "memory",
        "scribble",
        "settings",
        "traffic",
    )

    def __init__(
        self,
        settings: ServerSettings,
        handle: Handle,
        clock: Clock,
        registry: Registry,
        decode_header: DecodeHeader = decode_request_header,
        scribble: bool = False,
    ) -> None:
        self.settings = settings
        self.handle = handle
        self.clock = clock
        self.decode_header = decode_header
        self.buffer = shared_buffer()
        self.memory = RequestMemory(settings.queued_max_request_bytes)
        self.traffic = Traffic(registry)
        self.complain = Complaints(_events, clock)
        self.connections: dict[Connection, None] = {}
        self.scribble = scribble
        self._per_host: dict[str, int] = {}
        self._unflushed: list[Connection] = []
        self._empty: asyncio.Event | None = None

    def admit(self, connection: "Connection") -> bool:
        """Let ``connection`` in, unless a limit keeps it out."""
        limit = self._limit_for(connection.host)
        if limit is not None:
            self.traffic.refused.add()
            self.complain("connection.refused", peer=connection.peer, limit=limit)
            return False
        self.connections[connection] = None
        self._per_host[connection.host] = self._per_host.get(connection.host, 0) + 1
        self.traffic.accepted.add()
        self.traffic.open.set(len(self.connections))
        return True

    def forget(self, connection: "Connection") -> None:
        """``connection`` is closed."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.traffic.open.set(len(self.connections))
        left = self._per_host[connection.host] - 1
        if left:
            self._per_host[connection.host] = left
        else:
            del self._per_host[connection.host]
        if not self.connections and self._empty is not None:
            self._empty.set()

    async def when_empty(self) -> None:
        """Wait until the last connection is closed."""
        if self.connections:
            self._empty = asyncio.Event()
            await self._empty.wait()

    def flush_soon(self, connection: "Connection") -> None:
        """Flush ``connection`` when the present step of the loop is over.

        One step often answers many requests: a sync releases every produce that waited for it.
        """
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            try:
                connection.flush()
            except Exception as error:  # one bad reply must not keep the others back
                _events.error("reply.failed", peer=connection.peer, exc_info=error)
                connection.close("a reply could not be sent")

    def _limit_for(self, host: str) -> str | None:
        """The name of the limit that one more connection from ``host`` would exceed."""
        if len(self.connections) >= self.settings.max_connections:
            return "max.connections"
        if self._per_host.get(host, 0) >= self.settings.max_connections_per_ip:
            return "max.connections.per.ip"
        return None
