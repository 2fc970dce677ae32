"""How this broker joins its cluster, stays in it, and leaves it.

1. A data directory belongs to one cluster; with the store of another nothing starts, since what
   that one does not know of would be deleted.
2. Two brokers of one id never run at once.  One that finds its id taken waits as long as a lease
   lasts, then gives up; it never takes the id away from somebody who may live.  Only its own last
   life, which it knows by the data directory, is taken for dead at once: the lock was free.
3. Before it registers, the store says that it leads nothing any more, and that it may lack what
   only memory held.  So whatever it leads was given to this life.
4. A broker that was paused for longer than its lease lasts finds itself expelled when it wakes; it
   registers anew, as another incarnation, and goes on with what the cluster gives it then.
5. While the store is away it goes on as it is; by its own clock it knows when its lease must have
   ended, and then asks others whether that came of it (``hearsay.py``).

A broker whose partitions nobody else has leads them again at once, elected by itself; a single
node is that.  Who decides in a cluster is in ``controller.py``.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from waystation.broker.keeping_alive import KeepAlive
from waystation.broker.view import ChangeLostError, ClusterView
from waystation.cluster import keys
from waystation.cluster.changes import ABSENT
from waystation.cluster.draining import leave, may_stop
from waystation.cluster.elections import lead_again
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import (
    Condition,
    claim_controller,
    end_last_life,
    found_cluster,
    is_alone,
    register,
)
from waystation.cluster.parts import BrokerImage, TopicImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.topics import sweep
from waystation.coordination.store import CoordinationStore, DetachableLease, Lease, LeaseId
from waystation.model.errors import (
    DuplicateBrokerError,
    LeaseExpiredError,
    StoreUnavailableError,
    UnknownBrokerError,
    WaystationError,
    WrongClusterError,
)
from waystation.model.ids import NO_BROKER_EPOCH, BrokerEpoch, NodeId
from waystation.runtime.clock import Clock
from waystation.storage.directory import DataDirectory
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

_JOINS_MAX = 10
# A lease is renewed three times within its life, so that one lost renewal costs nothing.
_RENEWALS = 3
# What a lease may last longer than was asked: stores look now and then, and count in seconds.
_LEASE_SLACK_S = 3.0
_LOOK_EVERY_S = 0.1
# What this version can write, for those who decide when all can.
FEATURES = {"metadata": 1}


class Place(NamedTuple):
    """Where clients reach a broker, and what it shares its fate with."""

    host: str
    port: int
    rack: str | None = None
    machine: str | None = None


class Membership:
    """The broker's lease, and what hangs on it."""

    def __init__(
        self,
        node: NodeId,
        store: CoordinationStore,
        view: ClusterView,
        session_ms: int,
        *,
        directories: Sequence[DataDirectory],
        holds: Callable[[TopicImage, int], bool],
        policy_of: Callable[[ClusterImage], PolicyOf],
        clock: Clock,
    ) -> None:
        """``holds`` tells whether there is a log of a partition, once logs were opened."""
        self._node = node
        self._store = store
        self._view = view
        self.session_s = session_ms / 1_000
        self._late_s = self.session_s * 2 / _RENEWALS
        self._directories = directories
        self._policy_of = policy_of
        self._clock = clock
        self._lease: Lease | None = None
        self._place = Place("", 0)
        # What the process before this one lost is told once, before it registers.
        self._condition = Condition(
            all(each.stopped_life not in (None, NO_BROKER_EPOCH) for each in directories),
            holds,
            any(each.cluster_id is None for each in directories),
        )
        self._renewed_at = self._back_at = -1e9
        self.broker_epoch = NO_BROKER_EPOCH
        """The life that this process was last registered as."""
        self.joined_revision = 0
        """The store's revision that made it so."""

    @property
    def registered(self) -> bool:
        """Whether this life's registration stands, by what the store last told."""
        seen = self._view.newest.brokers.get(self._node)
        return seen is not None and seen.epoch == self.broker_epoch

    @property
    def itself(self) -> BrokerImage:
        """The broker as clients are told of it, whether its registration stands or not."""
        host, port, rack, machine = self._place
        return BrokerImage(self._node, self.broker_epoch, host, port, rack, ABSENT, machine)

    @property
    def lease(self) -> LeaseId:
        """What this broker's keys hang on."""
        assert self._lease is not None, "asked for the lease before it joined"
        return self._lease.id

    @property
    def overdue(self) -> bool:
        """Whether the lease was not renewed when it should have been, nor when that was late.

        It may have ended, or will soon; only the store could tell.
        """
        return self._clock.monotonic() - self._renewed_at > self._late_s

    @property
    def store_silent_s(self) -> float:
        """For how long the store has not answered; nothing while it does so in time."""
        return self._clock.monotonic() - self._renewed_at if self.overdue else 0.0

    @property
    def store_came_back(self) -> bool:
        """Whether the store was away for so long, until just now, that leases may have ended."""
        return self._clock.monotonic() < self._back_at + self.session_s

    # --- joining --------------------------------------------------------------------------------

    async def enter(self, new_cluster_id: Callable[[], str]) -> ClusterImage:
        """Found the cluster or find it; nobody knows of this broker yet."""
        image = await self._view.load()
        if image.cluster_id is None:
            self._check_directories(None)
            with contextlib.suppress(ChangeLostError):
                await self._view.write([found_cluster(new_cluster_id())])
            image = await self._view.load()
        self._check_directories(image.cluster_id)
        return image

    async def join(self, place: Place) -> ClusterImage:
        """Register; elect leaders for what this node alone holds; the image that results.

        A store or machine so slow that the lease has ended before all of it was said is given
        some more tries: a whole cluster that comes back at once is as busy as it will ever be.
        """
        self._place = place
        for _ in range(_JOINS_MAX - 1):
            try:
                return await self._join()
            except LeaseExpiredError as error:
                _events.warning("membership.lost", node=self._node, reason=str(error))
        return await self._join()

    async def _join(self) -> ClusterImage:
        await self._wait_for_the_last_life()
        alone = await self._register()
        image = await self._view.load()
        await self._claim_office(image)
        if alone:
            if set(image.brokers) == {self._node}:
                await self._view.write([sweep(image)])
            await self._view.write_each(lead_again(image, self._node))
        return await self._view.load()

    async def _claim_office(self, image: ClusterImage) -> int:
        """Decide in this cluster, if nobody does; the revision that tells who does."""
        if image.controller is None:
            claim = claim_controller(image, self._node)
            with contextlib.suppress(ChangeLostError):
                return await self._view.write([claim], {keys.CONTROLLER: self.lease})
        return image.revision

    def _check_directories(self, cluster_id: str | None) -> None:
        for directory in self._directories:
            theirs = directory.cluster_id
            if theirs is None or theirs == cluster_id:
                continue
            if cluster_id is None:
                raise WrongClusterError(
                    f"{directory.path} belongs to cluster {theirs}, and the coordination store is "
                    "empty: give --store where that cluster is. If the store has lost its "
                    "contents: waystation cluster recover"
                )
            raise WrongClusterError(
                f"{directory.path} belongs to cluster {theirs}, the coordination store to cluster "
                f"{cluster_id}: give this node another --data-dir, or the --store of its cluster"
            )

    async def _wait_for_the_last_life(self) -> None:
        """Until nobody is registered under this id, or ``DuplicateBrokerError``."""
        key = keys.broker(self._node)
        lives = {each.last_life_on(self._place.machine or "") for each in self._directories}
        ends_at = self._clock.monotonic() + self.session_s + _LEASE_SLACK_S
        first: BrokerEpoch | None = None
        while (await self._store.get(key)).items:
            image = await self._view.read()
            there = image.brokers.get(self._node)
            if there is None:
                return
            if there.epoch in lives:
                await self._bury(image)
                continue
            first = there.epoch if first is None else first
            if first != there.epoch or self._clock.monotonic() >= ends_at:
                raise DuplicateBrokerError(
                    f"broker {self._node} runs already, at {there.host}:{there.port}: give this "
                    "one another --node-id"
                )
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _bury(self, image: ClusterImage) -> None:
        """Delete what hangs on the lease of this directory's last life, which is dead."""
        gone = {keys.broker(self._node): image.brokers[self._node].version}
        if image.controller is not None and image.controller.node == self._node:
            gone[keys.CONTROLLER] = image.controller.version
        if self._node in image.leaving:
            gone[keys.leaving(self._node)] = image.leaving[self._node].version
        await self._store.txn(gone, {}, [*gone])

    async def _register(self) -> bool:
        """Become another incarnation; whether nobody else shares what this node holds."""
        while True:
            lease = self._lease = await self._store.lease(int(self.session_s * 1_000))
            self._renewed_at = self._clock.monotonic()
            try:
                return await self._register_under(lease)
            except StoreUnavailableError:
                # It may have happened: without the lease it has not.
                with contextlib.suppress(StoreUnavailableError):
                    await lease.revoke()
                raise
            except ChangeLostError:
                await lease.revoke()

    async def _register_under(self, lease: Lease) -> bool:
        alone, image = await self._end_last_life()
        epoch, changes = register(
            image,
            self._node,
            *self._place[:3],
            machine=self._place.machine,
            clean=self._condition.clean,
            features=FEATURES,
        )
        revision = await self._view.write([changes], {keys.broker(self._node): lease.id})
        self.broker_epoch, self.joined_revision = epoch, revision
        # This process lives: what it holds, it has.
        self._condition = Condition(clean=True)
        assert image.cluster_id is not None, "registered in no cluster"
        await asyncio.to_thread(self._remember, image.cluster_id, epoch)
        return alone

    async def _end_last_life(self) -> tuple[bool, ClusterImage]:
        """Let the store say what this node's last life left; then nothing is left to say."""
        while True:
            image = await self._view.read()
            if is_alone(image, self._node):
                return True, image
            policy = self._policy_of(image)
            left = end_last_life(image, self._node, policy, self._condition)
            if not left:
                return False, image
            await self._view.write_each(left)

    def _remember(self, cluster_id: str, epoch: BrokerEpoch) -> None:
        for directory in self._directories:
            if directory.offline is None:
                directory.joined(cluster_id, epoch, self._place.machine or "")

    # --- staying --------------------------------------------------------------------------------

    async def keep_alive(self) -> None:
        """Renew the lease for as long as the node runs."""
        while True:
            lease = self._lease
            assert lease is not None, "kept alive before it joined"
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._renew(lease))
                    both.create_task(self._watch_registration(lease))
            except* LeaseExpiredError:
                self._heard()
            _events.warning("membership.lost", node=self._node, action="registering anew")
            await self._rejoin()

    async def confirm(self) -> None:
        """See to it that the registration stands, if a start took so long that it may not."""
        assert self._lease is not None, "confirmed before it joined"
        if self._clock.monotonic() - self._renewed_at < self.session_s / _RENEWALS:
            return
        try:
            await self._lease.keep_alive()
            self._heard()
        except StoreUnavailableError as error:
            _events.warning("membership.not.renewed", node=self._node, reason=str(error))
        except LeaseExpiredError:
            _events.warning("membership.lost", node=self._node, action="registering anew")
            await self._rejoin()

    async def _renew(self, lease: Lease) -> None:
        """Until the lease has ended, which is raised."""
        if isinstance(lease, DetachableLease):
            await self._renew_in_thread(lease)
        while True:
            await asyncio.sleep(self.session_s / _RENEWALS)
            try:
                await lease.keep_alive()
                self._heard()
            except StoreUnavailableError as error:
                _events.warning("membership.not.renewed", node=self._node, reason=str(error))

    async def _renew_in_thread(self, lease: DetachableLease) -> NoReturn:
        news: asyncio.Queue[WaystationError | None] = asyncio.Queue()
        every_s = self.session_s / _RENEWALS
        thread = KeepAlive(lease, self.session_s, every_s, self._clock, news.put_nowait)
        try:
            while True:
                match await news.get():
                    case None:
                        self._heard()
                    case LeaseExpiredError() as ended:
                        raise ended
                    case error:
                        reason = str(error)
                        _events.warning("membership.not.renewed", node=self._node, reason=reason)
        finally:
            thread.close()

    async def _watch_registration(self, lease: Lease) -> None:
        """Until what hangs on the lease is gone: it has ended, or somebody deleted that."""
        await self._view.until(
            lambda: not self.registered and self._view.newest.revision > self.joined_revision
        )
        with contextlib.suppress(StoreUnavailableError):
            await lease.revoke()
        raise LeaseExpiredError(f"the registration of broker {self._node} was deleted")

    def _heard(self) -> None:
        """Note that the store answers, and whether that is news."""
        now = self._clock.monotonic()
        if now - self._renewed_at > self._late_s:
            self._back_at = now
        self._renewed_at = now

    async def _rejoin(self) -> None:
        """Register as another incarnation, and see it done; try until that is so."""
        while True:
            try:
                await self._wait_for_the_last_life()
                await self._register()
                break
            except (StoreUnavailableError, LeaseExpiredError, DuplicateBrokerError) as error:
                _events.error("membership.not.regained", node=self._node, reason=str(error))
                await asyncio.sleep(self.session_s / _RENEWALS)
        with contextlib.suppress(StoreUnavailableError, LeaseExpiredError):
            await self._view.reached(await self._claim_office(await self._view.read()))
        _events.info("membership.regained", node=self._node, epoch=self.broker_epoch)

    # --- leaving --------------------------------------------------------------------------------

    async def hand_over(self, timeout_s: float) -> None:
        """Let others lead what this broker leads; returns when they do, or after the timeout."""
        if not self.registered or len(self._view.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._view.change(
                    lambda image: (None, [leave(image, self._node)]),
                    {keys.leaving(self._node): self.lease},
                )
                while not may_stop(image := self._view.image, self._node):
                    await self._view.moved(image.revision)
        except (
            TimeoutError,
            StoreUnavailableError,
            LeaseExpiredError,
            UnknownBrokerError,
        ) as error:
            _events.warning("leaders.not.moved", node=self._node, reason=str(error) or "too slow")

    async def leave(self) -> None:
        """Give up the registration at once, so that nobody waits for the lease to end."""
        if self._lease is not None:
            try:
                await self._lease.revoke()
            except StoreUnavailableError as error:
                _events.warning("membership.not.ended", node=self._node, reason=str(error))
