"""What is looked at once a second instead of by a timer per connection.

1. A connection over which no byte moved for ``connections.max.idle.ms``, in either direction,
   is closed, unless it waits for a reply that we owe it.
2. While others wait for memory, a client whose large request comes in at less than
   ``_SLOWEST_BYTES_PER_S`` does not get to keep it from them.
3. Memory that nobody used since the last look is given back.
"""

from typing import Final

from waystation.server.connection import Connection
from waystation.server.hub import Hub
from waystation.telemetry.logs import get_logger

_events = get_logger("server")
_SLOWEST_BYTES_PER_S: Final = 64 << 10


class _Seen:
    """What a connection had moved when something last changed, and when that was."""

    __slots__ = ("at", "claimed_bytes", "received_bytes", "sent_bytes")

    def __init__(self, connection: Connection, at: float) -> None:
        self.at = at
        self.received_bytes = connection.received_bytes
        self.sent_bytes = connection.sent_bytes
        self.claimed_bytes = connection.claimed_bytes


class Sweep:
    """Remembers the last look, so that connections themselves need no clock."""

    __slots__ = ("_hub", "_last", "_seen")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._last = hub.clock.monotonic()
        self._seen: dict[Connection, _Seen] = {}

    def run(self) -> None:
        """Look at everything once."""
        now = self._hub.clock.monotonic()
        contended = self._hub.memory.contended
        seen: dict[Connection, _Seen] = {}
        for connection in tuple(self._hub.connections):
            before = self._seen.get(connection)
            if before is not None and contended and self._hoards(connection, before, now):
                continue
            seen[connection] = self._look(connection, before, now)
        self._seen = seen
        self._last = now
        self._hub.memory.sweep()

    def _look(self, connection: Connection, before: _Seen | None, now: float) -> _Seen:
        after = _Seen(connection, now)
        if before is None or _moved(before, after) or connection.pending:
            return after
        idle_s = now - before.at
        if idle_s * 1_000 >= self._hub.settings.connections_max_idle_ms:
            _events.info("connection.idle", peer=connection.peer, idle_s=round(idle_s))
            connection.close("idle")
        return before

    def _hoards(self, connection: Connection, before: _Seen, now: float) -> bool:
        claimed_bytes = connection.claimed_bytes
        if not claimed_bytes or before.claimed_bytes != claimed_bytes:
            return False
        arrived = connection.received_bytes - before.received_bytes
        if arrived >= (now - self._last) * _SLOWEST_BYTES_PER_S:
            return False
        self._hub.complain(
            "request.too_slow", peer=connection.peer, claimed_bytes=claimed_bytes, arrived=arrived
        )
        connection.close("a large request came in too slowly while others waited")
        return True


def _moved(before: _Seen, after: _Seen) -> bool:
    return before.received_bytes != after.received_bytes or before.sent_bytes != after.sent_bytes
