"""One life of transactional clients and their broker, decided by a seed, and judged by value."""

from tests.simulation.transaction_broker import IN, OUT, PARTITIONS, Broker
from tests.simulation.transactional_clients import Client, Processor, Reader, Writer
from waystation.testing.checker import Verdict, check
from waystation.testing.history import Event
from waystation.testing.world import World
from waystation.transactions.settings import TransactionSettings

STORM_MS, CALM_MS, SETTLE_MS = 15_000, 60_000, 4_000


class Life:
    """A storm of faults, then calm in which everything must come right by itself."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.events: list[Event] = []
        chance = world.chance
        self.broker = Broker(world, TransactionSettings())
        flow = ("classic", "implicit", chance.choice(["classic", "implicit"]))
        names = [f"writer-{kind}-{n}" for n, kind in enumerate(flow)]
        self.clients: dict[str, Client] = {one: self._enlist(Writer, one) for one in names}
        for n in range(PARTITIONS):
            name = f"processor-{chance.choice(['classic', 'implicit'])}-{n}"
            self.clients[name] = self._enlist(Processor, name)
        self.reader = Reader(self.broker, "reader", self.events)
        self._unleash()

    def run(self) -> Verdict:
        """Live it: nothing may be found, nothing may hang, and something must have happened."""
        verdict = self.live()
        assert not verdict.findings, f"seed {self.world.seed}: {verdict.findings[:5]}"
        assert verdict.complete, "somebody did not read to the end"
        self._check_values()
        return verdict

    def live(self) -> Verdict:
        """Live it, and judge; what hangs raises."""
        self.world.run(STORM_MS)
        self._calm_down()
        self._settle()
        self.reader.finish()
        return check(self.events)

    # --- fate ---------------------------------------------------------------------------------

    def _enlist(self, kind: type[Client], name: str) -> Client:
        return kind(self.broker, name, self.events)

    def _unleash(self) -> None:
        world, chance, broker = self.world, self.world.chance, self.broker
        broker.dawdling = chance.choice([0.0, 0.02, 0.1])
        broker.append_failures = chance.choice([0.0, 0.002])
        broker.store.sync_s = chance.choice([0.005, 0.05])
        broker.marker_s = chance.choice([0.01, 0.3])
        loss, straggle = chance.choice([0.0, 0.005, 0.02]), chance.choice([0.0, 0.02])
        for faults in world.network.all_faults():
            faults.loss, faults.straggle = loss, straggle
        if chance.random() < 0.8:
            world.every(chance.uniform(1_000, 6_000), broker.crash)
        world.every(chance.uniform(500, 4_000), self._kill_a_client)
        world.every(chance.uniform(2_000, 6_000), self._raise_a_zombie)

    def _kill_a_client(self) -> None:
        name = self.world.chance.choice(list(self.clients))
        client = self.clients[name]
        if not self.broker.calm and client.node.alive:
            client.node.crash()
            pause_ms = self.world.chance.choice([10, 300, 3_000])
            self.world.after(pause_ms, lambda: self._bring_back(name))

    def _bring_back(self, name: str) -> None:
        self.clients[name] = self.clients[name].again()

    def _raise_a_zombie(self) -> None:
        """Another instance with the same transactional id, while the first one lives on."""
        name = self.world.chance.choice([one for one in self.clients if "zombie" not in one])
        zombie = f"{name}-zombie"
        if not self.broker.calm and zombie not in self.clients:
            self.clients[zombie] = self._enlist(type(self.clients[name]), zombie)

    def _calm_down(self) -> None:
        self.world.note("calm")
        self.broker.calm = True
        self.world.network.heal()
        for name, client in self.clients.items():
            if name.endswith("-zombie") and client.node.alive:
                client.node.crash()

    def _settle(self) -> None:
        """Writers come to an end, then processors."""
        for kind in (Writer, Processor):
            deadline_ms = self.world.now_ms + CALM_MS
            while busy := [
                name
                for name, one in self.clients.items()
                if isinstance(one, kind) and not one.is_done and "zombie" not in name
            ]:
                assert self.world.now_ms < deadline_ms, f"{busy} do not come to an end"
                self.world.run(200)
            self.world.run(SETTLE_MS)
            self.broker.input_is_over = True

    # --- afterwards ---------------------------------------------------------------------------

    def _check_values(self) -> None:
        """Each input is transformed once, none is left, nothing else is there."""
        inputs = self._rows(IN, 0)
        outputs = self._rows(OUT, 1)
        assert sorted(outputs) == sorted(inputs), set(outputs) ^ set(inputs)
        assert len(inputs) > 20, f"hardly anything happened: {len(inputs)}"

    def _rows(self, topic: str, word: int) -> list[str]:
        logs = (log for where, log in self.broker.store.logs.items() if where.topic == topic)
        return [row.split(" ")[word] for log in logs for _, row in log.visible(0)[0]]
