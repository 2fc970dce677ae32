"""A coordinator without host, log or clock: every decision counts at once."""

from collections.abc import Callable, Sequence
from typing import Any

from waystation.model.errors import WaystationError
from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.transactions.commands import (
    Add,
    Added,
    End,
    Ended,
    Init,
    Initialised,
    MarkersDue,
    Prepare,
    TransactionOutcome,
)
from waystation.transactions.machine import Transactions
from waystation.transactions.records import Record, TransactionStored
from waystation.transactions.settings import TransactionSettings

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)
OFFSETS = TopicPartition("__consumer_offsets", 7)
START = Millis(1_700_000_000_000)
TIMEOUT_MS = 60_000
COORDINATOR_EPOCH = 4


class Pending:
    """Somebody who asked, and what was answered so far."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answer: object) -> None:
        self.answers.append(answer)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        """What was answered, once; raised if it is an error."""
        (answer,) = self.answers
        if isinstance(answer, WaystationError):
            raise answer
        return answer


class Coordinator:
    """Carries out what the machine decides; markers are written when a test says so."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now = START
        self.log: list[Record] = []
        self.due: list[MarkersDue] = []
        self._next_id = 1_000
        self.machine = self._machine()
        self._carry_out(self.machine.loaded(self.now))

    # --- fate ---------------------------------------------------------------------------------

    def reload(self) -> None:
        """Another coordinator, which knows what the log says and nothing else."""
        self.due.clear()
        self.machine = self._machine()
        for record in self.log:
            self.machine.apply(record)
        self._carry_out(self.machine.loaded(self.now))

    def wait(self, ms: int, ticks: int = -1) -> None:
        """Let time pass, with all that falls due in it, or so many ticks."""
        until = Millis(self.now + ms)
        while ticks and (at := self.machine.next_deadline()) is not None and at <= until:
            self.now = max(at, self.now)
            self._carry_out(self.machine.tick(self.now))
            ticks -= 1
        self.now = until

    def write_markers(self) -> list[MarkersDue]:
        """Write all that are due; what they were."""
        written, self.due = self.due, []
        for due in written:
            self.written(due)
        return written

    def written(self, due: MarkersDue, partitions: Sequence[TopicPartition] | None = None) -> None:
        some = due.partitions if partitions is None else partitions
        self._carry_out(self.machine.markers_written(self.now, due, some))

    # --- requests -----------------------------------------------------------------------------

    def fresh(self) -> ProducerId:
        self._next_id += 1
        return ProducerId(self._next_id)

    def ask_init(
        self,
        name: str = "t",
        was: tuple[ProducerId, ProducerEpoch] = (NO_PRODUCER, NO_PRODUCER_EPOCH),
        timeout_ms: int = TIMEOUT_MS,
    ) -> Pending:
        needs_id = self.machine.needs_id(name, *was)
        fresh = self.fresh() if needs_id else None
        return self.ask(self.machine.init, Init(name, timeout_ms, *was, fresh))

    def init(self, name: str = "t", timeout_ms: int = TIMEOUT_MS) -> Initialised:
        answer = self.ask_init(name, timeout_ms=timeout_ms).answer
        assert isinstance(answer, Initialised)
        return answer

    def ask_add(
        self,
        who: tuple[ProducerId, ProducerEpoch],
        *partitions: TopicPartition,
        name: str = "t",
        verify_only: bool = False,
        implicit: bool = False,
    ) -> Pending:
        some = frozenset(partitions or (ORDERS,))
        return self.ask(self.machine.add, Add(name, *who, some, verify_only, implicit))

    def add(
        self,
        who: tuple[ProducerId, ProducerEpoch],
        *partitions: TopicPartition,
        name: str = "t",
        implicit: bool = False,
    ) -> None:
        answer = self.ask_add(who, *partitions, name=name, implicit=implicit).answer
        assert isinstance(answer, Added)
        assert not any(answer.errors.values())

    def write(self, who: tuple[ProducerId, ProducerEpoch], *partitions: TopicPartition) -> None:
        """As Produce v12 does."""
        self.add(who, *partitions, implicit=True)

    def verify(
        self, who: tuple[ProducerId, ProducerEpoch], *partitions: TopicPartition
    ) -> dict[TopicPartition, type | None]:
        answer = self.ask_add(who, *partitions, verify_only=True).answer
        assert isinstance(answer, Added)
        return {one: None if error is None else type(error) for one, error in answer.errors.items()}

    def ask_end(
        self,
        who: tuple[ProducerId, ProducerEpoch],
        commit: bool = True,
        *,
        bumps: bool = False,
        name: str = "t",
    ) -> Pending:
        fresh = self.fresh() if self.machine.needs_id(name, *who) else None
        return self.ask(self.machine.end, End(name, *who, commit, bumps, fresh))

    def end(
        self,
        who: tuple[ProducerId, ProducerEpoch],
        commit: bool = True,
        *,
        bumps: bool = False,
    ) -> Ended:
        answer = self.ask_end(who, commit, bumps=bumps).answer
        assert isinstance(answer, Ended)
        return answer

    def prepare(self, who: tuple[ProducerId, ProducerEpoch], name: str = "t") -> object:
        return self.ask(self.machine.prepare, Prepare(name, *who)).answer

    def abort(self, name: str = "t") -> Ended:
        """As an operator does it: ends the transaction that was looked at, and no other."""
        found = self.machine.describe(name)
        answer = self.ask_end((found.producer_id, found.epoch), False, bumps=True, name=name).answer
        assert isinstance(answer, Ended)
        return answer

    def outcome(self, who: tuple[ProducerId, ProducerEpoch], name: str = "t") -> TransactionOutcome:
        pending = Pending()
        self._carry_out(self.machine.outcome(self.now, name, *who, pending))
        answer = pending.answer
        assert isinstance(answer, TransactionOutcome)
        return answer

    def state(self, name: str = "t") -> str:
        return self.machine.describe(name).state

    def stored(self, name: str = "t") -> TransactionStored:
        """The newest record of the id."""
        return next(
            record
            for record in reversed(self.log)
            if isinstance(record, TransactionStored) and record.transactional_id == name
        )

    # --- parts --------------------------------------------------------------------------------

    def ask(
        self, event: Callable[[Millis, Any, Waiter], Outcome[Record]], command: object
    ) -> Pending:
        pending = Pending()
        self._carry_out(event(self.now, command, pending))
        return pending

    def _machine(self) -> Transactions:
        return Transactions(lambda: self.settings, COORDINATOR_EPOCH, self._markers)

    def _markers(self, due: object) -> None:
        assert isinstance(due, MarkersDue)
        self.due.append(due)

    def _carry_out(self, outcome: Outcome[Record]) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.machine.apply(record)
        for to, answer in outcome.replies:
            to(answer)
