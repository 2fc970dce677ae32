"""Who watches every change of a simulated cluster's store, and what must be true of each.

Each invariant has a name, so that a failing seed says what was broken.
"""

from typing import TYPE_CHECKING

from waystation.cluster import keys
from waystation.cluster.controller import Decisions, decisions
from waystation.cluster.draining import held
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId

if TYPE_CHECKING:
    from tests.cluster.control_world import World


class BrokenError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"{name}: {why}")


def hold(condition: object, name: str, why: object) -> None:
    """Fail under the invariant's name unless ``condition`` is true."""
    if not condition:
        raise BrokenError(name, str(why))


class Witness:
    """Remembers who led what, and compares every image with the one before."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.leaders: dict[tuple[str, LeaderEpoch], NodeId] = {}
        self.lives: dict[tuple[str, LeaderEpoch], BrokerEpoch] = {}
        self.asked_unclean: set[str] = set()
        self.reported: set[tuple[str, LeaderEpoch]] = set()
        self.seen: dict[str, int] = {}

    def told(self, made: Decisions) -> None:
        """What the controller reports, and that its decisions do not get into each other's way."""
        written = [key for each in made.changes for key in (*each.puts, *each.deletes)]
        hold(len(written) == len({*written}), "no key is written twice in one round", written)
        for each in made.unclean:
            self.reported.add((str(each.partition), each.epoch))
            self.count("unclean elections")

    def count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def committing(self, key: str, state: PartitionImage, end: int) -> None:
        """A leader says that ``end`` records are committed; given up ones do not count."""
        now = {
            keys.partition(topic.id, number): partition
            for topic in self.world.now.topics.values()
            for number, partition in enumerate(topic.partitions)
        }
        if key in now and state.leader_epoch >= now[key].unclean_epoch:
            self.world.committed[key] = max(self.world.committed[key], end)
            self.count("commits")
            self._holders_hold_everything(self.world.now, key, now[key])

    def observe(
        self, before: ClusterImage, after: ClusterImage, controller_epoch: int | None
    ) -> None:
        """One transaction happened."""
        if controller_epoch is not None:
            office = before.controller
            hold(
                office is not None and office.epoch == controller_epoch,
                "only the controller decides",
                f"{office} now, {controller_epoch} wrote",
            )
        for node in after.brokers:
            if node not in before.brokers:
                self._allow_last_holder(after, node)
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            for number, partition in enumerate(topic.partitions):
                key = keys.partition(topic_id, number)
                was = old.partitions[number] if old and number < len(old.partitions) else None
                if was is not None and was.version != partition.version:
                    self._compare(topic, number, was, partition)
                self._check(after, topic, number, key, partition)
        self._moves_end_at_their_target(before, after)

    def _allow_last_holder(self, after: ClusterImage, node: NodeId) -> None:
        """Where one is the last who could know, what it has lost is lost."""
        for topic in after.topics.values():
            for number, partition in enumerate(topic.partitions):
                key = keys.partition(topic.id, number)
                if self.world.policies[topic.name].memory and partition.holders == (node,):
                    self.world.committed[key] = self.world.held[key][node]

    def _compare(
        self, topic: TopicImage, number: int, was: PartitionImage, now: PartitionImage
    ) -> None:
        key, what = keys.partition(topic.id, number), f"{topic.name}-{number}: {was} -> {now}"
        hold(now.leader_epoch >= was.leader_epoch, "leader epochs only grow", what)
        hold(now.partition_epoch > was.partition_epoch, "partition epochs only grow", what)
        if now.leader != was.leader:
            hold(now.leader_epoch > was.leader_epoch, "a leader has an epoch of its own", what)
            self.count("elections")
        if now.leader_epoch > was.leader_epoch and now.leader is not None:
            if now.leader in was.holders:
                self.count("eligible elections" if now.leader in was.eligible else "terms")
                return
            allowed = self.world.policies[topic.name].unclean or key in self.asked_unclean
            hold(allowed, "nobody is elected who may lack records", what)
            hold(now.unclean_epoch == now.leader_epoch, "an unclean election is remembered", what)
            named = (f"{topic.name}-{number}", now.leader_epoch) in self.reported
            hold(named or key in self.asked_unclean, "an unclean election is reported", what)
            self.world.committed[key] = self.world.held[key][now.leader]

    def _check(
        self, image: ClusterImage, topic: TopicImage, number: int, key: str, now: PartitionImage
    ) -> None:
        what = f"{topic.name}-{number}: {now}"
        if now.leader is not None:
            hold(now.leader in now.in_sync, "a leader is in sync", what)
            term = key, now.leader_epoch
            first = self.leaders.setdefault(term, now.leader)
            hold(first == now.leader, "one leader per epoch", f"{what}, {first} was")
            if now.leader in image.brokers:
                life = image.brokers[now.leader].epoch
                hold(
                    self.lives.setdefault(term, life) == life,
                    "one life of a leader per epoch",
                    f"{what}, life {self.lives[term]} was, {life} is",
                )
        hold({*now.holders} <= {*now.replicas}, "only replicas are in a set", what)
        hold(not {*now.in_sync} & {*now.eligible}, "nobody is in both sets", what)
        self._holders_hold_everything(image, key, now)
        if image.reassignment(topic.id, number) is None:
            machines = [self.world.brokers[node].machine for node in now.replicas]
            hold(len({*machines}) == len(machines), "no two replicas on one machine", what)

    def _holders_hold_everything(self, image: ClusterImage, key: str, now: PartitionImage) -> None:
        for node in now.holders:
            broker, registered = self.world.brokers[node], image.brokers.get(node)
            # A registration may outlive its process: the next one leaves the sets first.
            if broker.running and registered and registered.epoch == broker.asked_epoch:
                has, all_ = self.world.held[key][node], self.world.committed[key]
                hold(has >= all_, "who may lead holds everything", f"{node}: {has}/{all_} {now}")

    def _moves_end_at_their_target(self, before: ClusterImage, after: ClusterImage) -> None:
        for topic_id, some in before.reassignments.items():
            topic = after.topics_by_id.get(topic_id)
            for number, moving in some.items():
                if topic is not None and after.reassignment(topic_id, number) is None:
                    has = topic.partitions[number].replicas
                    hold(has == moving.target, "a move ends with its target", f"{has} {moving}")
                    self.count("moves")

    def settled(self) -> None:
        """Everyone is there and nothing changes any more."""
        world, image = self.world, self.world.now
        hold(image.controller is not None, "somebody decides", image.controller)
        assert image.controller is not None
        decider = world.brokers[image.controller.node]
        left = decisions(image, world.settings(decider, prefer=True))
        hold(not left.changes, "what is decided is done", left.changes)
        hold(not image.reassignments, "moves come to an end", image.reassignments)
        hold(not image.strays, "litter is swept up", image.strays)
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                what = f"{topic.name}-{number}: {partition}"
                hold(partition.leader is not None, "everything is led in the end", what)
                hold({*partition.in_sync} == {*partition.replicas}, "all get in sync", what)
        # Two machines fewer are too few for three replicas, and then it must be said.
        stuck = {each.node for each in left.stuck}
        hold(not stuck or len(image.drains) > 1, "what can move moves", left.stuck)
        for node in image.drains:
            empty = held(image, node) == (0, 0)
            hold(empty or node in stuck, "a drained node ends empty", f"{node}: {image.drains}")
            self.count("drained nodes")


def partition_keys(image: ClusterImage) -> list[tuple[TopicId, int]]:
    """Every partition there is."""
    return [(t.id, n) for t in image.topics.values() for n in range(len(t.partitions))]
