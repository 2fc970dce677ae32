"""A session with ZooKeeper, for a program that must not block.

kazoo does its work in threads of its own; here its answers and events are handed to the loop.
A call waits until there is a connection, so that nothing stays behind in a queue to happen later.
``LostError`` says that the answer was lost: a write may have happened.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.security import make_digest_acl

from waystation.coordination.zookeeper_plan import Check, Create, Delete, SetData, Step
from waystation.model.errors import StoreUnavailableError
from waystation.telemetry.logs import get_logger

_events = get_logger("coordination")

_LOST = (
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

# What kazoo tells about connections is told as events of our own.
_quiet = logging.getLogger("waystation.kazoo")
_quiet.setLevel(logging.CRITICAL)


class LostError(Exception):
    """No answer: it may have happened."""


class RefusedError(Exception):
    """A transaction that did not happen, since its step number ``index`` could not."""

    def __init__(self, index: int, reason: Exception) -> None:
        self.index, self.reason = index, reason
        super().__init__(f"step {index}: {reason!r}")


@dataclass(frozen=True, slots=True)
class Access:
    """Where the service is, and what it wants to see of us."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str = ""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    tls: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"ZooKeeper at {','.join(self.endpoints)}"

    def client(self, session_s: float) -> KazooClient:
        """A client that has not begun yet."""
        options: dict[str, Any] = {}
        if self.user is not None:
            options["auth_data"] = [("digest", f"{self.user}:{self.password}")]
            options["default_acl"] = [make_digest_acl(self.user, self.password, all=True)]
        if self.tls:
            options |= {"use_ssl": True, "verify_certs": True, "check_hostname": True}
            options |= {"ca": self.ca, "certfile": self.cert, "keyfile": self.key or self.cert}
        return KazooClient(
            hosts=",".join(self.endpoints),
            timeout=session_s,
            connection_retry=dict(_RETRY),
            logger=_quiet,
            **options,
        )


class Session:
    """One session; after it expired, its successor, of which ``on_connected`` is told too."""

    def __init__(
        self,
        access: Access,
        session_s: float,
        timeout_s: float,
        on_connected: Callable[[], None] = lambda: None,
        on_expired: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_connected`` is called in the loop; ``on_expired`` at once, in kazoo's thread."""
        self._access = access
        self._timeout_s = timeout_s
        self._client = access.client(session_s)
        self._connected = asyncio.Event()
        # Grows with every connection: answers to two of them may come from different states.
        self.connections = 0
        # Grows with every session that ended: the next may find the service set back.
        self.expiries = 0
        self._on_connected = on_connected
        self._on_expired = on_expired
        self._closed = False
        self._stopping = threading.Lock()
        self._stopped = False

    async def open(self) -> None:
        """Connect; ``StoreUnavailableError`` if that takes too long."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._changed)
        self._client.start_async()
        try:
            await self._wait()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session, and what hangs on it."""
        self._closed = True
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """End the session, from whichever thread, and wait for that."""
        with self._stopping:
            if not self._stopped:
                self._stopped = True
                self._client.stop()
                self._client.close()

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """The answer to one of kazoo's ``..._async`` calls; kazoo's errors about nodes pass."""
        await self._wait()
        return await self._answer(getattr(self._client, f"{method}_async")(*args, **options))

    async def calls(self, method: str, paths: Sequence[str], window: int = 500) -> list[Any]:
        """The answers or errors to many calls of one kind, several under way at once."""
        answers: list[Any] = []
        for start in range(0, len(paths), window):
            asked = [self.call(method, path) for path in paths[start : start + window]]
            answers += await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, (LostError, StoreUnavailableError)):
                raise answer
        return answers

    async def commit(self, steps: Sequence[Step]) -> list[Any]:
        """Do all ``steps`` or none: the results, or ``RefusedError``."""
        await self._wait()
        transaction = self._client.transaction()
        for step in steps:
            match step:
                case Check(path, writes):
                    transaction.check(path, writes)
                case Create(path, data):
                    transaction.create(path, data)
                case SetData(path, data, writes):
                    transaction.set_data(path, data, writes)
                case Delete(path, writes):
                    transaction.delete(path, writes)
        results: list[Any] = await self._answer(transaction.commit_async())
        for index, result in enumerate(results):
            if isinstance(result, NoAuthError):
                raise self._not_allowed()
            if isinstance(result, Exception) and not isinstance(
                result, (RolledBackError, RuntimeInconsistency)
            ):
                raise RefusedError(index, result)
        return results

    async def agree(self, path: str) -> None:
        """Until our server knows all that was decided before; ``path`` is any node there is.

        A transaction that only looks is decided on by most servers, as others are.  ZooKeeper's
        own ``sync`` is answered by a leader that does not know yet that it was deposed.
        """
        await self.commit([Check(path, -1)])

    async def _wait(self) -> None:
        """Until there is a connection."""
        if self._closed:
            raise StoreUnavailableError(f"{self._access.name} is closed")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise StoreUnavailableError(
                f"no connection to {self._access.name} within {self._timeout_s:g} s, nothing was "
                "changed: see that most of its servers run and can be reached"
            ) from None

    async def _answer(self, asked: Any) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if future.done():
                return
            if asked.exception is None:
                future.set_result(asked.value)
            else:
                future.set_exception(asked.exception)

        asked.rawlink(lambda _: self._tell_loop(settle))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            raise LostError(f"no answer within {self._timeout_s:g} s") from None
        except _LOST as problem:
            raise LostError(f"the connection was lost ({type(problem).__name__})") from problem
        except NoAuthError:
            raise self._not_allowed() from None

    def _not_allowed(self) -> StoreUnavailableError:
        who = f"user {self._access.user!r}" if self._access.user else "anybody"
        return StoreUnavailableError(
            f"{self._access.name} does not allow this to {who}, nothing was changed: its nodes "
            "belong to another user; give the right one by ?user=NAME&password-file=FILE"
        )

    def _changed(self, state: str) -> None:
        """In kazoo's thread: note what became of the connection, and return at once."""
        if state == KazooState.LOST:
            self.expiries += 1
            self._on_expired()
        self._tell_loop(lambda: self._note(state))

    def _note(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self.connections += 1
            self._connected.set()
            self._on_connected()
        else:
            self._connected.clear()
            if not self._closed:
                _events.warning("store.disconnected", store=self._access.name, session=state)

    def _tell_loop(self, call: Callable[[], None]) -> None:
        # The loop may have been closed before the last of kazoo's threads ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)
