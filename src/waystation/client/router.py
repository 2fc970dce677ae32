"""The routing layer: which broker to ask, and a connection to it.

A router keeps one image of the cluster (``metadata.py``) and one connection per broker, and
another one for requests that a broker may hold on to: it answers in order, so that everything
behind a waiting fetch would wait too.  It asks for a new image when someone says the old one
is wrong, when it is too old, and never more often than the back-off allows, however many
callers want one.

A router that once reached the cluster keeps trying: a lost broker costs its callers time,
not the router.  Only ``start`` gives up at once, so that a wrong address is told at once.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import TypeVar

from waystation.client.backoff import Backoff
from waystation.client.bootstrap import Address, parse_bootstrap
from waystation.client.connection import Connection
from waystation.client.errors import (
    BrokerUnreachableError,
    ClosedError,
    ConnectionLostError,
    NoSuchPartitionError,
    error_of,
    is_retriable,
)
from waystation.client.metadata import BrokerView, ClusterView, TopicView
from waystation.client.pool import Pool
from waystation.client.settings import ConnectionSettings
from waystation.client.transport import Connect, connect_tcp
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from waystation.model.errors import (
    ErrorCode,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.ids import NodeId, TopicPartition
from waystation.wire.message import Message

__all__ = ["Router"]

R = TypeVar("R", bound=Message)
T = TypeVar("T")

Hint = tuple[int, int]
"""Whom a refusal names as leader, and in which epoch."""
_ANOTHER_S = 1.0


class Router:
    """Connections and the image of the cluster; one per producer, consumer or admin."""

    def __init__(
        self,
        bootstrap: str,
        settings: ConnectionSettings,
        *,
        connect: Connect = connect_tcp,
        chance: Random | None = None,
        create_topics: bool = False,
    ) -> None:
        self.view = ClusterView()
        self.settings = settings
        self.chance = chance or Random()
        self.backoff = Backoff(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, self.chance
        )
        self.on_change: list[Callable[[], None]] = []
        self._bootstrap = parse_bootstrap(bootstrap)
        self._connect = connect
        self._create_topics = create_topics
        self._followed: dict[str, None] = {}
        self._prompt = self.new_pool()
        self._held = self.new_pool()
        self._wanted = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._asked_last: Address | None = None
        self._in_vain = False

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach the cluster once; ``BrokerUnreachableError`` says why for each address."""
        if self._refresher is None:
            try:
                await self._load()
            except WaystationError:
                self._prompt.keep_only(())
                raise
            self._refresher = asyncio.create_task(self._keep_fresh(), name="client-metadata")

    async def close(self) -> None:
        """Close every connection; whoever waits is told before this returns."""
        refresher, self._refresher = self._refresher, None
        if refresher is not None:
            refresher.cancel()
            await asyncio.gather(refresher, return_exceptions=True)
        await self._prompt.close()
        await self._held.close()
        if self._next is not None and not self._next.done():
            self._next.set_exception(ClosedError("the client was closed"))
            self._next.exception()
        await asyncio.sleep(0)

    # --- the image --------------------------------------------------------------------------

    def follow(self, topic: str) -> None:
        """Keep ``topic`` in the image from the next refresh on."""
        if topic not in self._followed:
            self._followed[topic] = None
            self.want_refresh()

    def unfollow(self, topic: str) -> None:
        """Stop asking about ``topic``."""
        self._followed.pop(topic, None)

    def want_refresh(self) -> None:
        """Say that the image is out of date; returns at once."""
        self._wanted.set()

    def strayed(
        self, where: TopicPartition, by: NodeId, hint: Hint | None, at: Mapping[int, BrokerView]
    ) -> bool:
        """A broker refused to answer for a partition; true if another can be asked at once.

        It may have named that one, with its address (KIP-951).  Otherwise a new image is wanted.
        """
        if hint is not None:
            before, self.view = self.view, self.view.led_by(where, *hint, at)
            if self.view is not before:
                for told in self.on_change:
                    told()
        if self.view.leader(where) in (None, by):
            self.want_refresh()
            return False
        return True

    async def refresh(self) -> None:
        """Wait for an image that was asked for after this call began."""
        if self._refresher is None or self._refresher.done():
            raise ClosedError("the client is not started: use `async with`, or await start()")
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self._wanted.set()
        await asyncio.shield(self._next)

    async def topic(self, name: str) -> TopicView:
        """The topic once it exists and has partitions; raises what stood in the way at the end.

        A topic that does not exist may be on its way, so the wait is ``metadata_timeout_ms``.
        """
        known = self.view.topics.get(name)
        if known is not None and known.partitions and name in self._followed:
            return known
        self.follow(name)
        trouble: WaystationError | None = None
        try:
            async with asyncio.timeout(self.settings.metadata_timeout_ms / 1_000):
                while not (found := self.view.topics.get(name)) or not found.partitions:
                    if refused := self.view.refused.get(name):
                        trouble = _retriable_or_raise(error_of(refused, f"topic {name}"))
                    try:
                        await self.refresh()
                    except WaystationError as error:
                        trouble = _retriable_or_raise(error)
        except TimeoutError:
            self.unfollow(name)
            raise trouble or RequestTimedOutError(f"no broker told about topic {name}") from None
        except WaystationError:
            self.unfollow(name)
            raise
        return found

    async def look_up(
        self, names: Iterable[str] | None, at: Callable[[], Awaitable[Connection]] | None = None
    ) -> ClusterView:
        """Topics as they are now, or with ``None`` all of them; the router's image stays.

        ``at`` yields whom to ask; anybody, if it is not given.
        """
        listed = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        question = MetadataRequest(topics=listed, allow_auto_topic_creation=False)
        to = self.to_any() if at is None else at()
        return ClusterView().after(await self.ask(to, question, MetadataResponse))

    # --- asking -----------------------------------------------------------------------------

    def connected(self, node: NodeId) -> Connection | None:
        """The connection to ``node`` if there is one now."""
        broker = self.view.brokers.get(node)
        return None if broker is None else self._prompt.live(broker.address)

    async def to_node(self, node: NodeId, *, held: bool = False) -> Connection:
        """A connection to ``node``; the one for requests it may hold on to if ``held``."""
        broker = self.view.brokers.get(node)
        if broker is None:
            self.want_refresh()
            raise ConnectionLostError(f"node {node} is not in the cluster, as far as is known")
        pool = self._held if held else self._prompt
        try:
            return await pool.reach_patiently(broker.address)
        except WaystationError:
            self.want_refresh()
            raise

    async def to_address(self, address: Address) -> Connection:
        """A connection to the broker at ``address``, as another broker gave it."""
        try:
            return await self._prompt.reach_patiently(address)
        except WaystationError:
            self.want_refresh()
            raise

    def new_pool(self) -> Pool:
        """Connections beside the router's own; whoever asks for them closes them."""
        return Pool(self._connect, self.settings, self.backoff)

    async def to_any(self) -> Connection:
        """Any broker: an open connection if there is one, else the first that answers."""
        if (open_one := self._prompt.idlest()) is not None:
            return open_one
        known = [broker.address for broker in self.view.brokers.values()]
        self.chance.shuffle(known)
        causes: dict[str, str] = {}
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._prompt.reach(address)
            except WaystationError as error:
                causes[str(address)] = str(error)
        raise BrokerUnreachableError(causes)

    async def _to_another(self) -> Connection:
        """A broker other than the one that was asked in vain, if one answers soon.

        One that lost touch with its cluster goes on telling what it knew.
        """
        others = [
            broker.address
            for broker in self.view.brokers.values()
            if broker.address != self._asked_last
        ]
        self.chance.shuffle(others)
        for address in others:
            with contextlib.suppress(WaystationError, TimeoutError):
                async with asyncio.timeout(_ANOTHER_S):
                    return await self._prompt.reach(address)
        return await self.to_any()

    async def to_controller(self) -> Connection:
        """The controller; any broker, while none is known."""
        if self.view.controller in self.view.brokers:
            return await self.to_node(self.view.controller)
        return await self.to_any()

    async def leader_of(self, partition: TopicPartition) -> NodeId:
        """The leader of ``partition``; a retriable error while it has none."""
        topic = await self.topic(partition.topic)
        if not 0 <= partition.partition < len(topic.partitions):
            await self.refresh()  # it may be new
            topic = await self.topic(partition.topic)
        if not 0 <= partition.partition < len(topic.partitions):
            raise NoSuchPartitionError(partition, len(topic.partitions))
        leader = self.view.leader(partition)
        if leader is None:
            self.want_refresh()
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition}")
        return leader

    async def ask(self, to: Awaitable[Connection], message: Message, expect: type[R]) -> R:
        """Ask whoever ``to`` yields: ``await router.ask(router.to_any(), ...)``."""
        connection = await to
        return await connection.ask(message, expect, self.settings.request_timeout_ms / 1_000)

    async def retrying(self, attempt: Callable[[], Awaitable[T]], within_ms: int) -> T:
        """Repeat ``attempt`` while it fails retriably, for ``within_ms`` at most.

        Only for what may be done twice.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_ms / 1_000
        failures = 0
        while True:
            try:
                return await attempt()
            except WaystationError as error:
                failures += 1
                wait_s = self.backoff.delay_s(failures)
                if not is_retriable(error) or loop.time() + wait_s > deadline:
                    raise
            self.want_refresh()
            await asyncio.sleep(wait_s)

    # --- behind the scenes ------------------------------------------------------------------

    async def _keep_fresh(self) -> None:
        """Refresh when wanted or too old; the waits between are the only back-off needed."""
        failures = 1
        while True:
            await self._wanted_or_old()
            self._wanted.clear()
            waiting, self._next = self._next, None
            try:
                await self._load()
                failures = 1
            except WaystationError as error:
                failures += 1
                _settle(waiting, error)
                self._wanted.set()
            else:
                _settle(waiting, None)
            await asyncio.sleep(self.backoff.delay_s(failures))

    async def _wanted_or_old(self) -> None:
        try:
            async with asyncio.timeout(self.settings.metadata_max_age_ms / 1_000):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def _load(self) -> None:
        names, before = list(self._followed), self.view
        connection = await (self._to_another() if self._in_vain else self.to_any())
        self._asked_last = connection.address
        timeout_s = self.settings.request_timeout_ms / 1_000
        response = await connection.ask(self._question(names), MetadataResponse, timeout_s)
        if response.error_code:
            raise error_of(response.error_code, "the cluster's metadata")
        self.view = self.view.after(response).only(self._followed)
        self._in_vain = self.view == before
        known = {broker.address for broker in self.view.brokers.values()}
        self._prompt.keep_only(known)
        self._held.keep_only(known)
        for told in self.on_change:
            told()

    def _question(self, names: Iterable[str]) -> MetadataRequest:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._create_topics,
        )


def _settle(waiting: asyncio.Future[None] | None, error: WaystationError | None) -> None:
    if waiting is None or waiting.done():
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
        waiting.exception()


def _retriable_or_raise(error: WaystationError) -> WaystationError:
    if not is_retriable(error):
        raise error
    return error
