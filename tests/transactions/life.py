"""One life of some transactional ids, decided by a seed: a storm of faults, then calm.

Requests, answers, markers and their confirmations lie in one bag, from which fate draws: they
arrive in any order, late, twice or never.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.transactions.actors import Client, Holder
from tests.transactions.desk import Desk
from tests.transactions.partitions import Partition, Write
from tests.transactions.witness import Witness
from waystation.model.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.machines import Waiter
from waystation.transactions.commands import Add, Added, End, Init, MarkersDue
from waystation.transactions.records import EPOCH_MAX, Record, TransactionStored, TxnState
from waystation.transactions.settings import NO_LIMIT, TransactionSettings

STORM_STEPS, CALM_STEPS = 4_000, 20_000
Done = Callable[[object], None]


class Life:
    """Everything there is; ``run`` fails where something may not be."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        limit_ms = chance.choice([NO_LIMIT, NO_LIMIT, 3_000])
        self.timeout_ms = chance.choice([500, 5_000])
        self.prepares = chance.choice([0.0, 0.2, 0.5])
        self.calm = False
        names = [TopicPartition("orders", number) for number in range(3)]
        self.partitions = {name: Partition(name) for name in names}
        self.witness = Witness(self.partitions, limit_ms)
        settings = TransactionSettings(transaction_prepared_max_ms=limit_ms)
        self._bag: list[Callable[[], None]] = []
        self._next_id = 1_000
        self._instances = 0
        self._loss = chance.choice([0.0, 0.05, 0.15])
        self._repeats = chance.choice([0.0, 0.1])
        self._straggles = chance.choice([0.0, 0.1])
        self._crashes = chance.choice([0.0, 0.1, 0.3])
        self._commits = chance.choice([0.02, 0.15])
        self._late: deque[tuple[int, Callable[[], None]]] = deque()
        self._steps = 0
        self.desk = Desk(chance, settings, self.witness, self._order)
        self._names = [f"id-{number}" for number in range(chance.randint(1, 3))]
        if chance.random() < 0.4:
            self.desk.remember([self._nearly_exhausted(name) for name in self._names])
        self.holders: list[Holder] = []
        self._abandoned: set[str] = set()
        self.clients = {name: [self._new_client(name)] for name in self._names}
        self.transactions = 0

    def run(self) -> None:
        for _ in range(STORM_STEPS):
            self._step()
        self._calm_down()
        for _ in range(CALM_STEPS):
            if not self._bag and not self._late and self._has_come_to_rest():
                break
            self._step()
        self._rest()

    def _calm_down(self) -> None:
        """Some programs are never started again, and leave behind what they had begun."""
        self.calm = True
        for name, clients in self.clients.items():
            if self.chance.random() < 0.5:
                self._abandoned.add(name)
                for client in clients:
                    client.die()

    # --- steps --------------------------------------------------------------------------------

    def _step(self) -> None:
        self._steps += 1
        while self._late and self._late[0][0] <= self._steps:
            self._bag.append(self._late.popleft()[1])
        draw = self.chance.random()
        if draw < 0.45 and self._bag:
            self._deliver()
        elif draw < 0.45 + self._commits:
            self.desk.commit()
        elif draw < 0.75:
            self.desk.advance(self.chance.choice([1, 5, 10, 50]))
        elif draw < 0.992:
            self._let_somebody_act()
        elif self.calm:
            self._end_what_nobody_holds()
        else:
            self._strike()

    def _deliver(self) -> None:
        at = self.chance.randrange(len(self._bag))
        self._bag[at], self._bag[-1] = self._bag[-1], self._bag[at]
        self._bag.pop()()

    def _let_somebody_act(self) -> None:
        name = self.chance.choice(self._names)
        actors: list[Client | Holder] = [*self.clients[name], *self.holders]
        if actors:
            self.chance.choice(actors).act()
        living = [client for client in self.clients[name] if not client.is_over]
        if not living and name not in self._abandoned:
            living.append(self._new_client(name))
        self.clients[name] = living
        self.holders = [holder for holder in self.holders if not holder.is_over]

    def _strike(self) -> None:
        """A crash, another instance of a program, its death, or an operator."""
        name = self.chance.choice(self._names)
        draw = self.chance.random()
        if draw < self._crashes:
            self.desk.crash()
        elif draw < 0.6:
            self.clients[name].append(self._new_client(name))
        elif draw < 0.8:
            self.chance.choice(self.clients[name]).die()
        elif draw < 0.9:
            self._abort(name)

    def _end_what_nobody_holds(self) -> None:
        """The producer died before it could say that it had prepared: the operator finds it."""
        held = [holder.name for holder in self.holders]
        for one in self.desk.machine.list(self.desk.now, ["Prepared"]):
            if one.transactional_id not in held:
                self._abort(one.transactional_id)

    def _abort(self, name: str) -> None:
        """An operator looks, and aborts what was seen; it may be another by then, or over."""
        try:
            seen = self.desk.machine.describe(name)
        except TransactionalIdNotFoundError:
            return
        if seen.state not in ("Ongoing", "Prepared"):
            return
        who = seen.producer_id, seen.epoch
        self.witness.may_end(name, who, False)
        self.ask("end", End(name, *who, commit=False, bumps=True), lambda _: None)

    def _new_client(self, name: str) -> Client:
        self._instances += 1
        return Client(self, name, self._instances, modern=self.chance.random() < 0.7)

    def _nearly_exhausted(self, name: str) -> Record:
        epoch = ProducerEpoch(EPOCH_MAX - self.chance.randint(1, 12))
        return TransactionStored(
            name, self._fresh(), epoch, self.timeout_ms, TxnState.EMPTY, self.desk.now
        )

    def _fresh(self) -> ProducerId:
        self._next_id += 1
        return ProducerId(self._next_id)

    # --- the network --------------------------------------------------------------------------

    def send(self, deliver: Callable[[], None]) -> None:
        """Let it arrive some time, or twice, or never."""
        if self.calm:
            self._bag.append(deliver)
            return
        if self.chance.random() >= self._loss:
            self._put(deliver)
        if self.chance.random() < self._repeats:
            self._put(deliver)

    def _put(self, deliver: Callable[[], None]) -> None:
        if not self.calm and self.chance.random() < self._straggles:
            self._late.append((self._steps + 400, deliver))
        else:
            self._bag.append(deliver)

    def ask(
        self, event: str, command: Any, told: Done, may_arrive: Callable[[], bool] = lambda: True
    ) -> None:
        """A request to whoever coordinates when it arrives, and its answer."""

        def serve() -> None:
            if may_arrive():
                self._serve(event, command, lambda answer: self.send(lambda: told(answer)))

        self.send(serve)

    def _serve(self, event: str, command: Any, to: Waiter) -> None:
        machine = self.desk.machine
        if event == "outcome":
            name, producer_id, epoch = command
            self.desk.submit(lambda now: machine.outcome(now, name, producer_id, epoch, to))
            return
        if isinstance(command, Init | End):
            who = command.transactional_id, command.producer_id, command.epoch
            fresh = self._fresh() if machine.needs_id(*who) else None
            command = command._replace(fresh=fresh)
        decide = getattr(machine, event)
        self.desk.submit(lambda now: decide(now, command, to))

    # --- writes -------------------------------------------------------------------------------

    def produce(self, client: Client, partition: Partition, write: Write, told: Done) -> None:
        """As a broker does it: the coordinator is asked unless the transaction is open here."""
        name, who, modern = client.name, client.who, client.modern

        def answer(value: object) -> None:
            self.send(lambda: told(value))

        def arrive() -> None:
            if partition.holds(write):
                answer(None)
            elif partition.is_fenced(*who):
                answer(ProducerFencedError("an older epoch"))
            elif partition.in_transaction(*who):
                partition.append(*who, write)
                answer(None)
            else:
                guard = partition.markers(who[0])
                some = frozenset([partition.name])
                command = Add(name, *who, some, verify_only=not modern, implicit=modern)
                self.ask("add", command, lambda added: admitted(added, guard))

        def admitted(added: object, guard: int) -> None:
            problem = _refusal(added, partition)
            if problem is None and modern:
                self.witness.admitted(who, write.tag)
            if problem is None and not modern and guard != partition.markers(who[0]):
                problem = TransactionAbortableError("a marker came in between")
            if problem is None and partition.is_fenced(*who):
                problem = ProducerFencedError("an older epoch")
            if problem is None:
                partition.append(*who, write)
            answer(problem)

        self.send(arrive)

    def entrust(self, holder: Holder) -> None:
        self.holders.append(holder)

    # --- markers ------------------------------------------------------------------------------

    def _order(self, due: MarkersDue) -> None:
        """Each marker is written some time, perhaps twice; so is word of it.  None is lost.

        One that tells transactions apart by their epochs may come again at any time.
        """
        self.transactions += 1
        for name in due.partitions:
            self._bag.append(lambda name=name: self._write_marker(due, name))  # type: ignore[misc]

    def _write_marker(self, due: MarkersDue, name: TopicPartition) -> None:
        is_present = due.coordinator_epoch == self.desk.epoch
        partition = self.partitions[name]
        if is_present:
            self.witness.marked(due)
        elif not partition.end(due):
            return
        partition.end(due)
        if self.chance.random() < 0.1:
            partition.end(due, is_repeated=True)
        if due.bumped and self.chance.random() < 0.1:
            self._put(lambda: self._repeat_marker(due, name))
        for _ in range(2 if self.chance.random() < 0.2 else 1):
            self._put(lambda: self._confirm(due, name))

    def _repeat_marker(self, due: MarkersDue, name: TopicPartition) -> None:
        self.partitions[name].end(due, is_repeated=True)

    def _confirm(self, due: MarkersDue, name: TopicPartition) -> None:
        machine = self.desk.machine
        self.desk.submit(lambda now: machine.markers_written(now, due, [name]))

    # --- rest ---------------------------------------------------------------------------------

    def _has_come_to_rest(self) -> bool:
        clients = [client for some in self.clients.values() for client in some]
        return not self.holders and all(client.is_idle for client in clients)

    def _rest(self) -> None:
        """Nobody asks any more: what is left must end by itself."""
        assert not self.holders, "a prepared transaction could not be ended"
        for _ in range(20):
            self.desk.advance(self.timeout_ms)
            self._end_what_nobody_holds()
            while self._bag:
                self._deliver()
            self.desk.commit(all_of_it=True)
        assert not self._bag, "no rest"
        assert not self._late, "no rest"
        assert self._has_come_to_rest(), "somebody got no answer"
        self.witness.check_all()
        for state in self.desk.machine.list(self.desk.now):
            assert not state.state.startswith(("Prepare", "Ongoing")), f"{state} is left"


def _refusal(added: object, partition: Partition) -> WaystationError | None:
    if isinstance(added, WaystationError):
        return added
    assert isinstance(added, Added), added
    return added.errors[partition.name]
