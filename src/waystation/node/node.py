"""One node, put together: disks, store, broker, listener, HTTP.

Started in the order in which each needs the other, stopped in reverse: clients are let in when
everything they may ask for is there, and out before anything they may still need goes.
"""

import asyncio
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.apis.dispatcher import Dispatcher
from waystation.broker.broker import Broker
from waystation.broker.settings import BrokerSettings
from waystation.client.bootstrap import Address as ClientAddress
from waystation.client.transport import Transport, connect_tcp
from waystation.cluster.image import ClusterImage
from waystation.coordination.address import parse_address as parse_store
from waystation.coordination.connect import OpenableStore, store_at
from waystation.coordination.store import CoordinationStore
from waystation.gateway.settings import GatewaySettings
from waystation.groups.settings import GroupSettings
from waystation.model.errors import InvalidSettingsError, StoreUnavailableError
from waystation.model.ids import NodeId
from waystation.model.settings import options_of
from waystation.node.addresses import Address, cannot_listen, parse_address
from waystation.node.inprocess import InProcess
from waystation.node.settings import AddressSettings, NodeSettings
from waystation.runtime.chance import Chance, SystemChance
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.settings import ScheduleSettings
from waystation.server.listener import Listener
from waystation.server.settings import ServerSettings
from waystation.sharing.settings import ShareSettings
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk, RealDisk
from waystation.storage.settings import StorageSettings
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry
from waystation.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from waystation.gateway.app import App, HttpServer
    from waystation.gateway.webhook_running import Webhooks

_events = get_logger("node")

_STORE_FILE = "cluster.sqlite"
_STORE_PAUSE_S = 0.5
_FIXED_GROUPS = (
    AddressSettings,
    BrokerSettings,
    GatewaySettings,
    GroupSettings,
    ScheduleSettings,
    ServerSettings,
    ShareSettings,
    StorageSettings,
    TransactionSettings,
)


