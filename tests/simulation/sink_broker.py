"""What a sink sees of a cluster: coordinators by the real machine, logs that know who wrote.

Whatever ends is judged at once: nothing may be committed that no record of a sink has decided,
nothing aborted that one has, and no row may become visible twice.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from tests.transactions.coordinator import START, Coordinator, Pending
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import TransactionalIdNotFoundError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.spark.sink_state import SinkState, mutex_id
from waystation.testing.virtual_time import Schedule
from waystation.transactions.commands import Add, MarkersDue, Prepare
from waystation.transactions.settings import TransactionSettings

SINK = "s"
ROWS = TopicPartition("out", 0)
LEDGER = TopicPartition("__waystation_sinks", 0)
TIMEOUT_MS = 20_000
MUTEX_TIMEOUT_MS = 3_000

Who = tuple[ProducerId, ProducerEpoch]


class BrokenPromiseError(AssertionError):
    """Rows were lost, doubled or shown too early."""


class Entry:
    """A record of the sink in the log, and whether its transaction has ended."""

    def __init__(self, producer_id: ProducerId, state: SinkState | None) -> None:
        self.producer_id, self.state = producer_id, state
        self.committed: bool | None = None


class Written(NamedTuple):
    """What one transaction holds."""

    name: str
    who: Who
    rows: list[str]


class Appending(Pending):
    """A write, which is appended when the coordinator admits it."""

    def __init__(self, append: Callable[[], None]) -> None:
        super().__init__()
        self._append = append

    def __call__(self, answer: object) -> None:
        if not isinstance(answer, WaystationError):
            self._append()
        super().__call__(answer)


class Broker(Coordinator):
    """One coordinator, the partition of the records, and the partition of the rows."""

    def __init__(self, schedule: Schedule, settings: TransactionSettings) -> None:
        self._schedule = schedule
        self.marker_delay_s: Callable[[], float] = lambda: 0.0
        self.ledger: list[Entry] = []
        self.open: dict[ProducerId, Written] = {}
        self.rows_of: dict[PreparedTransaction, list[str]] = {}
        self.seen: set[tuple[Who, int]] = set()
        self.visible: Counter[str] = Counter()
        self.decided: dict[PreparedTransaction, int] = {}
        self.aborted: set[PreparedTransaction] = set()
        self.lost_by_limit: list[str] = []
        self.broken: list[str] = []
        super().__init__(settings)

    # --- requests -----------------------------------------------------------------------------

    def initialise(self, name: str) -> Pending:
        self.pass_time()
        timeout_ms = MUTEX_TIMEOUT_MS if name == mutex_id(SINK) else TIMEOUT_MS
        return self.ask_init(name, timeout_ms=timeout_ms)

    def write_rows(self, name: str, who: Who, sequence: int, rows: list[str]) -> Pending:
        def append() -> None:
            if (who, sequence) not in self.seen:
                self.seen.add((who, sequence))
                written = self.open.setdefault(who[0], Written(name, who, []))
                assert written.who == who, f"{written} is open, and {who} writes"
                written.rows.extend(rows)

        return self._write(name, who, ROWS, append)

    def write_state(self, name: str, who: Who, state: SinkState | None) -> Pending:
        def append() -> None:
            if (who, 0) not in self.seen:
                self.seen.add((who, 0))
                self.ledger.append(Entry(who[0], state))

        return self._write(name, who, LEDGER, append)

    def prepare_rows(self, name: str, who: Who) -> Pending:
        self.pass_time()
        return self.ask(self.machine.prepare, Prepare(name, *who))

    def end_any(self, name: str, who: Who, commit: bool) -> Pending:
        self.pass_time()
        return self.ask_end(who, commit, bumps=True, name=name)

    def outcome_of(self, one: PreparedTransaction) -> str:
        self.pass_time()
        return self.outcome((one.producer_id, one.epoch), one.transactional_id).state

    def describe(self, name: str) -> tuple[str, Who] | None:
        self.pass_time()
        try:
            found = self.machine.describe(name)
        except TransactionalIdNotFoundError:
            return None
        return found.state, (found.producer_id, found.epoch)

    def listed(self) -> list[str]:
        self.pass_time()
        states = ("Ongoing", "Prepared")
        return [one.transactional_id for one in self.machine.list(self.now, states)]

    def is_stable(self, end: int) -> bool:
        """Whether all before ``end`` is shown to who reads committed records."""
        self.pass_time()
        return all(entry.committed is not None for entry in self.ledger[:end])

    def state_before(self, end: int) -> SinkState | None:
        shown = [entry for entry in self.ledger[:end] if entry.committed]
        return shown[-1].state if shown else None

    # --- time ---------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """Let fall due what has, up to this moment."""
        now = Millis(START + int(self._schedule.now_s * 1_000))
        if now > self.now:
            self.wait(now - self.now)

    # --- markers ------------------------------------------------------------------------------

    def _markers(self, due: object) -> None:
        assert isinstance(due, MarkersDue)
        self._judge(due)
        self.due.append(due)
        delay_s = self.marker_delay_s()
        asyncio.get_running_loop().call_later(delay_s, self._write_marker, due)

    def _write_marker(self, due: MarkersDue) -> None:
        if not any(one is due for one in self.due):
            return  # another coordinator has asked for it again since
        self.due = [one for one in self.due if one is not due]
        if LEDGER in due.partitions:
            for entry in self.ledger:
                if entry.producer_id == due.producer_id and entry.committed is None:
                    entry.committed = due.commit
        written = self.open.pop(due.producer_id, None)
        if written is not None and due.commit:
            self.visible.update(written.rows)
            if twice := [row for row, times in self.visible.items() if times > 1]:
                self._break(f"doubled: {twice}")
        self.written(due)

    def _judge(self, due: MarkersDue) -> None:
        """Look at a decision in the moment in which it is made."""
        if due.transactional_id == mutex_id(SINK):
            if due.commit:
                self._note_decided(due.producer_id)
            return
        written = self.open.get(due.producer_id)
        if written is None:
            return
        named = PreparedTransaction(written.name, *written.who)
        if due.commit and named not in self.decided:
            self._break(f"committed, though nobody decided it: {named}")
        if not due.commit:
            self.aborted.add(named)
            self.rows_of[named] = written.rows
            if named in self.decided:
                self._lost(named, written.rows)

    def _break(self, why: str) -> NoReturn:
        """Whoever asked may be dead by now: keep it for the end."""
        self.broken.append(why)
        raise BrokenPromiseError(why)

    def _lost(self, named: PreparedTransaction, rows: list[str]) -> None:
        if self.settings.transaction_prepared_max_ms < 0:
            self._break(f"aborted and decided: {named}")
        self.lost_by_limit += rows

    def _note_decided(self, producer_id: ProducerId) -> None:
        entry = next(
            one
            for one in reversed(self.ledger)
            if one.producer_id == producer_id and one.committed is None
        )
        if entry.state is not None:
            for one in entry.state.decided:
                if one in self.aborted and one not in self.decided:
                    self._lost(one, self.rows_of[one])
                batch = self.decided.setdefault(one, entry.state.batch)
                assert batch == entry.state.batch, f"{one} is in two batches"

    def _write(
        self, name: str, who: Who, where: TopicPartition, append: Callable[[], None]
    ) -> Pending:
        self.pass_time()
        appending = Appending(append)
        command = Add(name, *who, frozenset([where]), implicit=True)
        outcome: Any = self.machine.add(self.now, command, appending)
        self._carry_out(outcome)
        return appending
