"""What is known of all transactional ids of one coordinator, as its records say; nothing decides.

Ids lie in the order in which they were last heard of, and outcomes in the order in which they
came, so that those who have expired lie in front.
"""

from collections.abc import Iterator
from typing import Final

from waystation.model.deadlines import Deadlines
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis
from waystation.transactions.lifecycle import is_idle
from waystation.transactions.producers import NO_TIMEOUT_MS
from waystation.transactions.records import (
    OutcomeForgotten,
    OutcomeStored,
    Record,
    TransactionForgotten,
    TransactionStored,
    TxnState,
)

OutcomeKey = tuple[str, ProducerId, ProducerEpoch]

SWEEP_MAX: Final = 1_000
"""How many are forgotten at once, so that others are served in between."""


class Book:
    """Transactional ids and outcomes, and when the ongoing transactions have timed out."""

    __slots__ = ("_by_producer", "outcomes", "prepared", "states", "timeouts")

    def __init__(self) -> None:
        self.states: dict[str, TransactionStored] = {}
        self.outcomes: dict[OutcomeKey, OutcomeStored] = {}
        self.prepared: dict[str, Millis] = {}
        """Since when, longest first."""
        self.timeouts = Deadlines()
        self._by_producer: dict[ProducerId, str] = {}

    def apply(self, record: Record) -> None:
        """Take over one record.

        HOT: four or five times per transaction, and at each load
        (benchmarks/coordinators/transactions.py).
        """
        match record:
            case TransactionStored():
                self._store(record)
            case TransactionForgotten(transactional_id):
                self._forget(transactional_id)
            case OutcomeStored():
                self.outcomes[record[:3]] = record
            case OutcomeForgotten():
                self.outcomes.pop((*record,), None)

    def of_producer(self, producer_id: ProducerId) -> TransactionStored | None:
        """The transactional id that the producer writes for."""
        transactional_id = self._by_producer.get(producer_id)
        return None if transactional_id is None else self.states[transactional_id]

    def expired(self, before: Millis, outcomes_before: Millis) -> list[Record]:
        """What to forget: ids that were idle since ``before`` and what ended long enough ago."""
        return [*self._idle_since(before), *self._ended_before(outcomes_before)]

    def _idle_since(self, before: Millis) -> Iterator[Record]:
        count = 0
        for transactional_id, state in self.states.items():
            if state.updated_at > before or count >= SWEEP_MAX:
                return
            if is_idle(state):
                count += 1
                yield TransactionForgotten(transactional_id)

    def _ended_before(self, before: Millis) -> Iterator[Record]:
        for count, (key, outcome) in enumerate(self.outcomes.items()):
            if outcome.at > before or count >= SWEEP_MAX:
                return
            yield OutcomeForgotten(*key)

    def _store(self, record: TransactionStored) -> None:
        transactional_id = record.transactional_id
        self._forget(transactional_id, record.producer_id)
        self.states[transactional_id] = record
        self._by_producer[record.producer_id] = transactional_id
        if record.is_prepared:
            self.prepared[transactional_id] = record.prepared_at
            self.timeouts.cancel(transactional_id)
        elif record.state is TxnState.ONGOING and record.timeout_ms != NO_TIMEOUT_MS:
            self.timeouts.set(transactional_id, Millis(record.started_at + record.timeout_ms))
        else:
            self.timeouts.cancel(transactional_id)

    def loaded(self, now: Millis) -> None:
        """Let nothing last longer because the clock of the coordinator before was ahead.

        Its time-out counts from now then: it had begun by now, whatever was written.
        """
        for transactional_id, state in self.states.items():
            if state.started_at > now and transactional_id in self.timeouts:
                self.timeouts.set(transactional_id, Millis(now + state.timeout_ms))

    def _forget(self, transactional_id: str, producer_id: ProducerId | None = None) -> None:
        """Make room for what comes instead, of ``producer_id``, if anything does."""
        before = self.states.pop(transactional_id, None)
        self.prepared.pop(transactional_id, None)
        if before is not None and before.producer_id != producer_id:
            self._by_producer.pop(before.producer_id, None)
        if producer_id is None:
            self.timeouts.cancel(transactional_id)
