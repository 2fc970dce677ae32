"""One connection per address, opened when it is needed and again when it was lost.

However many callers want a connection, one attempt is made; after a failure the next one to
the same address waits for the back-off.
"""

import asyncio
from collections.abc import Collection
from errno import ECONNREFUSED

from waystation.client.backoff import Backoff
from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.errors import ClosedError, ConnectionLostError
from waystation.client.settings import ConnectionSettings
from waystation.client.transport import Connect

__all__ = ["Pool"]


class Pool:
    """Connections by address."""

    def __init__(self, connect: Connect, settings: ConnectionSettings, backoff: Backoff) -> None:
        self._connect, self._settings, self._backoff = connect, settings, backoff
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}
        self._failures: dict[Address, int] = {}
        self._closed = False

    def live(self, address: Address) -> Connection | None:
        """The connection to ``address`` if there is one now."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    def idlest(self) -> Connection | None:
        """The open connection with the fewest requests under way."""
        live = [one for one in self._connections.values() if not one.closed]
        return min(live, key=lambda one: one.in_flight, default=None)

    async def reach(self, address: Address) -> Connection:
        """A connection to ``address``, now or never: ``ConnectionLostError`` says why not."""
        if (found := self.live(address)) is not None:
            return found
        if self._closed:
            raise ClosedError("the client was closed")
        task = self._opening.get(address)
        if task is None:
            task = asyncio.create_task(self._open(address), name=f"client-connect {address}")
            self._opening[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        try:
            return await asyncio.shield(task)
        except OSError as error:
            raise ConnectionLostError(_reason(error)) from error

    async def reach_patiently(self, address: Address) -> Connection:
        """As ``reach``, but after a failure wait for the back-off before trying again."""
        failures = self._failures.get(address, 0)
        if failures and address not in self._opening and self.live(address) is None:
            await asyncio.sleep(self._backoff.delay_s(failures))
        return await self.reach(address)

    def keep_only(self, addresses: Collection[Address]) -> None:
        """Close idle connections to addresses that no broker has (any more)."""
        for address, connection in list(self._connections.items()):
            if connection.closed or (address not in addresses and not connection.in_flight):
                connection.close()
                del self._connections[address]

    async def close(self) -> None:
        """Close every connection; whoever waits is told."""
        self._closed = True
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()

    def _opened(self, address: Address, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # seen, even if whoever asked has given up meanwhile

    async def _open(self, address: Address) -> Connection:
        self._failures[address] = self._failures.get(address, 0) + 1
        timeout_s = self._settings.connect_timeout_ms / 1_000
        client_id = self._settings.client_id
        connection = await Connection.open(address, self._connect, client_id, timeout_s)
        del self._failures[address]
        self._connections[address] = connection
        return connection


def _reason(error: OSError) -> str:
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {ECONNREFUSED}]" in str(error)
    return "connection refused" if refused else error.strerror or str(error)
