"""A whole node of the cluster in a world: the real one, on simulated disk, wire, threads and time.

    with simulated_threads(world.schedule):
        process = Process(world.node("b1"), settings, server)
        process.start()
        world.run(60_000)

What a node is made of is not known here: ``waystation.node.Node`` is started as ``serve`` would
start it.  When its machine loses power it is gone; ``start`` begins anew from what the disk kept.
"""

from collections.abc import Callable
from unittest.mock import patch

from waystation.client.bootstrap import Address as ClientAddress
from waystation.client.transport import Transport
from waystation.model.errors import WaystationError
from waystation.node.inprocess import InProcessTransport
from waystation.node.node import Node
from waystation.node.settings import NodeSettings
from waystation.runtime.chance import SeededChance
from waystation.server.listener import Listener
from waystation.testing import world as worlds
from waystation.testing.simulated_store import SimulatedStore, StoreServer, carry_over
from waystation.testing.simulated_wire import connecting, listening

__all__ = ["PORT", "Process"]

PORT = 9092


class _Listener(Listener):
    """Takes no socket: who connects is let in by the process."""

    is_open = False

    async def bind(self, host: str, port: int) -> int:
        return port

    async def serve(self) -> None:
        self.is_open = True

    async def drain(self, timeout_s: float) -> None:
        self.is_open = False
        await super().drain(timeout_s)


class _Node(Node):
    """Reaches others over the world's network."""

    def __init__(self, host: worlds.Node, settings: NodeSettings, store: SimulatedStore) -> None:
        chance = SeededChance(host.world.chance.getrandbits(64))
        super().__init__(settings, disk=host.disk, clock=host.clock, chance=chance, store=store)
        self._outside = connecting(host.world.network, host.name)

    async def connect(self, address: ClientAddress) -> Transport:
        if tuple(address) == tuple(self._advertised()):
            return await super().connect(address)
        return await self._outside(address)

    def accept(self) -> InProcessTransport | None:
        """A connection for who knocks, if anybody is let in."""
        assert isinstance(self._listener, _Listener), "made outside of a simulation"
        is_open = self._inside is not None and self._listener.is_open
        return self._inside.connect() if self._inside is not None and is_open else None


class Process:
    """One life after the other of a node on one machine."""

    def __init__(
        self,
        host: worlds.Node,
        settings: NodeSettings,
        server: StoreServer,
        failed: Callable[[WaystationError], object] = lambda _: None,
    ) -> None:
        """``failed`` hears of a start that did not succeed; then the process is gone."""
        self.host = host
        self.node: _Node | None = None
        self._settings = settings
        self._server = server
        self._failed = failed
        self._carry = carry_over(host.world.network, host.name, "store")
        host.when_crashed.append(self._gone)
        listening(host.world.network, host.name, self._accept)

    @property
    def serving(self) -> bool:
        """Whether it was started and let clients in."""
        return self.node is not None and self.node.ready

    def start(self) -> None:
        """Start the node; the machine must have power."""
        self.host.spawn(self._run())

    def stop(self) -> None:
        """Shut it down cleanly, then the machine."""
        self.host.spawn(self._stop())

    async def _run(self) -> None:
        store = SimulatedStore(self._server, self._carry)
        with patch("waystation.node.node.Listener", _Listener):
            self.node = _Node(self.host, self._settings, store)
            try:
                await self.node.start()
            except WaystationError as error:
                self._failed(error)

    async def _stop(self) -> None:
        if self.node is not None:
            await self.node.stop()
            self.host.crash()

    def _accept(self) -> InProcessTransport | None:
        return None if self.node is None else self.node.accept()

    def _gone(self) -> None:
        self.node = None
