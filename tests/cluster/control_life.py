"""What happens in a simulated cluster: faults, operators and brokers, in the order of a seed."""

from collections.abc import Callable

from tests.cluster.control_world import Broker, World

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.draining import drain, leave, may_stop, undrain
from waystation.cluster.elections import elect_preferred, elect_unclean
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.reassignment import cancel, reassign, under_way
from waystation.cluster.topics import (
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    add_partitions,
    create_topics,
    delete_topic,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId

RUNNING_MIN = 2


class Life:
    """Steps of a world, one at a time."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.topics_max = self.random.choice([1, 1, 3])
        self.partitions_max = self.random.choice([1, 1, 3])
        self._steps: list[tuple[Callable[[Broker], None], int]] = [
            (self._sees, 50),
            (self._joins, 10),
            (self._decides, 30),
            (self._leads, 60),
            (self._something_comes_late, 12),
            (self._dies, 2),
            (self._starts, 6),
            (self._is_expelled, 3),
            (self._restarts_at_once, 4),
            (self._wants_to_leave, 1),
            (self._creates, 6),
            (self._deletes, 1),
            (self._grows, 1),
            (self._reassigns, 6),
            (self._cancels, 1),
            (self._drains, 2),
            (self._elects, 2),
            (self._changes_the_minimum, 3),
        ]

    def run(self, steps: int) -> World:
        """Live, and come to rest."""
        self._begin()
        acts = [act for act, _ in self._steps]
        # Every life has a mood: what never happens in one happens all the time in another.
        weights = [weight * self.random.choice([0.3, 1, 3]) for _, weight in self._steps[:4]]
        weights += [weight * self.random.choice([0, 0.3, 1, 3]) for _, weight in self._steps[4:]]
        brokers = list(self.world.brokers.values())
        for _ in range(steps):
            self.random.choices(acts, weights)[0](self.random.choice(brokers))
        self.world.settle()
        return self.world

    def _begin(self) -> None:
        self.world.quiet = True
        brokers = list(self.world.brokers.values())
        for broker in brokers:
            self.world.join(broker)
            self.world.catch_up(broker, fully=True)
        for _ in range(self.topics_max):
            self._creates(brokers[-1])
        self.world.quiet = False

    # --- brokers ------------------------------------------------------------------------------

    def _sees(self, broker: Broker) -> None:
        if broker.running:
            self.world.catch_up(broker, fully=self.random.random() < 0.6)

    def _joins(self, broker: Broker) -> None:
        if broker.running and broker.life is None:
            self.world.join(broker)
            self.world.catch_up(broker, fully=True)

    def _decides(self, broker: Broker) -> None:
        """Rather one who believes to be the controller, if there is one."""
        believers = [
            each
            for each in self.world.brokers.values()
            if each.image.controller and each.image.controller.node == each.node
        ]
        chosen = self.random.choice(believers) if believers else broker
        if chosen.running:
            self.world.decide(chosen, prefer=self.random.random() < 0.3)

    def _leads(self, _: Broker) -> None:
        leaders = [each for each in self.world.brokers.values() if each.led()]
        if not leaders:
            return
        broker = self.random.choice(leaders)
        if self.random.random() < 0.6:
            self.world.catch_up(broker, fully=True)
        led = broker.led()
        if not led:
            return
        topic, number = self.random.choice(led)
        for node in topic.partitions[number].replicas:
            if node != broker.node and self.random.random() < 0.7:
                self.world.fetch(broker, topic, number, self.world.brokers[node])
        self.world.commit(broker, topic, number)
        if self.random.random() < 0.3:
            everyone = self.random.random() < 0.5
            self.world.change_in_sync(broker, topic, number, all_=everyone)

    # --- faults -------------------------------------------------------------------------------

    def _something_comes_late(self, _: Broker) -> None:
        late = self.world.late
        for _ in range(len(late) if self.random.random() < 0.3 else 1):
            if late:
                self.world.deliver(*late.pop(self.random.randrange(len(late))))

    def _dies(self, broker: Broker) -> None:
        running = [each for each in self.world.brokers.values() if each.running]
        if broker.running and len(running) > RUNNING_MIN:
            self.world.stop(broker, clean=self.random.random() < 0.3)

    def _starts(self, broker: Broker) -> None:
        if not broker.running:
            self.world.start(broker)

    def _is_expelled(self, broker: Broker) -> None:
        """Its lease ends: for one who died that was due, for another it is a surprise."""
        leases = [each for each in self.world.leases.values() if each.owner == broker.node]
        if leases and (not broker.running or self.random.random() < 0.4):
            self.world.end(leases[0])

    def _restarts_at_once(self, broker: Broker) -> None:
        """It is back before anybody has seen that it was away; so is what the network held up."""
        if broker.running and broker.life is not None and broker.lease is not None:
            self.world.stop(broker, clean=False)
            self.world.end(broker.lease)
            self.world.start(broker)
            for _ in range(3):
                self.world.join(broker)
            self.world.catch_up(broker, fully=True)
            self._something_comes_late(broker)

    def _wants_to_leave(self, broker: Broker) -> None:
        if broker.life is None or not broker.running:
            return
        if self.world.now.is_leaving(broker.node):
            if may_stop(broker.image, broker.node):
                self.world.stop(broker, clean=True)
        else:
            self.world.send([leave(broker.image, broker.node)], broker.lease)

    # --- operators ----------------------------------------------------------------------------

    def _ask(self, decide: Callable[[], Changes]) -> None:
        """What is refused is refused: an operator hears it."""
        try:
            changes = decide()
        except WaystationError:
            return
        self.world.send([changes])

    def _creates(self, broker: Broker) -> None:
        image = broker.image
        if len(self.world.now.topics) >= self.topics_max:
            return
        name = f"t{self.random.randrange(10_000)}"
        factor = self.random.choice([1, 2, 3, 3])
        least = self.random.randint(1, 2) if factor > 1 else 1
        memory, unclean = self.random.random() < 0.4, self.random.random() < 0.3
        spec = TopicSpec(name, self.random.randint(1, self.partitions_max), factor)
        self.world.policies[name] = TopicPolicy(least, memory, unclean)
        made = create_topics(image, [spec], TopicDefaults(), self.world.new_id)[name]
        if isinstance(made, TopicPlan):
            self.world.send([made.changes])

    def _deletes(self, broker: Broker) -> None:
        topics = list(broker.image.topics.values())
        if topics and self.random.random() < 0.5:
            self.world.send([delete_topic(self.random.choice(topics))])

    def _grows(self, broker: Broker) -> None:
        names = list(broker.image.topics)
        if names:
            name = self.random.choice(names)
            count = len(broker.image.topics[name].partitions) + 1
            if count <= self.partitions_max:
                self._ask(lambda: add_partitions(broker.image, name, count))

    def _reassigns(self, broker: Broker) -> None:
        moving = [each.partition for each in under_way(broker.image)]
        again = self.random.choice(moving) if moving and self.random.random() < 0.5 else None
        picked = again or self._pick(broker)
        if picked is None:
            return
        by_machine: dict[str, NodeId] = {}
        nodes = list(self.world.brokers)
        self.random.shuffle(nodes)
        for node in nodes:
            by_machine.setdefault(self.world.brokers[node].machine, node)
        target = list(by_machine.values())[: self.random.randint(1, 3)]
        self._ask(lambda: reassign(broker.image, *picked, target))

    def _cancels(self, broker: Broker) -> None:
        picked = self._pick(broker)
        if picked is not None:
            self._ask(lambda: cancel(broker.image, *picked))

    def _drains(self, broker: Broker) -> None:
        """One node at a time: two machines fewer would be too few for three replicas."""
        now = self.world.now
        if now.drains:
            node = next(iter(now.drains))
            if self.random.random() < 0.3:
                self._ask(lambda: undrain(now, node))
        elif broker.life is not None:
            self._ask(lambda: drain(now, broker.node))

    def _changes_the_minimum(self, broker: Broker) -> None:
        """``min.insync.replicas`` is another one at once, for everybody."""
        names = list(broker.image.topics)
        if names:
            name = self.random.choice(names)
            least = self.random.randint(1, 2)
            self.world.policies[name] = self.world.policies[name]._replace(min_insync=least)

    def _elects(self, broker: Broker) -> None:
        """Only the controller's broker is asked, and guards it as its own decision."""
        office, picked = broker.image.controller, self._pick(broker)
        if office is None or office.node != broker.node or picked is None or not broker.running:
            return
        guard = {keys.CONTROLLER: office.version}
        name, number = picked
        try:
            if self.random.random() < 0.8:
                changes = elect_preferred(broker.image, name, number)
            else:
                policy = self.world.policies[name]
                changes, told = elect_unclean(broker.image, name, number, policy)
                if told is not None:
                    topic = broker.image.topic(name)
                    self.world.witness.asked_unclean.add(keys.partition(topic.id, number))
        except WaystationError:
            return
        self.world.send([changes.guarded(guard)], broker.lease, office.epoch)

    def _pick(self, broker: Broker) -> tuple[str, int] | None:
        topics = list(broker.image.topics.values())
        if not topics:
            return None
        topic = self.random.choice(topics)
        return topic.name, self.random.randrange(len(topic.partitions))
