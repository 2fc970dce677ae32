"""A host and its log, simulated: decisions count when they are committed, and crashes cut.

The machine and its record format are the real ones.  Everything else is steps that fate takes
in an order of its own, so that thousands of them cost a second.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.transactions.witness import Witness
from waystation.broker.transaction_records import encode, read_rows
from waystation.model.errors import NotCoordinatorError
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.transactions.commands import MarkersDue
from waystation.transactions.machine import Transactions
from waystation.transactions.records import Record
from waystation.transactions.settings import TransactionSettings

Row = tuple[bytes, bytes | None]


class _Waiting(NamedTuple):
    end: int
    reply: Reply


class Desk:
    """One coordinator after the other, over one log."""

    def __init__(
        self,
        chance: Random,
        settings: TransactionSettings,
        witness: Witness,
        markers: Callable[[MarkersDue], None],
    ) -> None:
        self._chance, self._settings, self._witness = chance, settings, witness
        self._markers = markers
        self._log: list[list[Row]] = []
        self._committed = 0
        self._waiting: deque[_Waiting] = deque()
        self.now = Millis(1_700_000_000_000)
        self.epoch = 0
        self.machine = self._new_machine()
        self.submit(self.machine.loaded)

    def remember(self, records: list[Record]) -> None:
        """Put down what was there before this life began."""
        self._log.append([encode(record) for record in records])
        self._committed = len(self._log)
        self.crash()

    # --- what a host does ---------------------------------------------------------------------

    def submit(self, decide: Callable[[Millis], Outcome[Record]]) -> None:
        """Decide, append, apply; answers wait for the commit."""
        outcome = decide(self.now)
        if outcome.records:
            self._witness.decided(self.now, outcome.records)
            self._log.append([encode(record) for record in outcome.records])
            for record in outcome.records:
                self.machine.apply(record)
        end = len(self._log)
        self._waiting.extend(_Waiting(end, reply) for reply in outcome.replies)
        self._release()

    def advance(self, ms: int) -> None:
        """Let time pass, with all that falls due in it."""
        until = Millis(self.now + ms)
        while (at := self.machine.next_deadline()) is not None and at <= until:
            self.now = max(at, self.now)
            self.submit(self.machine.tick)
        self.now = until

    # --- fate ---------------------------------------------------------------------------------

    def commit(self, *, all_of_it: bool = False) -> None:
        """Some more of the log is safe."""
        end = len(self._log)
        self._committed = end if all_of_it else self._chance.randint(self._committed, end)
        self._release()

    def crash(self) -> None:
        """Another coordinator finds what was committed, and perhaps more."""
        del self._log[self._chance.randint(self._committed, len(self._log)) :]
        self._committed = len(self._log)
        told: list[Waiter] = [one.reply.to for one in self._waiting]
        told.extend(self.machine.abandon())
        self._waiting.clear()
        self._hang_up(told)
        if self._chance.random() < 0.3:
            self._compact()
        self.epoch += 1
        self.machine = self._new_machine()
        records = read_rows([(0, 0, *row, ()) for batch in self._log for row in batch])
        for record in records:
            self.machine.apply(record)
        self._witness.rebuilt(records)
        self.submit(self.machine.loaded)

    def _hang_up(self, told: list[Waiter]) -> None:
        """Those who waited are told, or hear nothing and ask again."""
        for to in dict.fromkeys(told):
            if to != self._ordered and self._chance.random() < 0.5:
                to(NotCoordinatorError("another one coordinates"))

    def _compact(self) -> None:
        newest = {
            key: (at, n) for at, rows in enumerate(self._log) for n, (key, _) in enumerate(rows)
        }
        self._log = [
            [row for n, row in enumerate(rows) if newest[row[0]] == (at, n)]
            for at, rows in enumerate(self._log)
        ]

    def _release(self) -> None:
        while self._waiting and self._waiting[0].end <= self._committed:
            to, answer = self._waiting.popleft().reply
            to(answer)

    def _new_machine(self) -> Transactions:
        return Transactions(lambda: self._settings, self.epoch, self._ordered)

    def _ordered(self, due: object) -> None:
        assert isinstance(due, MarkersDue), due
        self._markers(due)
