"""The shell around the cluster's controller: who decides, when, and how it gets written.

Every broker would do it.  Whoever puts its name under the key ``controller`` first, on its own
lease, does; what is decided is in ``cluster/controller.py`` and depends on nothing but the image.

1. Every write compares the key: one who was replaced, and does not know, changes nothing.
2. Decisions that came too late are void, and made again on a newer image.
3. When the store was away for so long that leases may have ended, nobody who led is taken for
   dead until one lease's time after its return.
4. An election that may lose records is never silent.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from waystation.broker.membership import Membership
from waystation.broker.settings import BrokerSettings
from waystation.broker.view import ChangeLostError, ClusterView
from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.controller import ControllerSettings, Decisions, Leaderless, decisions
from waystation.cluster.draining import Stuck
from waystation.cluster.elections import UncleanElection
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import claim_controller
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.preferences import is_imbalanced
from waystation.cluster.values import PartitionValue, decode
from waystation.coordination.store import CoordinationStore
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError
from waystation.model.ids import NodeId, TopicId, uuid_of
from waystation.runtime.clock import Clock
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

_events = get_logger("controller")

# How old an image must be for what it leaves over to be litter.
_SWEEP_AFTER_S = 60.0
# What could not be done now is tried again this often, without waiting for a change.
_AGAIN_S = 0.5
_AFTER_FAILURE_S = 2.0
_UNCLEAN_KEPT = 100


class Controlling:
    """Decides while this broker is the controller, and tries to become it while nobody is."""

    def __init__(
        self,
        node: NodeId,
        store: CoordinationStore,
        view: ClusterView,
        membership: Membership,
        *,
        settings: Callable[[], BrokerSettings],
        policy_of: Callable[[ClusterImage], PolicyOf],
        internal: Callable[[], Mapping[str, int]],
        clock: Clock,
        registry: Registry,
    ) -> None:
        """``internal`` is how many replicas the cluster's own topics shall have."""
        self._node = node
        self._store = store
        self._view = view
        self._membership = membership
        self._settings = settings
        self._policy_of = policy_of
        self._internal = internal
        self._clock = clock
        self._epoch: int | None = None
        self._earlier = (0.0, ClusterImage())
        self._looked_at = 0.0
        self._pending = False
        self.leaderless: Sequence[Leaderless] = ()
        """Partitions that nobody leads, as this controller last saw it."""
        self.stuck: Sequence[Stuck] = ()
        """Replicas on drained nodes that nobody could take."""
        self.unclean: list[UncleanElection] = []
        """The last unclean elections that this controller wrote."""
        self._unclean = registry.counter(
            "waystation_unclean_leader_elections_total",
            "Elections of leaders that may lack committed records, made by this broker.",
        )
        self._elections = registry.counter(
            "waystation_leader_elections_total", "Elections of leaders made by this broker."
        )

    @property
    def active(self) -> bool:
        """Whether this broker decides, by what it has acted on."""
        office = self._view.image.controller
        return office is not None and office.node == self._node and self._membership.registered

    async def run(self) -> None:
        """Decide on every image, for as long as the node runs."""
        while True:
            image = self._view.newest
            try:
                await self._decide(image)
            except (StoreUnavailableError, LeaseExpiredError, ChangeLostError) as error:
                _events.warning("decisions.not.written", node=self._node, reason=str(error))
                self._pending = True
            except Exception as error:
                # Another image may be one that can be decided on, and somebody has to.
                _events.error("controller.failed", node=self._node, exc_info=error)
                self._pending = True
                await asyncio.sleep(_AFTER_FAILURE_S)
            await self._wait(image)

    async def _wait(self, image: ClusterImage) -> None:
        """Until there is a newer image, or something else to look at."""
        if self._pending:
            timeout_s = _AGAIN_S
        elif self._epoch is None:
            timeout_s = self._membership.session_s
        else:
            due = min(self._earlier[0] + _SWEEP_AFTER_S, self._looked_at + self._look_every_s)
            timeout_s = max(_AGAIN_S, due - self._clock.monotonic())
        try:
            async with asyncio.timeout(timeout_s):
                await self._view.heard(image.revision)
        except TimeoutError:
            return

    async def _decide(self, image: ClusterImage) -> None:
        self._pending = False
        office = image.controller
        if not self._membership.registered or (office and office.node != self._node):
            self._resign()
            return
        if office is None:
            self._resign()
            await self._claim(image)
            return
        if office.epoch != self._epoch:
            self._take_office(office.epoch, image)
        made = decisions(image, self._settings_for(image))
        await self._carry_out(image, made)
        self.leaderless, self.stuck = made.leaderless, made.stuck

    async def _claim(self, image: ClusterImage) -> None:
        if image.is_leaving(self._node):
            return
        lease = {keys.CONTROLLER: self._membership.lease}
        try:
            await self._view.write([claim_controller(image, self._node)], lease)
        except ChangeLostError:
            _events.debug("controller.is.another", node=self._node)

    def _take_office(self, epoch: int, image: ClusterImage) -> None:
        now = self._clock.monotonic()
        self._epoch, self._earlier, self._looked_at = epoch, (now, image), now
        _events.info("controller.elected", node=self._node, epoch=epoch)

    def _resign(self) -> None:
        if self._epoch is not None:
            _events.info("controller.resigned", node=self._node, epoch=self._epoch)
        self._epoch = None
        self.leaderless, self.stuck = (), ()

    @property
    def _look_every_s(self) -> float:
        return self._settings().leader_imbalance_check_interval_seconds

    def _settings_for(self, image: ClusterImage) -> ControllerSettings:
        """What is due now, beside what the image calls for at any time."""
        settings, now = self._settings(), self._clock.monotonic()
        prefer = False
        if now >= self._looked_at + self._look_every_s:
            self._looked_at = now
            percentage = settings.leader_imbalance_per_broker_percentage
            prefer = settings.auto_leader_rebalance_enable and is_imbalanced(image, percentage)
        earlier = None
        if now >= self._earlier[0] + _SWEEP_AFTER_S:
            earlier = self._earlier[1]
            self._earlier = (now, image)
        return ControllerSettings(
            node=self._node,
            policy_of=self._policy_of,
            moves_max=settings.reassignment_moves_max,
            share_machines=settings.replicas_share_machine,
            prefer=prefer,
            earlier=earlier,
            internal=self._internal(),
        )

    async def _carry_out(self, image: ClusterImage, made: Decisions) -> None:
        wanted = made.changes
        if self._membership.store_came_back:
            wanted = [each for each in wanted if not _declares_dead(image, each)]
            self._pending = True
        if not wanted:
            return
        written = await self._view.write_each(wanted, lambda: self._is_still(image))
        self._pending |= len(written) < len(wanted)
        self._report(image, made, written)

    async def _is_still(self, image: ClusterImage) -> bool:
        """Whether this broker holds its office as it did on ``image``."""
        found = (await self._store.get(keys.CONTROLLER)).items.get(keys.CONTROLLER)
        office = image.controller
        return found is not None and office is not None and found.version == office.version

    def _report(self, image: ClusterImage, made: Decisions, written: Sequence[Changes]) -> None:
        stored = {key: value for changes in written for key, value in changes.puts.items()}
        elections = sum(_elects(image, key, value) for key, value in stored.items())
        self._elections.add(elections)
        _events.info(
            "decisions.written",
            node=self._node,
            epoch=self._epoch,
            decisions=len(written),
            elections=elections,
        )
        for each in made.unclean:
            name, number = each.partition
            if keys.partition(image.topic(name).id, number) in stored:
                self.tell_unclean(each)

    def tell_unclean(self, election: UncleanElection) -> None:
        """Let operators know that somebody leads who may lack committed records."""
        self._unclean.add()
        self.unclean = [*self.unclean, election][-_UNCLEAN_KEPT:]
        _events.error(
            "election.unclean",
            partition=str(election.partition),
            leader=election.leader,
            epoch=election.epoch,
            missing=list(election.holders),
        )


def _declares_dead(image: ClusterImage, changes: Changes) -> bool:
    """Whether a decision replaces a leader because its registration is not there."""
    states = (_state_at(image, key) for key in changes.puts)
    leaders = (state.leader for state in states if state is not None)
    return any(leader is not None and leader not in image.brokers for leader in leaders)


def _elects(image: ClusterImage, key: str, value: bytes) -> bool:
    """Whether what is put there begins a new leader's term."""
    before = _state_at(image, key)
    if before is None:
        return False
    return decode(PartitionValue, key, value).leader_epoch > before.leader_epoch


def _state_at(image: ClusterImage, key: str) -> PartitionImage | None:
    """What ``image`` has of the partition whose state is at ``key``; none if it is another's."""
    match key.split("/"):
        case ["partitions", topic_id, number]:
            topic = image.topics_by_id.get(TopicId(uuid_of(topic_id)))
            if topic is not None and int(number) < len(topic.partitions):
                return topic.partitions[int(number)]
    return None
