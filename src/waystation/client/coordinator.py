"""The broker that coordinates a group or a transactional id: found by asking any broker, and
found again when it moves.

Whatever is asked of it goes over the connection for prompt answers, but for joining, which the
coordinator answers when all members have joined: that has a connection of its own, so that
commits and heartbeats do not wait behind it.

An error that says "not me", or a lost connection, makes the coordinator unknown; the next
question finds it anew.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.errors import error_of
from waystation.client.router import Router
from waystation.messages.find_coordinator import (
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

__all__ = ["GROUP", "TRANSACTION", "Coordinator"]

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_NO_END_MS = 1 << 40
_CALLED = {GROUP: "group", TRANSACTION: "transactional id"}


class Coordinator:
    """The way to the coordinator of one group, or of one transactional id."""

    def __init__(self, router: Router, key: str, kind: int = GROUP) -> None:
        self.key = key
        self._kind = kind
        self._router = router
        self._joining = router.new_pool()
        self._address: Address | None = None

    @property
    def group_id(self) -> str:
        """The group, where it is one that is coordinated."""
        return self.key

    async def close(self) -> None:
        """Close the connection for joining; the others are the router's."""
        await self._joining.close()

    async def ask(
        self,
        message: Message,
        expect: type[R],
        *,
        newest: int | None = None,
        held_ms: int | None = None,
    ) -> R:
        """Ask the coordinator once, in version ``newest`` at most.

        ``held_ms`` is how long it may hold on to the request before it answers.
        """
        address = await self.find()
        try:
            return await self._ask(address, message, expect, newest, held_ms)
        except WaystationError:
            self._address = None
            raise

    def raise_if(self, code: int, said: str | None = None) -> None:
        """Raise what the coordinator answered, if that was an error."""
        if code:
            if code in _MOVED:
                self._address = None
            raise error_of(code, f"{_CALLED[self._kind]} {self.key}", said)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``attempt`` for as long as it fails retriably."""
        return await self._router.retrying(attempt, _NO_END_MS)

    async def offers(self, api: ApiKey) -> bool:
        """Whether the coordinator speaks ``api`` in a version that we do."""
        return (await self.connection()).speaks(api)

    async def connection(self) -> Connection:
        """The connection for prompt answers."""
        try:
            return await self._router.to_address(await self.find())
        except WaystationError:
            self._address = None
            raise

    async def find(self) -> Address:
        """Where the coordinator is, as far as is known; a retriable error if nobody knows."""
        if self._address is None:
            self._address = await self._found()
        return self._address

    async def _found(self) -> Address:
        request = FindCoordinatorRequest(
            key=self.key, key_type=self._kind, coordinator_keys=[self.key]
        )
        told = await self._router.ask(self._router.to_any(), request, FindCoordinatorResponse)
        one = told.coordinators[0] if told.coordinators else told
        self.raise_if(one.error_code, one.error_message)
        return Address(one.host, one.port)

    async def _ask(
        self,
        address: Address,
        message: Message,
        expect: type[R],
        newest: int | None,
        held_ms: int | None,
    ) -> R:
        timeout_ms = self._router.settings.request_timeout_ms
        if held_ms is None:
            connection = await self._router.to_address(address)
        else:
            connection = await self._joining.reach_patiently(address)
            timeout_ms = max(timeout_ms, held_ms)
        version = _version(connection, message, newest)
        return await connection.ask(message, expect, timeout_ms / 1_000, version)


def _version(connection: Connection, message: Message, newest: int | None) -> int:
    assert message.api is not None, f"{message!r} is no request"
    version = connection.version_of(message.api)
    return version if newest is None else min(version, newest)
