"""How this broker joins its cluster and stays in it.

A broker that was paused for longer than its lease lasts finds itself expelled when it wakes; it
registers anew, as another incarnation, and goes on.

On a single node it also founds the cluster, decides in it, and elects itself: whatever it led
before it restarted, it leads again under a new leader epoch.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from waystation.broker.view import ChangeLostError, ClusterView
from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.elections import elect
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import claim_controller, found_cluster, register
from waystation.cluster.topics import sweep
from waystation.coordination.store import CoordinationStore, Lease
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError
from waystation.model.ids import NodeId
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

# A lease is renewed three times within its life, so that one lost renewal costs nothing.
_RENEWALS = 3


class Membership:
    """The broker's lease, and what hangs on it."""

    def __init__(
        self, node: NodeId, store: CoordinationStore, view: ClusterView, session_ms: int
    ) -> None:
        self._node = node
        self._store = store
        self._view = view
        self._session_ms = session_ms
        self._lease: Lease | None = None
        self._place: tuple[str, int, str | None] = ("", 0, None)

    async def join(
        self, host: str, port: int, rack: str | None, new_cluster_id: Callable[[], str]
    ) -> ClusterImage:
        """Register, and elect leaders for what this node holds; the image that results."""
        self._place = (host, port, rack)
        image = await self._view.load()
        if image.cluster_id is None:
            image = await self._settle(lambda _: [found_cluster(new_cluster_id())])
        lease = self._lease = await self._store.lease(self._session_ms)
        bound = {keys.broker(self._node): lease.id, keys.CONTROLLER: lease.id}
        _, changes = register(image, self._node, host, port, rack)
        await self._view.write([changes], bound)
        image = await self._view.load()
        if image.controller is None:
            await self._view.write([claim_controller(image, self._node)], bound)
        live = (self._node,)
        return await self._settle(lambda image: [sweep(image), *elect(image, live, ended=live)])

    async def keep_alive(self) -> None:
        """Renew the lease for as long as the node runs."""
        assert self._lease is not None, "kept alive before it joined"
        while True:
            await asyncio.sleep(self._session_ms / 1_000 / _RENEWALS)
            try:
                await self._lease.keep_alive()
            except LeaseExpiredError:
                _events.warning("membership.lost", node=self._node, action="registering anew")
                await self._rejoin()
            except StoreUnavailableError as error:
                _events.warning("membership.not.renewed", node=self._node, reason=str(error))

    async def _rejoin(self) -> None:
        """Register as another incarnation, once the end of the last one was seen."""
        await self._view.reached((await self._store.get("cluster")).revision)
        lease = self._lease = await self._store.lease(self._session_ms)
        bound = {keys.broker(self._node): lease.id, keys.CONTROLLER: lease.id}

        def decide(image: ClusterImage) -> tuple[None, list[Changes]]:
            _, changes = register(image, self._node, *self._place)
            offices = [] if image.controller else [claim_controller(image, self._node)]
            return None, [changes, *offices]

        await self._view.change(decide, bound)
        _events.info("membership.regained", node=self._node)

    async def leave(self) -> None:
        """Give up the registration at once, so that nobody waits for the lease to end."""
        if self._lease is not None:
            await self._lease.revoke()

    async def _settle(self, decide: Callable[[ClusterImage], Iterable[Changes]]) -> ClusterImage:
        """Write a decision; one that was lost to somebody else needs no repeating here."""
        with contextlib.suppress(ChangeLostError):
            await self._view.write(decide(self._view.image))
        return await self._view.load()
