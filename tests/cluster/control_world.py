"""A cluster that only decides: brokers, a store that compares and sets, and nothing in between.

Brokers act on images that may be old, several may believe that they decide, what they send may
be lost, come late or come twice.  Of the records there is only a count: how many are committed,
and how many each replica holds.  ``control_witness.py`` watches every change of the store.
"""

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from uuid import UUID

from tests.cluster.control_witness import Witness
from tests.cluster.items import Items

from waystation.cluster import keys
from waystation.cluster.changes import Changes, Transaction, in_batches
from waystation.cluster.controller import ControllerSettings, Decisions, decisions
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import propose
from waystation.cluster.membership import Condition, claim_controller, end_last_life, register
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.cluster.policies import PolicyOf, TopicPolicy
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId

MACHINES = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "d"}
RACKS = {"a": "left", "b": "left", "c": "right", "d": "right"}
SETTLES_WITHIN = 300


class Lease:
    """Keys that vanish together."""

    def __init__(self, owner: NodeId) -> None:
        self.owner = owner
        self.alive = True


class Broker:
    """One node: its process, what that has seen, and what it believes of itself."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.machine = MACHINES[node]
        self.running = True
        # What a crash lost is lost until a registration has said so, however many clean stops
        # come between.
        self.clean = True
        self.image = ClusterImage()
        self.lease: Lease | None = None
        self.asked_epoch: BrokerEpoch | None = None
        # What followers reported to this leader, and what it proposed, for one state's version.
        self.caught_up: dict[tuple[str, LeaderEpoch], dict[NodeId, BrokerEpoch]] = {}
        self.proposed: dict[tuple[str, int], list[tuple[NodeId, ...]]] = {}

    @property
    def life(self) -> BrokerEpoch | None:
        """The broker epoch under which it believes to be registered."""
        seen = self.image.brokers.get(self.node)
        return seen.epoch if seen and seen.epoch == self.asked_epoch else None

    def led(self) -> list[tuple[TopicImage, int]]:
        """What it believes to lead."""
        if not self.running or self.life is None:
            return []
        return [
            (topic, number)
            for topic in self.image.topics.values()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == self.node
        ]


class World:
    """All of it, by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.store = Items()
        self.leases: dict[str, Lease] = {}
        self.brokers = {NodeId(n): Broker(NodeId(n)) for n in MACHINES}
        self.images: list[ClusterImage] = [self.store.image]
        self.policies: dict[str, TopicPolicy] = defaultdict(TopicPolicy)
        self.late: list[tuple[Transaction, Lease | None, int | None]] = []
        self.committed: dict[str, int] = defaultdict(int)
        self.held: dict[str, dict[NodeId, int]] = defaultdict(lambda: defaultdict(int))
        self.witness = Witness(self)
        self.quiet = False
        self.loss = self.random.choice([0, 0.05, 0.2])
        self.delay = self.random.choice([0, 0.1, 0.4])

    # --- the store ----------------------------------------------------------------------------

    @property
    def now(self) -> ClusterImage:
        """What the store says, which nobody may have seen yet."""
        return self.store.image

    def send(
        self,
        changes: Iterable[Changes],
        lease: Lease | None = None,
        controller_epoch: int | None = None,
    ) -> None:
        """Bring decisions to the store; they may not arrive, or late, or twice.

        What compares nothing but absence is never repeated: it could not be told from a new wish.
        """
        for txn in in_batches(changes):
            luck = 1.0 if self.quiet else self.random.random()
            if luck < self.loss:
                continue
            arrives, again = luck >= self.loss + self.delay, luck < self.loss + self.delay + 0.05
            if not arrives or (again and any(txn.compares.values())):
                self.late.append((txn, lease, controller_epoch))
            if arrives:
                self.deliver(txn, lease, controller_epoch)

    def deliver(self, txn: Transaction, lease: Lease | None, controller_epoch: int | None) -> None:
        """The store does it, if all compares hold and the lease for it has not ended."""
        if txn.leased and (lease is None or not lease.alive):
            return
        before = self.now
        if self.store.txn(txn):
            for key in txn.leased:
                assert lease is not None
                self.leases[key] = lease
            self._changed(before, controller_epoch)

    def end(self, lease: Lease) -> None:
        """The lease ends, and its keys go at once."""
        if lease.alive:
            lease.alive = False
            gone = [key for key, each in self.leases.items() if each is lease]
            for key in gone:
                del self.leases[key]
            before = self.now
            self.store.txn(Transaction({}, {}, [k for k in gone if k in self.store.items], [], 0))
            self._changed(before, None)

    def _changed(self, before: ClusterImage, controller_epoch: int | None) -> None:
        self.images.append(self.now)
        self.witness.observe(before, self.now, controller_epoch)

    # --- brokers ------------------------------------------------------------------------------

    def policy_of(self, image: ClusterImage) -> PolicyOf:
        return lambda name: self.policies[name]

    def catch_up(self, broker: Broker, *, fully: bool = False) -> None:
        """See some of what happened since."""
        first, last = broker.image.revision, self.now.revision
        revision = last if fully else self.random.randint(first, last)
        broker.image = self.images[revision]
        if broker.life is not None:
            broker.clean = True

    def join(self, broker: Broker) -> None:
        """Register, after the last life was ended properly."""
        self.catch_up(broker, fully=True)
        if broker.life is not None or broker.node in broker.image.brokers:
            return
        if broker.lease is None or not broker.lease.alive:
            broker.lease = Lease(broker.node)
        policy = self.policy_of(broker.image)
        ending = end_last_life(broker.image, broker.node, policy, Condition(broker.clean))
        if ending:
            self.send(ending, broker.lease)
            return
        broker.asked_epoch, changes = register(
            broker.image,
            broker.node,
            "host",
            9092,
            RACKS[broker.machine],
            machine=broker.machine,
            clean=broker.clean,
        )
        self.send([changes], broker.lease)

    def decide(self, broker: Broker, *, prefer: bool) -> Decisions | None:
        """Do what a broker does that believes to be the controller, or could become it."""
        if broker.life is None:
            return None
        office = broker.image.controller
        if office is None:
            self.send([claim_controller(broker.image, broker.node)], broker.lease)
            return None
        made = decisions(broker.image, self.settings(broker, prefer=prefer))
        self.witness.told(made)
        together = self.quiet or self.random.random() < 0.5
        groups = [made.changes] if together else [[each] for each in made.changes]
        for group in groups:
            self.send(group, broker.lease, office.epoch)
        return made

    def settings(self, broker: Broker, *, prefer: bool) -> ControllerSettings:
        ago = 0 if self.quiet else 30
        earlier = self.images[max(0, broker.image.revision - ago)]
        return ControllerSettings(
            node=broker.node,
            policy_of=self.policy_of,
            moves_max=2,
            prefer=prefer,
            earlier=earlier,
        )

    def stop(self, broker: Broker, *, clean: bool) -> None:
        """The process ends; its lease does at once only if it was asked to stop."""
        broker.running, broker.clean = False, broker.clean and clean
        broker.caught_up, broker.proposed = {}, {}
        broker.asked_epoch = None
        if clean:
            if broker.lease is not None:
                self.end(broker.lease)
        else:
            self._lose_memory(broker.node)

    def start(self, broker: Broker) -> None:
        """A new process; it reads the store and knows nothing of its last life's lease."""
        broker.running, broker.lease = True, None
        broker.image = self.now

    # --- records ------------------------------------------------------------------------------

    def fetch(self, leader: Broker, topic: TopicImage, number: int, follower: Broker) -> bool:
        """The follower copies all that the leader has, if they agree on who leads."""
        key, state = keys.partition(topic.id, number), topic.partitions[number]
        seen = state_in(follower.image, topic.id, number)
        life = follower.life
        if not follower.running or life is None or seen is None:
            return False
        if (seen.leader, seen.leader_epoch) != (leader.node, state.leader_epoch):
            return False
        registered = leader.image.brokers.get(follower.node)
        if registered is not None and registered.epoch > life:
            return False
        self.held[key][follower.node] = self.held[key][leader.node]
        leader.caught_up.setdefault((key, state.leader_epoch), {})[follower.node] = life
        return True

    def commit(self, leader: Broker, topic: TopicImage, number: int) -> None:
        """One more record is on everyone who counts, if the rules let it commit."""
        key, state = keys.partition(topic.id, number), topic.partitions[number]
        proposed = leader.proposed.get((key, state.version), [])
        smallest = min(map(len, (state.in_sync, *proposed)))
        if smallest < self.policies[topic.name].min_insync or self.stands_still(state):
            return
        reached = leader.caught_up.setdefault((key, state.leader_epoch), {})
        members = list(dict.fromkeys([*state.in_sync, *(n for some in proposed for n in some)]))
        followers = [self.brokers[node] for node in members if node != leader.node]
        if not all(self.fetch(leader, topic, number, each) for each in followers):
            return
        held = self.held[key]
        end = held[leader.node] + 1
        for node in members:
            held[node] = end
        for node in [node for node in reached if node not in members]:
            del reached[node]
        self.witness.committing(key, state, end)

    def stands_still(self, state: PartitionImage) -> bool:
        """Nothing commits beside eligible leaders, however few must be in sync by now."""
        return bool(state.eligible)

    def change_in_sync(self, leader: Broker, topic: TopicImage, number: int, *, all_: bool) -> None:
        """Let some go and others come, as the leader knows them."""
        key, state = keys.partition(topic.id, number), topic.partitions[number]
        lives = leader.caught_up.get((key, state.leader_epoch), {})
        wanted = [n for n in state.replicas if all_ or self.random.random() < 0.7]
        wanted = [n for n in wanted if n in state.in_sync or n in lives]
        policy = self.policies[topic.name]
        proposal = propose(leader.image, topic, number, wanted, lives, policy.min_insync)
        if proposal is not None:
            # It counts from before it is sent until the state is another one: it may come late.
            leader.proposed.setdefault((key, state.version), []).append(proposal.in_sync)
            self.send([proposal.changes])

    def _lose_memory(self, node: NodeId) -> None:
        for topic in self.now.topics.values():
            if self.policies[topic.name].memory:
                for number in range(len(topic.partitions)):
                    self.held[keys.partition(topic.id, number)][node] = 0

    # --- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everyone come back, everything arrive and everyone act until nothing changes."""
        self.quiet = True
        self.late.clear()
        for broker in self.brokers.values():
            if self.now.is_leaving(broker.node) and broker.running:
                self.stop(broker, clean=True)
        for lease in dict.fromkeys(self.leases.values()):
            if not self.brokers[lease.owner].running or self.brokers[lease.owner].lease != lease:
                self.end(lease)
        for _ in range(SETTLES_WITHIN):
            before = self.now.revision
            self._everyone_acts()
            if self.now.revision == before:
                self.witness.settled()
                return
        raise AssertionError("does not settle: something changes for ever")

    def _everyone_acts(self) -> None:
        for broker in self.brokers.values():
            if not broker.running:
                self.start(broker)
            self.join(broker)
            self.catch_up(broker, fully=True)
        for broker in self.brokers.values():
            self.decide(broker, prefer=True)
            self.catch_up(broker, fully=True)
        for broker in self.brokers.values():
            for each in self.brokers.values():
                self.catch_up(each, fully=True)
            for topic, number in broker.led():
                for node in topic.partitions[number].replicas:
                    if node != broker.node:
                        self.fetch(broker, topic, number, self.brokers[node])
                self.change_in_sync(broker, topic, number, all_=True)

    def new_id(self) -> TopicId:
        return TopicId(UUID(int=self.random.getrandbits(128), version=4))


def state_in(image: ClusterImage, topic_id: TopicId, number: int) -> PartitionImage | None:
    """The partition's state by that image, if it has the partition."""
    topic = image.topics_by_id.get(topic_id)
    if topic is None or number >= len(topic.partitions):
        return None
    return topic.partitions[number]
