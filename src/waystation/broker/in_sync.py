"""How a leader changes who is in sync: proposed here, decided by the coordination store.

Every little while, and whenever the cluster changed, each partition led here is looked at: who
keeps up (``replication/lag.py``), and which sets that makes (``cluster/in_sync_changes.py``).

1. A change compares the partition's state, this broker's registration, and that of whoever joins.
2. From before it is sent until the store's answer is known, what commits is held by both sets.  An
   answer that never came is no answer: the same change is sent again until one does.
3. Many partitions share a transaction; one that came too late holds up no other.
4. Copies whose disk failed are given up at once: nobody shall wait for them.
5. While the store is away nothing changes: the mark waits for the set that is written.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waystation.broker.replicas import Replicas
from waystation.broker.settings import BrokerSettings
from waystation.broker.view import ClusterView
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import Proposal, give_up, propose
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import PolicyOf
from waystation.coordination.store import CoordinationStore
from waystation.model.errors import StoreUnavailableError
from waystation.model.ids import NodeId
from waystation.model.offsets import Millis
from waystation.partition.partition import Partition
from waystation.replication.lag import Cluster, Paces
from waystation.replication.leader import LeaderState
from waystation.runtime.clock import Clock
from waystation.storage.directory import DataDirectory
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

_TICK_S: Final = 0.1
_EVERYONE_S: Final = 0.5
_PAUSE_S: Final = 0.2
_PARTITIONS_PER_TURN: Final = 50
_STORE_KEY: Final = "cluster"
_events = get_logger("replication")


class _Pending(NamedTuple):
    """A change on its way: settled when the partition has another version, or it was refused."""

    before: PartitionImage
    proposal: Proposal


class InSync:
    """The in-sync sets of all partitions that this broker leads."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        view: ClusterView,
        store: CoordinationStore,
        settings: Callable[[], BrokerSettings],
        policy_of: Callable[[ClusterImage], PolicyOf],
        directories: Sequence[DataDirectory],
        clock: Clock,
        registry: Registry,
    ) -> None:
        self._policy_of = policy_of
        self._directories = directories
        self._node = node
        self._replicas = replicas
        self._view = view
        self._store = store
        self._settings = settings
        self._clock = clock
        self._image = ClusterImage()
        self._cluster = Cluster((), {})
        self._pending: dict[Partition, _Pending] = {}
        self._changed = asyncio.Event()
        self._looked_s = 0.0
        self._shrinks = registry.counter(
            "waystation_isr_shrinks_total", "Times that a replica left the in-sync set here."
        )
        self._expands = registry.counter(
            "waystation_isr_expands_total", "Times that a replica joined the in-sync set here."
        )

    def follow(self, after: ClusterImage) -> None:
        """Act on a new image, once partitions are led as it says."""
        if after.brokers is not self._image.brokers or after.leaving is not self._image.leaving:
            self._changed.set()
        self._image = after
        self._cluster = Cluster(
            (),
            {one.id: one.epoch for one in after.brokers.values()},
            tuple(node for node in after.leaving if after.is_leaving(node)),
        )
        for partition, pending in list(self._pending.items()):
            now = self._state_of(partition)
            if now is None or now.version != pending.before.version:
                del self._pending[partition]
                self._tell(partition, pending, now)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self._wait()
            try:
                await self._round()
            except StoreUnavailableError as error:
                _events.debug("in_sync.not.changed", reason=str(error))
                await asyncio.sleep(_PAUSE_S)
            except Exception as error:  # the outermost frame of this task
                _events.error("in_sync.failed", exc_info=error)
                await asyncio.sleep(_PAUSE_S)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_TICK_S):
                await self._changed.wait()
        except TimeoutError:
            return

    # --- deciding -------------------------------------------------------------------------------

    async def _round(self) -> None:
        now_s = self._clock.monotonic()
        everyone = self._changed.is_set() or now_s - self._looked_s >= _EVERYONE_S
        self._changed.clear()
        if everyone:
            self._looked_s = now_s
        for number, partition in enumerate(self._replicas):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            state, paces = partition.state, partition.paces
            if state is None or paces is None:
                continue
            if everyone or self._may_grow(partition, state):
                self._look(partition, state, paces)
        if self._pending:
            await self._write()
        if everyone and any(one.offline is not None for one in self._directories):
            await self._give_up()

    def _may_grow(self, partition: Partition, state: LeaderState) -> bool:
        """Whether somebody who lives is not in sync: that one is waited for."""
        written, registered = state.in_sync.written, self._cluster.registered
        return len(written) < len(partition.leadership.replicas) and any(
            node in registered and node not in written for node in partition.leadership.replicas
        )

    async def _give_up(self) -> None:
        """Leave the sets of partitions whose copies here are out of reach."""
        policy = self._policy_of(self._image)
        given_up: list[Changes] = []
        for topic in self._image.topics.values():
            for number, state in enumerate(topic.partitions):
                if self._node in state.holders and self._is_lost(topic.name, number):
                    needed = policy(topic.name).min_insync
                    changes = give_up(self._image, topic, number, self._node, needed)
                    given_up += [] if changes is None else [changes]
        written = await self._view.write_each(given_up)
        if written:
            _events.error("replicas.given.up", count=len(written), reason="a disk has failed")
            await self._reach_store()

    def _is_lost(self, topic: str, number: int) -> bool:
        held = self._replicas.find(topic, number)
        return held is None or held.log.directory.offline is not None

    async def _reach_store(self) -> None:
        await self._view.reached((await self._store.get(_STORE_KEY)).revision)

    def _look(self, partition: Partition, state: LeaderState, paces: Paces) -> None:
        leadership, log_end = partition.leadership, partition.log_end
        now = Millis(int(self._clock.monotonic() * 1_000))
        cluster = self._cluster._replace(replicas=leadership.replicas)
        paces.lag_max_ms = self._settings().replica_lag_time_max_ms
        paces.refresh(log_end, now)
        if partition in self._pending:
            return
        partition.court(paces.candidates(state, cluster, log_end, now))
        wanted = paces.proposal(state, cluster, log_end, now)
        if wanted is None and leadership.eligible:
            # Enough are in sync, perhaps because fewer are needed now: let it be written.
            wanted = state.in_sync.written
        if wanted is not None:
            self._propose(partition, wanted, paces)

    def _propose(self, partition: Partition, wanted: tuple[NodeId, ...], paces: Paces) -> None:
        topic, before = self._image.topics_by_id.get(partition.topic_id), self._state_of(partition)
        if topic is None or before is None or before.leader != self._node:
            return
        heard = ((node, paces.life_of(node)) for node in wanted)
        lives = {node: life for node, life in heard if life is not None}
        proposal = propose(
            self._image,
            topic,
            partition.name.partition,
            wanted,
            lives,
            partition.settings.min_insync_replicas,
        )
        if proposal is not None:
            partition.propose(proposal.in_sync)
            self._pending[partition] = _Pending(before, proposal)

    def _state_of(self, partition: Partition) -> PartitionImage | None:
        topic, number = self._image.topics_by_id.get(partition.topic_id), partition.name.partition
        if topic is None or number >= len(topic.partitions):
            return None
        return topic.partitions[number]

    # --- writing --------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Ask for all changes that are not answered yet; then see which of them were refused."""
        asked = dict(self._pending)
        written = await self._view.write_each([one.proposal.changes for one in asked.values()])
        done = {id(changes) for changes in written}
        # What was refused is settled by what is read afterwards, and by nothing older: a change
        # that was sent before, and never answered, may have been stored meanwhile.
        await self._reach_store()
        for partition, pending in asked.items():
            if id(pending.proposal.changes) in done:
                continue
            if self._pending.get(partition) is pending:
                del self._pending[partition]
                partition.give_up_proposal()

    def _tell(self, partition: Partition, pending: _Pending, now: PartitionImage | None) -> None:
        if now is None or now.leader_epoch != pending.before.leader_epoch:
            return
        left = [node for node in pending.before.in_sync if node not in now.in_sync]
        joined = [node for node in now.in_sync if node not in pending.before.in_sync]
        self._shrinks.value += len(left)
        self._expands.value += len(joined)
        if left or joined:
            _events.info(
                "in_sync.changed",
                partition=str(partition.name),
                in_sync=list(now.in_sync),
                left=left,
                joined=joined,
            )
