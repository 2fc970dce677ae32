"""All webhooks on one node: watches what is defined, and runs a delivery for each.

Nothing is imported and nothing runs before the first webhook is there.  Figures are published every
few seconds, so that any node can tell of all.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from waystation.coordination.store import CoordinationStore
from waystation.gateway.settings import GatewaySettings
from waystation.gateway.webhook_definitions import Definition
from waystation.gateway.webhook_figures import Figures, together
from waystation.gateway.webhook_leaving import Leavings
from waystation.gateway.webhook_meters import declare_meters, forget_meter, webhook_meter
from waystation.gateway.webhook_store import WebhookStore
from waystation.gateway.webhook_targets import parse_networks
from waystation.model.errors import InvalidSettingsError, StoreUnavailableError
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.transport import Connect
    from waystation.gateway.clients import Clients
    from waystation.gateway.webhook_delivery import Delivery
    from waystation.gateway.webhook_posting import Poster

__all__ = ["Webhooks"]

_PUBLISH_S: Final = 2.0
_WAITING: Final = 1
_MESSAGE_BYTES: Final = 1 << 20

_events = get_logger("webhooks")


class Webhooks:
    """The webhooks of the cluster, as this node keeps and delivers them."""

    def __init__(
        self,
        store: CoordinationStore,
        node: int,
        settings: GatewaySettings,
        *,
        bootstrap: str,
        connect: "Connect",
        registry: Registry,
        clock: Clock,
    ) -> None:
        """A setting that cannot be used is refused."""
        _check_authorities(settings.webhook_ca_file)
        self.store = WebhookStore(store, node)
        self.clock = clock
        self._node = node
        self._settings = settings
        self._bootstrap, self._connect = bootstrap, connect
        self._registry = registry
        self._wanted: dict[str, Definition] = {}
        self._told = asyncio.Event()
        self._deliveries: dict[str, Delivery] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._figures: dict[str, Figures] = {}
        self._clients: Clients | None = None
        self._poster: Poster | None = None
        self._making = asyncio.Lock()
        self._tasks = Tasks()
        self.leavings = Leavings(self.store, node, self._admin, clock)
        declare_meters(registry)
        registry.computed(
            "waystation_webhooks_failing",
            "Webhooks of which this node has heard nothing but failures lately.",
            "gauge",
            lambda: [({}, sum(self._is_failing(one) for one in self._deliveries))],
        )

    def start(self) -> None:
        """Watch, and deliver what there is."""
        self._tasks.spawn(self.store.follow(self._hear), "webhooks-watch")
        self._tasks.spawn(self._keep_up(), "webhooks")

    async def aclose(self) -> None:
        """Give back what is held, and close all connections to targets."""
        await self._tasks.aclose()
        await self.leavings.aclose()
        await self._closed(self._deliveries.values())
        if self._figures:
            with suppress(StoreUnavailableError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._publish(self._figures)
        if self._poster is not None:
            await self._poster.aclose()
        if self._clients is not None:
            await self._clients.close()

    async def poster(self) -> "Poster":
        """The node's HTTP client."""
        async with self._making:
            if self._poster is None:
                self._poster = await asyncio.to_thread(self._new_poster)
            return self._poster

    async def figures(self, webhook: Definition) -> Figures:
        """What all nodes have done for a webhook."""
        published = await self.store.figures(webhook.name)
        return self._added_up(webhook, published.get(webhook.name, {}))

    async def figures_of_all(self, webhooks: Iterable[Definition]) -> list[Figures]:
        """The same of many, for one look at the store."""
        published = await self.store.figures()
        return [self._added_up(one, published.get(one.name, {})) for one in webhooks]

    def _added_up(self, webhook: Definition, published: Mapping[str, Figures]) -> Figures:
        now = self.clock.now()
        nodes = dict(published)
        own = self._figures.get(webhook.name)
        if own is not None:
            own.told_ms = now
            nodes[str(self._node)] = own
        every = (one for one in nodes.values() if one.created_ms == webhook.created_ms)
        return together(every, now)

    # --- following ------------------------------------------------------------------------------

    def _hear(self, webhooks: dict[str, Definition]) -> None:
        self._wanted = {name: one for name, one in webhooks.items() if one.runs}
        self._figures = {name: one for name, one in self._figures.items() if name in webhooks}
        self._told.set()
        for name, one in webhooks.items():
            if one.leaving is not None:
                self.leavings.see_to(name)

    async def _keep_up(self) -> None:
        """Let what is delivered be what is wanted, and tell how it goes."""
        await self._told.wait()
        while not self._wanted:
            self._told.clear()
            await self._told.wait()
        with suppress(StoreUnavailableError):
            self._figures = await self.store.own_figures()
        self._tasks.spawn(self._keep_telling(), "webhooks-figures")
        while True:
            self._told.clear()
            await self._adjust()
            await self._told.wait()

    async def _adjust(self) -> None:
        wanted = dict(self._wanted)
        over = [name for name, one in self._deliveries.items() if wanted.get(name) != one.webhook]
        await self._closed([self._deliveries.pop(name) for name in over])
        for name in over:
            if name not in wanted:
                forget_meter(self._registry, name)
        for name, webhook in wanted.items():
            if name not in self._deliveries:
                try:
                    self._deliveries[name] = await self._begin(webhook)
                except Exception as error:  # one that cannot begin must not keep others from it
                    _events.error("webhook.not.begun", webhook=name, exc_info=error)

    async def _closed(self, deliveries: "Iterable[Delivery]") -> None:
        """Close them, and wait for all that are being closed; who is cancelled cancels none."""
        self._closing |= {asyncio.create_task(one.aclose()) for one in deliveries}
        if self._closing:
            await asyncio.wait(self._closing)
            self._closing.clear()

    async def _begin(self, webhook: Definition) -> "Delivery":
        from waystation.gateway.webhook_delivery import Delivery

        known = self._figures.get(webhook.name)
        if known is None or known.created_ms != webhook.created_ms:
            known = self._figures[webhook.name] = Figures(created_ms=webhook.created_ms)
        delivery = Delivery(
            webhook,
            bootstrap=self._bootstrap,
            connect=self._connect,
            poster=await self.poster(),
            figures=known,
            meter=webhook_meter(self._registry, webhook.name),
            clock=self.clock,
            member_id=f"node-{self._node}",
        )
        delivery.start()
        return delivery

    # --- figures --------------------------------------------------------------------------------

    async def _keep_telling(self) -> None:
        last: dict[str, tuple[object, ...]] = {}
        while True:
            await asyncio.sleep(_PUBLISH_S)
            now = {name: _facts(one) for name, one in self._figures.items()}
            news = [name for name, facts in now.items() if facts != last.get(name)]
            failing = [name for name in self._deliveries if self._is_failing(name)]
            with suppress(StoreUnavailableError):
                await self._publish({*news, *failing})
                last = now

    async def _publish(self, names: Iterable[str]) -> None:
        told = {name: one for name in names if (one := self._figures.get(name)) is not None}
        for one in told.values():
            one.told_ms = self.clock.now()
        await self.store.publish(told)

    def _is_failing(self, name: str) -> bool:
        known = self._figures.get(name)
        return known is not None and known.failing_since_ms is not None

    # --- made when needed -----------------------------------------------------------------------

    def _reached(self) -> "Clients":
        from waystation.gateway.clients import Clients

        if self._clients is None:
            self._clients = Clients(
                self._bootstrap, self._connect, waiting=_WAITING, message_bytes=_MESSAGE_BYTES
            )
        return self._clients

    async def _admin(self) -> "Admin":
        return await self._reached().admin()

    def _new_poster(self) -> "Poster":
        from waystation.gateway.webhook_posting import Poster

        allowed = parse_networks(self._settings.webhook_allow)
        return Poster(allowed, clock=self.clock, ca_file=self._settings.webhook_ca_file)


def _check_authorities(path: str) -> None:
    """Tell of a file of authorities that is none now, not when the first webhook needs it."""
    if not path:
        return
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # also what ssl says of a file that is no PEM
        raise InvalidSettingsError(
            [f"webhook.ca.file={path}: {error.strerror or error}; give a PEM file of certificates"]
        ) from None


def _facts(one: Figures) -> tuple[object, ...]:
    return (one.delivered, one.failed, one.dead, one.skipped, one.failing_since_ms, one.last_error)
