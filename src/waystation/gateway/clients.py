"""How the gateway reaches the cluster: one producer, one admin, one router for reading.

They are made when the first call needs them, are shared by all calls, and reach the broker in
their own process without a socket.  They find leaders themselves, so that any node answers any
call.

A broker answers one connection in order, so that behind a fetch that waits everything else would
wait too: whoever waits borrows a router of its own (``waiting``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from waystation.client.transport import Connect
from waystation.gateway.problems import refusal
from waystation.model.errors import WaystationError

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.metadata import TopicView
    from waystation.client.producer import Producer
    from waystation.client.router import Router

__all__ = ["Clients"]

T = TypeVar("T")

_CLIENT_ID: Final = "gateway"
_IMAGE_MS: Final = 5_000
_DELIVERY_MS: Final = 30_000
_TOPIC_MS: Final = 3_000
"""A topic that is deleted while messages are on their way to it is not waited for much longer."""
_CLOSING_S: Final = 2.0
_SPARE: Final = 64
_TOO_LATE_S: Final = 0.3
_LOOK_S: Final = 0.5
_LOOK_MAX_S: Final = 5.0


class Clients:
    """What calls are answered with; ``bootstrap`` and ``connect`` are the node's own."""

    def __init__(
        self, bootstrap: str, connect: Connect, *, waiting: int, message_bytes: int
    ) -> None:
        self._bootstrap, self._connect = bootstrap, connect
        self._message_bytes = message_bytes
        self._waiting_most, self._waiting = waiting, 0
        self._making = asyncio.Lock()
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._router: Router | None = None
        self._writing: Router | None = None
        self._spare: list[Router] = []
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        """What has clients of its own, and ends before these do."""
        self._closed = False

    def further(self) -> tuple[str, Connect]:
        """Where and how a client of somebody's own reaches the cluster."""
        self._check_open()
        return self._bootstrap, self._connect

    async def producer(self) -> "Producer":
        """Sends at once what is there, all calls of one turn of the loop together."""
        if self._producer is None:
            return await self._made(self._new_producer())
        return self._producer

    async def admin(self) -> "Admin":
        """Asks and changes."""
        if self._admin is None:
            return await self._made(self._new_admin())
        return self._admin

    async def router(self) -> "Router":
        """For requests that are answered at once."""
        if self._router is None:
            return await self._made(self._first_router())
        return self._router

    async def writing_router(self) -> "Router":
        """For requests that are answered once something is stored."""
        if self._writing is None:
            return await self._made(self._first_writing_router())
        return self._writing

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator["Router"]:
        """A router for one call, which may have brokers hold its requests."""
        if self._waiting >= self._waiting_most:
            raise refusal(
                503,
                "too-many-waiting",
                f"{self._waiting} calls wait for messages already",
                field="wait_ms",
                remedy="wait_ms=0, or another node",
            )
        self._waiting += 1
        try:
            router = self._spare.pop() if self._spare else await self._new_router()
            try:
                yield router
            except BaseException:
                # Behind a request that is still held the next caller would wait.
                await router.close()
                raise
            await self._back(router)
        finally:
            self._waiting -= 1

    async def topic(self, name: str) -> "TopicView":
        """The topic's partitions; an ``UnknownTopicError`` soon if there is no such topic.

        A router waits long for a topic that may be on its way.  Here the broker in the same
        process is asked first, twice for the sake of who has just created it at another node.
        """
        router = await self.router()
        known = router.view.topics.get(name)
        if known is not None and known.partitions:
            return known
        await self._check_there(name)
        return await router.topic(name)

    async def topic_anew(self, name: str) -> "TopicView":
        """The topic as it is now: another node may have deleted it, or made it anew."""
        await self.forget(name)
        return await self.topic(name)

    async def _check_there(self, name: str) -> None:
        router = await self.router()
        for pause_s in (_TOO_LATE_S, 0.0):
            view = await router.look_up([name])
            if not view.refused.get(name):
                break
            await asyncio.sleep(pause_s)
        else:
            from waystation.client.errors import error_of

            raise error_of(view.refused[name], f"topic {name}")

    async def promptly(self, name: str, work: Coroutine[Any, Any, T], *, wait_ms: int = 0) -> T:
        """What ``work`` brings; if the topic is deleted meanwhile, ``UnknownTopicError`` soon.

        Clients ask again for a while about a topic that has gone: it might be on its way.  Work
        that may wait for messages for ``wait_ms`` is looked after when that is over.
        """
        task, pause_s, wait_s = asyncio.ensure_future(work), _LOOK_S, wait_ms / 1_000
        try:
            while not (await asyncio.wait([task], timeout=wait_s + pause_s))[0]:
                await self._check_there(name)
                pause_s, wait_s = min(2 * pause_s, _LOOK_MAX_S), 0.0
            return task.result()
        finally:
            task.cancel()

    async def forget(self, name: str) -> None:
        """A topic was deleted: believe in it no more."""
        router = await self.router()
        router.unfollow(name)
        await router.refresh()

    async def close(self) -> None:
        """Deliver what is under way, for a moment; calls that come later are refused."""
        self._closed = True
        for close in self.on_close:
            await close()
        if self._producer is not None:
            with suppress(WaystationError, TimeoutError):
                async with asyncio.timeout(_CLOSING_S):
                    await self._producer.close()
            await self._producer.abandon()
        if self._admin is not None:
            await self._admin.close()
        for router in (self._router, self._writing, *self._spare):
            if router is not None:
                await router.close()

    # --- behind the scenes ----------------------------------------------------------------------

    async def _made(self, making: Coroutine[Any, Any, T]) -> T:
        """What ``making`` makes; it is for all, and goes on if the caller who needs it goes."""
        return await asyncio.shield(self._one_by_one(making))

    async def _one_by_one(self, making: Coroutine[Any, Any, T]) -> T:
        """One after the other: the second finds what the first made."""
        async with self._making:
            return await making

    async def _new_producer(self) -> "Producer":
        self._check_open()
        if self._producer is None:
            from waystation.client.producer import Producer

            self._producer = await Producer(
                self._bootstrap,
                connect=self._connect,
                create_topics=False,
                client_id=_CLIENT_ID,
                linger_ms=0,
                max_request_bytes=self._message_bytes,
                delivery_timeout_ms=_DELIVERY_MS,
                metadata_timeout_ms=_TOPIC_MS,
                metadata_max_age_ms=_IMAGE_MS,
            ).start()
        return self._producer

    async def _new_admin(self) -> "Admin":
        self._check_open()
        if self._admin is None:
            from waystation.client.admin import Admin

            self._admin = await Admin(
                self._bootstrap, connect=self._connect, client_id=_CLIENT_ID
            ).start()
        return self._admin

    async def _first_router(self) -> "Router":
        self._check_open()
        if self._router is None:
            self._router = await self._new_router()
        return self._router

    async def _first_writing_router(self) -> "Router":
        self._check_open()
        if self._writing is None:
            self._writing = await self._new_router()
        return self._writing

    async def _new_router(self) -> "Router":
        from waystation.client.router import Router
        from waystation.client.settings import ConnectionSettings

        self._check_open()
        router = Router(
            self._bootstrap,
            ConnectionSettings(client_id=_CLIENT_ID, metadata_max_age_ms=_IMAGE_MS),
            connect=self._connect,
        )
        try:
            await router.start()
        except BaseException:
            await router.close()
            raise
        return router

    async def _back(self, router: "Router") -> None:
        if self._closed or len(self._spare) >= _SPARE:
            await router.close()
        else:
            self._spare.append(router)

    def _check_open(self) -> None:
        if self._closed:
            raise refusal(503, "stopping", "this node is about to stop", remedy="ask another node")
