"""What is remembered of transactions: the facts that a restart replays.

Each is stored under a key, and the newest fact of a key counts; a ``Forgotten`` one removes it.
How they are written as Kafka writes them is in ``broker/transaction_records.py``.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from waystation.model.offsets import NO_TIMESTAMP, Millis

EPOCH_MAX: Final = ProducerEpoch((1 << 15) - 1)
"""Only ever in markers: no producer is told this epoch, so the last one can still be fenced."""


class TxnState(IntEnum):
    """Where a transactional id stands, by Kafka's numbers.

    A prepared transaction is an ongoing one that says when it was prepared.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def shown(self) -> str:
        """As Kafka's tools show it."""
        return self.name.title().replace("_", "")


class TransactionStored(NamedTuple):
    """A transactional id, its producer and how far its transaction has come."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    state: TxnState
    updated_at: Millis
    partitions: tuple[TopicPartition, ...] = ()
    """In order, each once; those whose markers are due while the state is one of prepare."""
    started_at: Millis = NO_TIMESTAMP
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The same producer's epoch before this one: who uses it has missed an answer, or a time-out.

    None once another instance has taken over: no repeat brings a fenced one back."""
    previous_producer_id: ProducerId = NO_PRODUCER
    """The producer id before this one, whose epochs are used up."""
    next_producer_id: ProducerId = NO_PRODUCER
    """The one that follows once the markers are written."""
    client_version: int = 0
    """2 where partitions were added by the writes themselves (KIP-890), else 0."""
    prepared_at: Millis = NO_TIMESTAMP
    """Since when only its holder ends the transaction, or the operator."""

    @property
    def is_prepared(self) -> bool:
        """Whether it waits for the word of an outer transaction."""
        return self.state is TxnState.ONGOING and self.prepared_at != NO_TIMESTAMP


class TransactionForgotten(NamedTuple):
    """The transactional id was not used for so long that it has expired."""

    transactional_id: str


class Ending(IntEnum):
    """How a prepared transaction ended."""

    COMMITTED = 0
    ABORTED = 1
    ABORTED_BY_LIMIT = 2
    """Nobody ended it before the operator's limit did."""


class OutcomeStored(NamedTuple):
    """A prepared transaction was ended; kept when its transactional id has gone on."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    """The one it was prepared under: no other transaction of the producer had it."""
    ending: Ending
    at: Millis


class OutcomeForgotten(NamedTuple):
    """Nobody may ask any more how that transaction ended."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch


Record = TransactionStored | TransactionForgotten | OutcomeStored | OutcomeForgotten