class Node:
    """Everything one process runs."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        store: CoordinationStore | None = None,
    ) -> None:
        """``store`` is used instead of the one in the settings, and left open."""
        self.settings = settings
        self.registry = Registry()
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._started_at = time.monotonic()
        self._tasks = Tasks()
        self._listen = parse_address("--listen", settings.addresses.listen)
        self._check_exposure()
        self.address = self._listen
        self.http_address: Address | None = None
        self.start_seconds = 0.0
        self.ready = False
        self._directories: list[DataDirectory] = []
        self._given_store = store
        self._store: OpenableStore | None = None
        self._broker: Broker | None = None
        self._listener: Listener | None = None
        self._inside: InProcess | None = None
        self._app: App | None = None
        self._http: HttpServer | None = None
        self._webhooks: Webhooks | None = None

    async def start(self) -> None:
        """Serve; whatever was started before a failure is left to ``stop``."""
        settings, node = self.settings, NodeId(self.settings.broker.node_id)
        self._directories = [
            DataDirectory(Path(path), self._disk, settings.storage, node, self._chance)
            for path in settings.addresses.log_dirs
        ]
        store = self._given_store or await self._open_store()
        broker = self._broker = Broker(
            settings.broker,
            settings.topics,
            settings.groups,
            settings.transactions,
            settings.shares,
            settings.static,
            [one for group in _FIXED_GROUPS for one in options_of(group)],
            schedule_settings=settings.schedules,
            store=store,
            directories=self._directories,
            clock=self._clock,
            chance=self._chance,
            registry=self.registry,
            reconfigured=self._reconfigured,
            connect=self.connect,
            machine=platform.node() or None,
        )
        dispatcher = Dispatcher(broker, self._tasks, self.registry)
        self._inside = InProcess(dispatcher.handle, settings.server.socket_request_max_bytes)
        listener = self._listener = Listener(
            settings.server, dispatcher.handle, self._clock, self.registry
        )
        try:
            port = await listener.bind(*self._listen)
        except OSError as error:
            raise cannot_listen("--listen", self._listen, error) from error
        self.address = Address(self._listen.host, port)
        await broker.start(*self._advertised())
        await listener.serve()
        self.ready = True
        await self._start_http(store)
        self.start_seconds = time.monotonic() - self._started_at

    @property
    def broker(self) -> Broker:
        """What the APIs answer from, once it was started."""
        assert self._broker is not None, "the node was not started"
        return self._broker

    @property
    def bootstrap(self) -> str:
        """What a client is given to find this node."""
        return str(self._advertised())

    async def connect(self, address: ClientAddress) -> Transport:
        """How a client inside this process reaches ``address``: itself without a socket.

        Hand it to ``client.Producer`` and the like as ``connect``.
        """
        assert self._inside is not None, "the node was not started"
        if tuple(address) == tuple(self._advertised()):
            return self._inside.connect()
        return await connect_tcp(address)

    async def stop(self) -> None:
        """Answer what is in flight, sync everything, let go of the directories."""
        self.ready = False
        if self._app is not None:
            await self._app.stop_streams()
        if self._webhooks is not None:
            await self._webhooks.aclose()
        if self._broker is not None:
            await self._broker.hand_over()
            self._broker.answer_waiting()
        if self._listener is not None:
            await self._listener.drain(self.settings.broker.controlled_shutdown_timeout_ms / 1_000)
        if self._app is not None:
            await self._app.aclose()
        if self._inside is not None:
            self._inside.close()
        await self._tasks.aclose()
        if self._broker is not None:
            await self._broker.stop()
        if self._http is not None:
            await self._http.aclose()
        if self._store is not None:
            await self._store.close()
        for directory in self._directories:
            directory.unlock()

    def abandon(self) -> None:
        """Fall silent at once, as a process that was killed: answer, sync and give up nothing.

        For tests that kill a node inside a living process; ending its tasks is up to them.
        """
        self.ready = False
        if self._listener is not None:
            self._listener.abort()
        if self._inside is not None:
            self._inside.close()
        if self._broker is not None:
            self._broker.peers.close()
            self._broker.timers.close()

    async def _open_store(self) -> CoordinationStore:
        """Wait a while for a service that does not answer; a file is there or it is not."""
        address = parse_store(self.settings.addresses.store)
        timeout_s = self.settings.broker.store_connect_timeout_ms / 1_000
        ends_at = self._clock.monotonic() + (timeout_s if address.kind != "sqlite" else 0)
        while True:
            store = store_at(address, self._directories[0].path / _STORE_FILE, self._clock)
            try:
                await store.open()
            except StoreUnavailableError as error:
                if self._clock.monotonic() >= ends_at:
                    raise
                _events.warning("store.not.reached", store=address.kind, reason=str(error))
                await asyncio.sleep(_STORE_PAUSE_S)
            else:
                self._store = store
                return store

    def _reconfigured(self, image: ClusterImage) -> None:
        """Hand options that changed to those who are not the broker."""
        configs = self.broker.configs
        if self._listener is not None:
            self._listener.adopt(configs.in_force(image, self.settings.server))
        storage = configs.in_force(image, self.settings.storage)
        for directory in self._directories:
            directory.producer_expiration_ms = storage.producer_id_expiration_ms

    async def _start_http(self, store: CoordinationStore) -> None:
        wanted = self.settings.addresses.http
        if wanted == "none":
            return
        from waystation.gateway.app import Reach, build_app, serve_http
        from waystation.gateway.webhook_running import Webhooks

        address = parse_address("--http", wanted)
        reach: Reach | None = Reach(self.bootstrap, self.connect)
        if not address.is_loopback and not self.settings.addresses.insecure:
            reach = None  # anyone could write; who looks after the node may still ask how it is
            _events.info("http.health.only", address=str(address), remedy="--insecure")
        webhooks = self._webhooks = Webhooks(
            store,
            self.settings.broker.node_id,
            self.settings.gateway,
            bootstrap=self.bootstrap,
            connect=self.connect,
            registry=self.registry,
            clock=self._clock,
        )
        app = self._app = build_app(
            self.registry,
            self._waiting_for,
            reach,
            settings=self.settings.gateway,
            webhooks=webhooks,
        )
        try:
            self._http = await serve_http(app, *address)
        except OSError as error:
            raise cannot_listen("--http", address, error) from error
        self.http_address = Address(address.host, self._http.port)
        webhooks.start()

    def _waiting_for(self) -> list[str]:
        offline = [f"{one.path} is offline" for one in self._directories if one.offline]
        if not self.ready:
            return ["the broker", *offline]
        return offline if self.broker.registered else ["its place in the cluster", *offline]

    def _advertised(self) -> Address:
        """Where clients are told to connect; they cannot connect to a wildcard."""
        told = self.settings.addresses.advertise
        if told:
            advertised = parse_address("--advertise", told)
            return advertised if advertised.port else Address(advertised.host, self.address.port)
        if self.address.is_wildcard:
            return Address("localhost", self.address.port)
        return self.address

    def _check_exposure(self) -> None:
        if not self._listen.is_loopback and not self.settings.addresses.insecure:
            raise InvalidSettingsError(
                [
                    f"listening on {self._listen} would let anyone who reaches it read and write: "
                    "nothing is authenticated. Remedy: --insecure if that is what you want, or "
                    "--listen 127.0.0.1:9092"
                ]
            )
