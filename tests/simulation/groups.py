"""One life of some groups, decided by a seed: who is in them, and what befalls everyone."""

from collections.abc import Sequence

from tests.simulation.coordinator import Cluster
from tests.simulation.members import Auditor, ClassicMember, Member, ServerSideMember
from tests.simulation.transactions import TransactionalClassic, TransactionalServerSide
from waystation.groups.settings import GroupSettings
from waystation.testing.world import World

STORM_MS, CALM_MS = 30_000, 15_000
_VERIFICATION_MS = 500
_TOPICS = {"orders": 6, "payments": 4}
CLASSIC, SERVER_SIDE = ClassicMember, ServerSideMember
TRANSACTIONAL, TRANSACTIONAL_SERVER_SIDE = TransactionalClassic, TransactionalServerSide


class Life:
    """A storm of faults, then calm in which everything must come right by itself."""

    def __init__(self, seed: int, kinds: Sequence[type[Member]], *, together: bool = False) -> None:
        """A group for each kind of member, or one of all kinds ``together``."""
        self.world = world = World(seed)
        chance = world.chance
        settings = GroupSettings(
            group_initial_rebalance_delay_ms=chance.choice([0, 500]),
            group_min_session_timeout_ms=1_000,
            group_consumer_session_timeout_ms=2_000,
            group_consumer_heartbeat_interval_ms=400,
        )
        self.cluster = Cluster(world, settings, _TOPICS)
        self.members: dict[str, Member] = {}
        for kind in kinds:
            for number in range(chance.randint(1, 4)):
                group = "everyone" if together else f"group-of-{kind.__name__}"
                self._enlist(f"{kind.__name__}-{number}", kind, group)
        Auditor(self.cluster, dict.fromkeys(one.group for one in self.members.values()))
        self._unleash()

    def run(self) -> None:
        """Live it; whatever is wrong raises."""
        self.world.run(STORM_MS)
        self._calm_down()
        self.world.run(CALM_MS)
        self._check_recovery()
        self.cluster.ledger.check_settled()
        self.cluster.resign_all()
        if self.cluster.ledger.in_use:
            self.world.run(_VERIFICATION_MS)  # who waits for another's word is answered then
        self.cluster.witness.all_answered()

    # --- fate -----------------------------------------------------------------------------------

    def _unleash(self) -> None:
        world, cluster, chance = self.world, self.cluster, self.world.chance
        loss = chance.choice([0.0, 0.005, 0.02])
        straggle = chance.choice([0.0, 0.02])
        cluster.shelf.sync_s = chance.choice([0.005, 0.05, 0.3])
        for faults in world.network.all_faults():
            faults.loss, faults.straggle = loss, straggle
        for blow in (cluster.crash_leader, cluster.hand_over, cluster.fail_appends):
            if chance.random() < 0.7:
                world.every(chance.uniform(1_000, 10_000), blow)
        world.every(chance.uniform(1_500, 8_000), self._replace_a_member)
        if chance.random() < 0.5:
            world.every(5_000, self._cut_off_a_member)
        if chance.random() < 0.5:
            world.after(chance.uniform(2_000, 25_000), lambda: cluster.grow("orders"))

    def _calm_down(self) -> None:
        self.world.note("calm")
        self.cluster.calm = True
        self.world.network.heal()

    def _enlist(self, name: str, kind: type[Member], group: str) -> None:
        chance = self.world.chance
        topics = chance.choice([["orders"], ["orders", "payments"]])
        instance = f"static-{name}" if chance.random() < 0.3 else None
        self.members[name] = kind(self.cluster, name, group, topics, instance)

    def _replace_a_member(self) -> None:
        if self.cluster.calm:
            return
        name = self.world.chance.choice(list(self.members))
        member = self.members[name]
        if member.node.alive:
            member.node.crash()
            pause_ms = self.world.chance.choice([50, 500, 3_000])
            self.world.after(pause_ms, lambda: self._bring_back(name))

    def _bring_back(self, name: str) -> None:
        """The same program again, without any memory but its static name."""
        gone = self.members[name]
        gone.node.restart()
        self.members[name] = type(gone)(self.cluster, name, gone.group, gone.topics, gone.instance)

    def _cut_off_a_member(self) -> None:
        if self.cluster.calm:
            return
        name = self.world.chance.choice(list(self.members))
        for coordinator in self.cluster.coordinators:
            self.world.network.faults(name, coordinator.node.name).cut = True
            self.world.network.faults(coordinator.node.name, name).cut = True
        self.world.after(self.world.chance.uniform(200, 3_000), lambda: self._reconnect(name))

    def _reconnect(self, name: str) -> None:
        for coordinator in self.cluster.coordinators:
            self.world.network.faults(name, coordinator.node.name).cut = False
            self.world.network.faults(coordinator.node.name, name).cut = False

    # --- afterwards -----------------------------------------------------------------------------

    def _check_recovery(self) -> None:
        """Every partition that somebody subscribes to has one reader, who gets on."""
        groups: dict[str, list[Member]] = {}
        for member in self.members.values():
            groups.setdefault(member.group, []).append(member)
        for group, members in groups.items():
            self._check_group(group, members)

    def _check_group(self, group: str, members: list[Member]) -> None:
        owned = [place for member in members for place in member.owned]
        assert len(set(owned)) == len(owned), f"{group}: {sorted(owned)} are read twice in calm"
        for topic in dict.fromkeys(topic for member in members for topic in member.topics):
            seen = self.cluster.topics.named(topic)
            assert seen is not None, f"{topic} is no topic"
            read = sorted(number for name, number in owned if name == topic)
            assert read == list(range(seen.partitions)), f"{group} reads only {read} of {topic}"
        busy = [member for member in members if member.owned]
        for member in busy:
            quiet_ms = self.world.now_ms - member.committed_at_ms
            assert quiet_ms < 8_000, f"{member.who} has committed nothing for {quiet_ms} ms"
